// SPDX-License-Identifier: Apache-2.0
//
// What commands do before and while a model works. Main thread.
#pragma once

#include <functional>

#include "config/config.h"
#include "engine/engine.h"

namespace penstock {

// Logs go to stderr from the level that `config` names; `level` when that is auto. Call once.
void set_up_logging(const Config& config, const char* level);

// Sets the log level, takes over SIGINT and SIGTERM, finds the model's folder, and returns the
// engine's options with the flag that these signals set. Call once. Throws Error(usage) when there
// is no such model.
EngineOptions start(const Config& config);

using Stopped = std::function<bool()>;  // polled several times a second

// Submits `request` and hands its events to `on_event` until it is done; returns the last one. On a
// terminal a line says how far the prompt is. Throws Error(cancelled) soon after `stopped` says so;
// what Engine::submit, Generation::next and `on_event` throw.
DoneEvent generate(Engine& engine, GenerationRequest request, const Stopped& stopped,
                   const std::function<void(const GenerationEvent&)>& on_event);

}  // namespace penstock

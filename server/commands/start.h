// SPDX-License-Identifier: Apache-2.0
//
// What commands do before and while a model works. Main thread.
#pragma once

#include <functional>

#include "config/config.h"
#include "engine/engine.h"

namespace penstock {

// Sets the log level, takes over SIGINT and SIGTERM, and returns the engine's options with the
// flag that these signals set. Call once. Throws Error(usage) when no model is named.
EngineOptions start(const Config& config);

// Submits `request` and hands its events to `on_event` until it is done; returns the last one.
// Throws Error(cancelled) soon after `stop` is set; what Engine::submit, Generation::next and
// `on_event` throw.
DoneEvent generate(Engine& engine, GenerationRequest request, const StopFlag& stop,
                   const std::function<void(const GenerationEvent&)>& on_event);

}  // namespace penstock

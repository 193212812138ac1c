// SPDX-License-Identifier: Apache-2.0
//
// One answer of a model to a conversation. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "server/commands/model_text.h"
#include "server/commands/start.h"

namespace penstock {

struct Answer {
  Reply reply;
  std::vector<Token> ids;  // all that were generated, markers and stop id included
  ReplyFinish finish;
  GenerationStats stats;     // empty when interrupted
  bool interrupted = false;  // `stopped` ended it: the reply holds what had come
};

// Renders `conversation`, generates at most `max_tokens` ids and hands each piece of the reply to
// `on_delta` as it comes. Throws what ChatFormat::render and generate() throw, but ends with
// `interrupted` where generate() throws Error(cancelled).
Answer answer(Engine& engine, const ModelText& text, const Conversation& conversation,
              std::int64_t max_tokens, const Stopped& stopped,
              const std::function<void(const Delta&)>& on_delta);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Kimi-Linear's chat format (spec: chat-format.md part B): im_* markers around roles and bodies,
// tool calls between markers of their own, no thinking. Plain functions, any thread.
#pragma once

#include <memory>

#include "engine/text/chat_format.h"

namespace penstock {

std::unique_ptr<const ChatFormat> make_kimi_format(const Tokenizer& tokenizer);

}  // namespace penstock

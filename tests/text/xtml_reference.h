// SPDX-License-Identifier: Apache-2.0
//
// A second reader of K3's replies, for tests: takes the whole reply at once, gathers what it says
// as a structure and writes arguments at the end. Plain function.
#pragma once

#include <vector>

#include "tests/text/chat_fixtures.h"

namespace penstock {

ReadReply reference_reply(const Tokenizer& tokenizer, const std::vector<Token>& ids, Channel open,
                          ReplyCut cut);

}  // namespace penstock

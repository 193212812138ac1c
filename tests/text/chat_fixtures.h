// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the chat formats share: fixtures, tokenizers, conversations from JSON, and a
// way to feed replies. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_format.h"

namespace penstock {

JsonValue read_fixture(const std::string& path);  // throws when absent or not JSON

// The folder of K3's published files (rank file, vectors), which the repository does not contain:
// below $PENSTOCK_SHARED or ../shared of the source folder.
std::optional<std::string> published_k3_dir();

const Tokenizer& demo_tokenizer();  // of the demo model: K3's markers, 4096 ranks

// The rank file of `dir` with the special names of the K2 family.
Tokenizer kimi_linear_tokenizer(const std::string& dir);
const Tokenizer& kimi_linear_demo_tokenizer();

// {"messages", "tools", "thinking", "thinking_effort", "tool_choice", "response_format",
// "add_generation_prompt"} at the level of the prompt builder: no effort unless given.
Conversation conversation_of(const JsonValue& request);

// The ids of a text in which the names of specials stand for their ids.
std::vector<Token> ids_of(const Tokenizer& tokenizer, std::string_view text);

struct ReadReply {
  Reply reply;
  ReplyFinish finish;
  std::int64_t reasoning_tokens;
};
// Feeds all ids, then ends the reply. Checks on the way that deltas are well-formed: whole UTF-8,
// not empty, calls begun before their arguments.
ReadReply read_reply(ReplyParser* parser, const std::vector<Token>& ids, ReplyCut cut);

// The call ids, which are random, left out.
std::string describe(const ReadReply& read);

}  // namespace penstock

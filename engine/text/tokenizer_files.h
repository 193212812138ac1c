// SPDX-License-Identifier: Apache-2.0
//
// The two files of a tokenizer (spec: tokenizer.md sections 1 and 2), checked while they are read.
// Plain functions, any thread. All throw Error(model) naming the file and, in a rank file, the
// line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/tokenizer_ranks.h"

namespace penstock {

inline constexpr Token kSpecialTokens = 256;  // ids behind the ranks that are specials

// The whole file, at most 1 GiB.
std::string read_tokenizer_file(const std::string& path);

// Lines of "base64 rank", ranks ascending from 0 without gaps, all 256 single bytes among the
// tokens. `file` opens the messages.
TokenRanks parse_ranks(std::string_view text, const std::string& file);

// Names of the ids first_special + [0, 256): as in added_tokens_decoder of tokenizer_config.json,
// else <|reserved_token_ID|>. No name is empty, or equal to or the start of another.
std::vector<std::string> parse_special_names(std::string_view json, const std::string& file,
                                             Token first_special);

}  // namespace penstock

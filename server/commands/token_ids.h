// SPDX-License-Identifier: Apache-2.0
//
// Token ids on the command line. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace penstock {

// "1,2,3" to ids; blanks around an id are ignored. Throws Error(usage) naming the first piece that
// is not a number from 0 to 2147483647; whether the model has it is checked by the engine.
std::vector<Token> parse_token_ids(std::string_view text);

// The value of --ids: a list as above, or "-" to read it from standard input (a command line holds
// some hundred thousand characters only). Throws as above.
std::vector<Token> read_token_ids(const std::string& ids);

}  // namespace penstock

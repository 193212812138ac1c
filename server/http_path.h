// SPDX-License-Identifier: Apache-2.0
//
// Request paths as clients spell them. Plain functions.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// "//v1/chat/completions/?beta=true" to "/chat/completions": without query and escapes, slashes
// single, none at the end, and without the leading "/v1" that clients may leave out.
std::string normalized_path(std::string_view target);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace penstock {

using Token = std::int32_t;  // an id of the vocabulary, 0 <= id < vocab_size

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding of one piece (spec: tokenizer.md section 5): single bytes, then always the
// adjacent pair whose bytes have the lowest rank, leftmost first on equal rank.
// Plain functions, any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/tokenizer_ranks.h"

namespace penstock {

// Most ranks there may be: a rank and a place in a short piece are packed into 32 bits.
inline constexpr std::size_t kMaxRanks = 1U << 22U;

// Appends the ids of `piece` (not empty) to `out`. `ranks` holds every single byte. Bytes up to
// readable_end may be read.
void encode_piece(const TokenRanks& ranks, std::string_view piece, const char* readable_end,
                  std::vector<Token>* out);

}  // namespace penstock

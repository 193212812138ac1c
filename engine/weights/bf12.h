// SPDX-License-Identifier: Apache-2.0
//
// bf16 rows to and from bf12 (kernels/formats.h). Exact in both directions. Plain functions, any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/formats.h"

namespace penstock {

// The pieces of raw blocks, from one row of a matrix on.
struct Bf12Pieces {
  std::vector<unsigned char> bytes;  // [pieces][kBf12PieceBytes]
  std::uint32_t first = 0;           // index in the matrix of the first of them
};

// Encodes `row` (bf16 bits) into `out`, row_data_bytes(bf12, row.size()) of them. What raw blocks
// do not hold goes behind `pieces`. Returns the first column that is not finite, or -1.
std::int32_t encode_bf12_row(std::span<const std::uint16_t> row, unsigned char* out,
                             Bf12Pieces& pieces);

// Which pieces an encoded row of `cols` columns wants.
struct Bf12PieceRange {
  std::uint32_t first = 0;  // 0 when there are none
  std::uint32_t count = 0;
};
Bf12PieceRange bf12_row_pieces(const unsigned char* row, std::int32_t cols);

// Row r of a bf12 matrix as bf16 bits, w.cols of them; columns of a piece that is not there are
// NaN.
void decode_bf12_row(const WeightMatrix& w, std::int32_t r, std::span<std::uint16_t> out);

}  // namespace penstock

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

// The pieces of raw blocks, and where the index of the first piece of each such block stands.
struct Bf12Pieces {
  std::vector<unsigned char> bytes;          // [pieces][kBf12PieceBytes]
  std::vector<unsigned char*> index_places;  // in the rows encoded
};

// Encodes `row` (bf16 bits) into `out`, row_data_bytes(bf12, row.size()) of them. What raw blocks
// do not hold goes behind `pieces`. Returns the first column that is not finite, or -1.
std::int32_t encode_bf12_row(std::span<const std::uint16_t> row, unsigned char* out,
                             Bf12Pieces& pieces);

// Adds `first` to the indices of all raw blocks: rows encoded by several threads have pieces of
// their own, which then lie one after the other.
void renumber_bf12_pieces(const Bf12Pieces& pieces, std::uint32_t first);

// Row r of a bf12 matrix as bf16 bits, w.cols of them; columns of a piece that does not exist are
// NaN.
void decode_bf12_row(const WeightMatrix& w, std::int32_t r, std::span<std::uint16_t> out);

}  // namespace penstock

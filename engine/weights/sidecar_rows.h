// SPDX-License-Identifier: Apache-2.0
//
// Rows of a published matrix in a sidecar's formats (sidecar.h): the same bytes for any cut into
// ranges of rows. Plain functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

struct PublishedRows {
  std::span<const std::byte> bytes;  // [rows][cols] of `type`
  TensorType type;                   // BF16; for int8_rows F32 as well
  std::int32_t cols;

  std::size_t row_bytes() const {
    return static_cast<std::size_t>(cols) * (type == TensorType::bf16 ? 2 : 4);
  }
  std::size_t rows() const { return bytes.size() / row_bytes(); }
};

struct SidecarRows {
  std::vector<unsigned char> data;    // [rows][row_data_bytes]
  std::vector<unsigned char> scales;  // bf12: [pieces][64]; int8_rows: float [rows]
};

struct ElementPlace {
  std::size_t row;
  std::size_t col;
};

// `first_piece` is the number of pieces of the rows before. Returns the place of a value that is
// not finite; `out` is of no use then.
std::optional<ElementPlace> encode_rows(WeightFormat format, const PublishedRows& published,
                                        std::uint32_t first_piece, SidecarRows& out);

// A number that tells contents apart.
std::uint64_t hash_bytes(std::span<const unsigned char> bytes, std::uint64_t seed);

// What decoding gives back, as a number: for bf12 that of the published bits, for int8_rows that of
// the encoded bytes.
std::uint64_t published_hash(WeightFormat format, const PublishedRows& published,
                             const SidecarRows& encoded);
std::uint64_t decoded_hash(WeightFormat format, const SidecarRows& encoded, std::int32_t cols,
                           std::uint32_t first_piece);

}  // namespace penstock

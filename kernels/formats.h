// SPDX-License-Identifier: Apache-2.0
//
// Bit layouts of the weight formats and the one view of a matrix that everything narrows to.
// Values are exact in fp32 for every format: dequantisation never rounds.
// Immutable views; the bytes belong to a cache slot or a spine segment.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace penstock {

enum class WeightFormat : uint8_t {
  f32,        // little-endian IEEE single
  bf16,       // the upper half of an IEEE single
  int8_rows,  // value = int8 * scale of its row
  mxfp4,      // value = E2M1 nibble * 2^(b - 127), one scale byte b for 32 columns of a row
  bf12,       // bf16 with exponents in 4 bits below the largest of 128 columns of a row
};
inline constexpr int kWeightFormats = 5;

inline constexpr int32_t kMxfp4BlockCols = 32;  // columns that share a scale byte
inline constexpr uint8_t kMxfp4ScaleNan = 255;  // E8M0's NaN: never a weight, rejected on load
inline constexpr float kMxfp4Magnitudes[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};

// bf12. A row is blocks of 128 columns, the last one of as many 32s as it needs, zeros past cols: a
// base byte, then 48 bytes for each 32 columns. Columns go in groups of 64 (the last one may be
// 32), of two halves of h = 32 (16) columns: h bytes, byte i = the codes of columns i (low nibble)
// and h + i (high) of the group, then h little-endian words, word i = sign of column i in bit 15,
// mantissa of column h + i in bits 14 to 8, sign of column h + i in bit 7, mantissa of column i
// below: each is where bf16 has it, for column h + i once the two bytes change places.
// The exponent field of a bf16 is base - 15 + code, or 0 for code 0 (zeros, subnormals): exact.
// A block that spans more exponents is raw: base kBf12Raw, then a little-endian uint32 e, then as
// many 32s of plain bf16 as fit into its bytes; the others are the pieces e, e + 1, ... of the
// matrix's `scales`. A piece is 32 columns of plain bf16. Pieces are in the order of their blocks.
inline constexpr int32_t kBf12BlockCols = 128;
inline constexpr int32_t kBf12PieceCols = 32;
inline constexpr int32_t kBf12PieceBytes = 64;  // of plain bf16
inline constexpr uint8_t kBf12Raw = 255;        // no base: bf16's exponent of inf and NaN

// Pieces of a raw block of `pieces` 32s that lie in its own 48 * pieces bytes.
constexpr int32_t bf12_pieces_in_place(int32_t pieces) {
  return (48 * pieces - 4) / kBf12PieceBytes;
}

// A [rows][cols] matrix, row-major. `data` and `scales` may lie at any byte alignment.
struct WeightMatrix {
  const unsigned char* data = nullptr;    // f32, bf16, int8: [rows][cols]; mxfp4: [rows][cols / 2],
                                          // byte j = columns 2j (low nibble) and 2j + 1 (high);
                                          // bf12: [rows][row_data_bytes]
  const unsigned char* scales = nullptr;  // int8: float [rows]; mxfp4: [rows][cols / 32];
                                          // bf12: [pieces][64]; else null
  int32_t rows = 0;
  int32_t cols = 0;
  WeightFormat format = WeightFormat::f32;
  // bf12: which pieces of the matrix `scales` holds, those of some of its rows say. A raw block
  // that wants another one reads as NaN.
  uint32_t first_piece = 0;
  uint32_t pieces = 0;
};

// Bytes of one row in `data`.
constexpr size_t row_data_bytes(WeightFormat format, int32_t cols) {
  const size_t n = static_cast<size_t>(cols);
  switch (format) {
    case WeightFormat::f32: return n * 4;
    case WeightFormat::bf16: return n * 2;
    case WeightFormat::int8_rows: return n;
    case WeightFormat::mxfp4: return n / 2;
    case WeightFormat::bf12: return (n + 127) / 128 + (n + 31) / 32 * 48;
  }
  return 0;
}

// Bytes of one row in `scales`; bf12 has pieces there, which belong to no fixed row.
constexpr size_t row_scale_bytes(WeightFormat format, int32_t cols) {
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::bf16:
    case WeightFormat::bf12: return 0;
    case WeightFormat::int8_rows: return sizeof(float);
    case WeightFormat::mxfp4: return static_cast<size_t>(cols) / kMxfp4BlockCols;
  }
  return 0;
}

static_assert(row_data_bytes(WeightFormat::mxfp4, 32) == 16);
static_assert(row_scale_bytes(WeightFormat::mxfp4, 32) == 1);
static_assert(row_data_bytes(WeightFormat::bf16, 32) == 64);
static_assert(row_data_bytes(WeightFormat::bf12, 128) == 193);
static_assert(row_data_bytes(WeightFormat::bf12, 192) == 193 + 97);

}  // namespace penstock

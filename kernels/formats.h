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
};
inline constexpr int kWeightFormats = 4;

inline constexpr int32_t kMxfp4BlockCols = 32;  // columns that share a scale byte
inline constexpr uint8_t kMxfp4ScaleNan = 255;  // E8M0's NaN: never a weight, rejected on load
inline constexpr float kMxfp4Magnitudes[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};

// A [rows][cols] matrix, row-major. `data` and `scales` may lie at any byte alignment.
struct WeightMatrix {
  const unsigned char* data = nullptr;    // f32, bf16, int8: [rows][cols]; mxfp4: [rows][cols / 2],
                                          // byte j = columns 2j (low nibble) and 2j + 1 (high)
  const unsigned char* scales = nullptr;  // int8: float [rows]; mxfp4: [rows][cols / 32]; else null
  int32_t rows = 0;
  int32_t cols = 0;
  WeightFormat format = WeightFormat::f32;
};

// Bytes of one row in `data`.
constexpr size_t row_data_bytes(WeightFormat format, int32_t cols) {
  const size_t n = static_cast<size_t>(cols);
  switch (format) {
    case WeightFormat::f32: return n * 4;
    case WeightFormat::bf16: return n * 2;
    case WeightFormat::int8_rows: return n;
    case WeightFormat::mxfp4: return n / 2;
  }
  return 0;
}

// Bytes of one row in `scales`.
constexpr size_t row_scale_bytes(WeightFormat format, int32_t cols) {
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::bf16: return 0;
    case WeightFormat::int8_rows: return sizeof(float);
    case WeightFormat::mxfp4: return static_cast<size_t>(cols) / kMxfp4BlockCols;
  }
  return 0;
}

static_assert(row_data_bytes(WeightFormat::mxfp4, 32) == 16);
static_assert(row_scale_bytes(WeightFormat::mxfp4, 32) == 1);
static_assert(row_data_bytes(WeightFormat::bf16, 32) == 64);

}  // namespace penstock

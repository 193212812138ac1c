// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/int8_rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace penstock {
namespace {

constexpr float kLargest = 127.0F;
// Added to a small number, it leaves the nearest integer (the even one of two) in the lowest bits.
constexpr float kRound = 0x1.8p23F;

}  // namespace

float quantise_int8_row(std::span<const float> row, std::int8_t* out) {
  // As integers, magnitudes are in order and everything that is not finite lies above them.
  std::int32_t largest_bits = 0;
  for (const float value : row) {
    largest_bits = std::max(largest_bits, std::bit_cast<std::int32_t>(value) & INT32_MAX);
  }
  if (largest_bits >= std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity())) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = std::bit_cast<float>(largest_bits) / kLargest;
  if (scale == 0.0F) {
    std::fill_n(out, row.size(), std::int8_t{0});
    return 0.0F;
  }
  for (std::size_t c = 0; c < row.size(); ++c) {
    // A subnormal scale may be too small by half of itself.
    const float value = std::clamp(row[c] / scale, -kLargest, kLargest);
    out[c] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(value + kRound));
  }
  return scale;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Rows to int8 with one fp32 scale each (kernels/formats.h). Plain functions, any thread.
#pragma once

#include <cstdint>
#include <span>

namespace penstock {

// scale = max|w| / 127, out[c] = w[c] / scale rounded to nearest even, both in fp32; a row of zeros
// has scale 0. Returns the scale; a NaN when the row has a value that is not finite.
float quantise_int8_row(std::span<const float> row, std::int8_t* out);

}  // namespace penstock

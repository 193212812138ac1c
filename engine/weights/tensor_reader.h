// SPDX-License-Identifier: Apache-2.0
//
// Small tensors, read whole at load and kept as fp32: norms, gates' constants, convolution taps.
// Plain functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/weights/tensor_index.h"

namespace penstock {

// The values of an F32 or BF16 tensor, row-major. Throws Error(model) when it is missing, of
// another type, when its element count is not `count`, or when a value is not finite.
std::vector<float> read_vector(const TensorIndex& index, const std::string& name,
                               std::int64_t count);

}  // namespace penstock

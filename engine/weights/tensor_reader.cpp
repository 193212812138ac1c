// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/tensor_reader.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>

#include "engine/base/error.h"

namespace penstock {

std::vector<float> read_vector(const TensorIndex& index, const std::string& name,
                               std::int64_t count) {
  const TensorInfo& info = index.get(name);
  const ByteSource& source = index.source(info.source);
  const auto fail = [&](const std::string& problem) {
    throw Error(ErrorCode::model, source.name() + ": tensor " + name + " " + problem);
  };
  const bool is_bf16 = info.type == TensorType::bf16;
  const std::uint64_t found = info.bytes / (is_bf16 ? 2 : 4);
  if ((!is_bf16 && info.type != TensorType::f32) || found != static_cast<std::uint64_t>(count)) {
    fail("is " + describe_tensor(info.type, info.shape) + ", expected BF16 or F32 with " +
         std::to_string(count) + " values");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.bytes));
  source.read(info.offset, bytes);
  std::vector<float> values(static_cast<std::size_t>(count));
  static_assert(std::endian::native == std::endian::little,
                "values are used as the files have them");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_bf16) {
      std::uint16_t half = 0;
      std::memcpy(&half, &bytes[i * 2], 2);
      values[i] = std::bit_cast<float>(std::uint32_t{half} << 16U);
    } else {
      std::memcpy(&values[i], &bytes[i * 4], 4);
    }
    if (!std::isfinite(values[i])) fail("is not finite at element " + std::to_string(i));
  }
  return values;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/tensor_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

std::string float_bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorIndex open_shard(const TempDir& dir, const std::vector<BuiltTensor>& tensors) {
  write_checkpoint(dir.path(), {{"a.safetensors", tensors}});
  return TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); });
}

TEST(TensorReader, WidensBothTypesToFloats) {
  const TempDir dir;
  const TensorIndex index =
      open_shard(dir, {{"f", TensorType::f32, {1, 3}, float_bytes({1.5F, -0.0F, 3e-39F})},
                       {"b", TensorType::bf16, {2}, std::string("\x80\x3F\x20\xC1", 4)}});
  EXPECT_EQ(read_vector(index, "f", 3), (std::vector<float>{1.5F, -0.0F, 3e-39F}));
  EXPECT_EQ(read_vector(index, "b", 2), (std::vector<float>{1.0F, -10.0F}));
}

TEST(TensorReader, NamesWhatIsWrong) {
  const TempDir dir;
  const TensorIndex index =
      open_shard(dir, {{"f", TensorType::f32, {4}, float_bytes({1, 2, 3, 4})},
                       {"nan", TensorType::f32, {2}, float_bytes({1, __builtin_nanf("")})},
                       {"inf", TensorType::bf16, {2}, std::string("\x80\x3F\x80\x7F", 4)},
                       {"u", TensorType::u8, {4}, "1234"}});
  const auto message_of = [&](const char* name, std::int64_t count) -> std::string {
    try {
      read_vector(index, name, count);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::model);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of("none", 1), "tensor none is missing");
  EXPECT_EQ(message_of("f", 3),
            "a.safetensors: tensor f is F32 [4], expected BF16 or F32 with 3 values");
  EXPECT_EQ(message_of("u", 1),
            "a.safetensors: tensor u is U8 [4], expected BF16 or F32 with 1 values");
  EXPECT_EQ(message_of("nan", 2), "a.safetensors: tensor nan is not finite at element 1");
  EXPECT_EQ(message_of("inf", 2), "a.safetensors: tensor inf is not finite at element 1");
}

}  // namespace
}  // namespace penstock

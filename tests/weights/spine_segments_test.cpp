// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine_segments.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_queue.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

TensorIndex open_dir(const TempDir& dir) {
  return TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); });
}

// A shard whose tensors are BF16 and hold nothing but holes.
TensorIndex open_sparse(const TempDir& dir,
                        const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& all) {
  std::string json;
  std::int64_t end = 0;
  for (const auto& [name, shape] : all) {
    const std::int64_t begin = end;
    end += shape[0] * shape[1] * 2;
    json += (json.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"BF16","shape":[)" +
            std::to_string(shape[0]) + "," + std::to_string(shape[1]) + R"(],"data_offsets":[)" +
            std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  json += "}";
  std::string length(8, '\0');
  const std::uint64_t bytes = json.size();
  std::memcpy(length.data(), &bytes, length.size());
  const std::string path = dir.write("model.safetensors", length + json);
  std::filesystem::resize_file(path, 8 + bytes + static_cast<std::uint64_t>(end));
  return open_dir(dir);
}

SpineMatrix whole(const std::string& name, std::int32_t rows, std::int32_t cols) {
  return {name, rows, cols, 0, rows};
}

TEST(SpineSegments, LargeMatricesAreCutByRows) {
  const TempDir dir;
  const TensorIndex index = open_sparse(dir, {{"lm_head", {163'840, 7168}}, {"q", {128, 7168}}});
  const std::vector<SpineMatrix> head =
      cut_by_rows(index, "lm_head", 163'840, 7168, kMaxSegmentBytes);
  ASSERT_EQ(head.size(), 2U);
  EXPECT_EQ(head[0].row_begin, 0);
  EXPECT_EQ(head[0].rows, 81'920);
  EXPECT_EQ(head[1].row_begin, 81'920);
  EXPECT_EQ(head[1].rows, 81'920);
  EXPECT_EQ(head[1].tensor_rows, 163'840);
  EXPECT_EQ(cut_by_rows(index, "q", 128, 7168, kMaxSegmentBytes).size(), 1U);
  EXPECT_EQ(cut_by_rows(index, "q", 128, 7168, 1).size(), 128U);

  const std::vector<SpineSegment> segments =
      plan_segments({&index}, {{"first", {head[0]}}, {"second", {head[1]}}});
  ASSERT_EQ(segments.size(), 2U);
  const SegmentPart& second = segments[1].matrices[0].data;
  EXPECT_EQ(second.offset, index.get("lm_head").offset + 81'920ULL * 7168 * 2);
  EXPECT_EQ(second.offset + second.bytes, index.get("q").offset);
  EXPECT_EQ(segments[1].payload_bytes, 81'920ULL * 7168 * 2);
  EXPECT_LE(segments[1].memory_bytes, segments[1].payload_bytes + 2 * kPageBytes);
}

TEST(SpineSegments, NeighboursInTheFileBecomeOneRead) {
  const TempDir dir;
  // In the file: a b | gap | c. In order of use: c b a.
  const BuiltShard shard{
      "model.safetensors",
      {float_tensor("a", TensorType::bf16, {40, 50}), float_tensor("b", TensorType::bf16, {60, 70}),
       float_tensor("gap", TensorType::bf16, {3}), float_tensor("c", TensorType::bf16, {8, 9})}};
  write_checkpoint(dir.path(), {shard});
  const TensorIndex index = open_dir(dir);
  const std::vector<SpineSegment> segments =
      plan_segments({&index}, {{"u", {whole("c", 8, 9), whole("b", 60, 70), whole("a", 40, 50)}}});
  ASSERT_EQ(segments.size(), 1U);
  const std::vector<SegmentMatrix>& matrices = segments[0].matrices;
  EXPECT_EQ(matrices[2].data.position, matrices[2].data.offset % kPageBytes);
  EXPECT_EQ(matrices[1].data.position, matrices[2].data.position + matrices[2].data.bytes);
  const std::uint64_t joined = widened_bytes(matrices[2].data.offset, 40 * 50 * 2 + 60 * 70 * 2);
  EXPECT_EQ(matrices[0].data.position, joined + matrices[0].data.offset % kPageBytes);
  EXPECT_EQ(segments[0].reads.size(), 2U);
  EXPECT_EQ(segments[0].memory_bytes, joined + widened_bytes(matrices[0].data.offset, 8 * 9 * 2));
}

TEST(SpineSegments, NamesTheTensorThatIsWrong) {
  const TempDir dir;
  write_checkpoint(dir.path(), {{"a.safetensors",
                                 {float_tensor("x", TensorType::bf16, {4, 6}),
                                  {"u", TensorType::u8, {4, 6}, std::string(24, '\0')},
                                  {"h", TensorType::f16, {4, 6}, std::string(48, '\0')}}}});
  const TensorIndex index = open_dir(dir);
  const auto message_of = [&](const std::string& name, std::int32_t rows,
                              std::int32_t cols) -> std::string {
    try {
      plan_segments({&index}, {{"unit", {whole(name, rows, cols)}}});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::model);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of("x", 4, 6), "no error");
  EXPECT_EQ(message_of("x", 6, 4),
            "a.safetensors: tensor x is BF16 [4, 6], expected BF16 or F32 [6, 4]");
  EXPECT_EQ(message_of("u", 4, 6),
            "a.safetensors: tensor u is U8 [4, 6], expected BF16 or F32 [4, 6]");
  EXPECT_EQ(message_of("h", 4, 6),
            "a.safetensors: tensor h is F16 [4, 6], expected BF16 or F32 [4, 6]");
  EXPECT_EQ(message_of("none", 4, 6), "tensor none is missing");
  EXPECT_THROW(cut_by_rows(index, "x", 4, 7, 100), Error);
}

}  // namespace
}  // namespace penstock

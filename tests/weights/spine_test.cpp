// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/faulty_source.h"
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

TEST(Spine, CutsLargeMatricesByRows) {
  const TempDir dir;
  const TensorIndex index = open_sparse(dir, {{"lm_head", {163'840, 7168}}, {"q", {128, 7168}}});
  const std::vector<SpineMatrix> head = spine_matrices(index, "lm_head", 163'840, 7168);
  ASSERT_EQ(head.size(), 2U);
  EXPECT_EQ(head[0].row_begin, 0);
  EXPECT_EQ(head[0].rows, 81'920);
  EXPECT_EQ(head[1].row_begin, 81'920);
  EXPECT_EQ(head[1].rows, 81'920);
  EXPECT_EQ(head[1].tensor_rows, 163'840);
  EXPECT_EQ(spine_matrices(index, "q", 128, 7168).size(), 1U);

  const std::vector<SpineSegment> segments = plan_segments(index, {{"head", head}});
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_EQ(segments[1].first_matrix, 1);
  EXPECT_EQ(segments[1].matrices[0].offset, index.get("lm_head").offset + 81'920ULL * 7168 * 2);
  EXPECT_EQ(segments[1].matrices[0].offset + segments[1].matrices[0].bytes, index.get("q").offset);
}

TEST(Spine, SegmentsStayBelowTheirLimitAndInsideTheirUnit) {
  const TempDir dir;
  const std::int32_t wide = 33'792;
  const TensorIndex index = open_sparse(
      dir, {{"down", {7168, wide}}, {"gate", {wide, 7168}}, {"up", {wide, 7168}}, {"q", {9, 16}}});
  const std::vector<SpineUnit> units = {
      {"layer 0", {whole("gate", wide, 7168), whole("up", wide, 7168), whole("down", 7168, wide)}},
      {"layer 1", {whole("q", 9, 16)}}};
  const std::vector<SpineSegment> segments = plan_segments(index, units);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].unit, 0);
  EXPECT_EQ(segments[0].matrices.size(), 2U);
  EXPECT_EQ(segments[0].payload_bytes, 2ULL * wide * 7168 * 2);
  EXPECT_EQ(segments[1].first_matrix, 2);
  EXPECT_EQ(segments[1].payload_bytes, 1ULL * wide * 7168 * 2);
  EXPECT_EQ(segments[2].unit, 1);
  EXPECT_EQ(segments[2].first_matrix, 0);
  for (const SpineSegment& segment : segments) {
    EXPECT_LE(segment.payload_bytes, kMaxSegmentBytes);
    EXPECT_EQ(segment.memory_bytes % kPageBytes, 0U);
    EXPECT_LE(segment.memory_bytes, segment.payload_bytes + 2 * kPageBytes);
  }
}

TEST(Spine, NeighboursInTheFileBecomeOneRead) {
  const TempDir dir;
  // In the file: a b | gap | c. In order of use: c b a.
  const BuiltShard shard{
      "model.safetensors",
      {float_tensor("a", TensorType::bf16, {40, 50}), float_tensor("b", TensorType::bf16, {60, 70}),
       float_tensor("gap", TensorType::bf16, {3}), float_tensor("c", TensorType::bf16, {8, 9})}};
  write_checkpoint(dir.path(), {shard});
  const TensorIndex index = open_dir(dir);
  const std::vector<SpineSegment> segments =
      plan_segments(index, {{"u", {whole("c", 8, 9), whole("b", 60, 70), whole("a", 40, 50)}}});
  ASSERT_EQ(segments.size(), 1U);
  const std::vector<SegmentMatrix>& matrices = segments[0].matrices;
  EXPECT_EQ(matrices[2].position, matrices[2].offset % kPageBytes);
  EXPECT_EQ(matrices[1].position, matrices[2].position + matrices[2].bytes);
  const std::uint64_t joined = widened_bytes(matrices[2].offset, 40 * 50 * 2 + 60 * 70 * 2);
  EXPECT_EQ(matrices[0].position, joined + matrices[0].offset % kPageBytes);
  EXPECT_EQ(segments[0].memory_bytes, joined + widened_bytes(matrices[0].offset, 8 * 9 * 2));
}

TEST(Spine, NamesTheTensorThatIsWrong) {
  const TempDir dir;
  write_checkpoint(dir.path(), {{"a.safetensors",
                                 {float_tensor("x", TensorType::bf16, {4, 6}),
                                  {"u", TensorType::u8, {4, 6}, std::string(24, '\0')},
                                  {"h", TensorType::f16, {4, 6}, std::string(48, '\0')}}}});
  const TensorIndex index = open_dir(dir);
  const auto message_of = [&](const std::string& name, std::int32_t rows,
                              std::int32_t cols) -> std::string {
    try {
      plan_segments(index, {{"unit", {whole(name, rows, cols)}}});
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
  EXPECT_THROW(spine_matrices(index, "x", 4, 7), Error);
}

std::vector<BuiltShard> spine_shards() {
  return {{"a.safetensors",
           {float_tensor("f", TensorType::f32, {33, 17}),
            float_tensor("b", TensorType::bf16, {100, 300})},
           1235},
          {"b.safetensors", {float_tensor("c", TensorType::bf16, {5, 4096})}, 17}};
}

std::vector<SpineUnit> spine_units() {
  return {{"first", {whole("c", 5, 4096), {"b", 100, 300, 40, 60}, {"b", 100, 300, 0, 40}}},
          {"empty", {}},
          {"second", {whole("f", 33, 17)}}};
}

TEST(Spine, HoldsTheBytesOfEveryMatrix) {
  const TempDir dir;
  const std::vector<BuiltShard> shards = spine_shards();
  write_checkpoint(dir.path(), shards);
  const TensorIndex index = open_dir(dir);
  ReadQueue queue;
  const SpineStore spine(index, queue, spine_units(), {});
  const std::string& f = shards[0].tensors[0].bytes;
  const std::string& b = shards[0].tensors[1].bytes;
  const std::string& c = shards[1].tensors[0].bytes;
  const auto bytes_of = [](const WeightMatrix& matrix) {
    return std::string(
        reinterpret_cast<const char*>(matrix.data),
        static_cast<std::size_t>(matrix.rows) * row_data_bytes(matrix.format, matrix.cols));
  };
  const LayerLease first = spine.acquire(0);
  EXPECT_EQ(bytes_of(first.matrix(0)), c);
  EXPECT_EQ(bytes_of(first.matrix(1)), b.substr(40 * 600));
  EXPECT_EQ(bytes_of(first.matrix(2)), b.substr(0, 40 * 600));
  EXPECT_EQ(first.matrix(2).format, WeightFormat::bf16);
  EXPECT_EQ(first.matrix(2).rows, 40);
  EXPECT_EQ(first.matrix(2).cols, 300);
  const LayerLease second = spine.acquire(2);
  EXPECT_EQ(bytes_of(second.matrix(0)), f);
  EXPECT_EQ(second.matrix(0).format, WeightFormat::f32);
  EXPECT_EQ(spine.payload_bytes(), f.size() + b.size() + c.size());
  EXPECT_GE(spine.memory_bytes(), spine.payload_bytes());
  EXPECT_LE(queue.drive_bytes(), spine.memory_bytes());
}

TEST(Spine, SaysHowFarTheLoadIs) {
  const TempDir dir;
  write_checkpoint(dir.path(), spine_shards());
  const TensorIndex index = open_dir(dir);
  ReadQueue queue;
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  const SpineStore spine(index, queue, spine_units(),
                         {.progress = [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                           done.push_back(done_bytes);
                           total = total_bytes;
                         }});
  EXPECT_EQ(total, spine.payload_bytes());
  ASSERT_FALSE(done.empty());
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), total);
}

// The shards behind faults.
struct FaultyShards {
  FaultyShards() {
    write_checkpoint(dir.path(), spine_shards());
    index = std::make_unique<TensorIndex>(
        TensorIndex::open(dir.path(), [this](const std::string& path) {
          auto source = std::make_unique<FaultySource>(open_source(path));
          if (path.ends_with("/b.safetensors")) faulty = source.get();
          return source;
        }));
  }
  TempDir dir;
  FaultySource* faulty = nullptr;
  std::unique_ptr<TensorIndex> index;
};

TEST(Spine, ReportsAFailedRead) {
  FaultyShards shards;
  ReadQueue queue;
  shards.faulty->inject({.fault = Fault::eio});
  try {
    const SpineStore spine(*shards.index, queue, spine_units(), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(std::string(error.what()).find("b.safetensors"), std::string::npos) << error.what();
  }
  shards.faulty->clear_faults();
  EXPECT_NO_THROW(SpineStore(*shards.index, queue, spine_units(), {}));
}

TEST(Spine, StopsWhenAsked) {
  FaultyShards shards;
  ReadQueue queue;
  StopFlag stop;
  stop.request_stop();
  try {
    const SpineStore spine(*shards.index, queue, spine_units(), {.stop = &stop});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

TEST(Spine, StopsWhileReadsHang) {
  FaultyShards shards;
  ReadQueue queue;
  StopFlag stop;
  shards.faulty->hang();
  std::thread stopper([&] {
    shards.faulty->wait_for_hanging(1);
    stop.request_stop();
    // The memory of a read that hangs cannot be given back before the read has ended.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    shards.faulty->release();
  });
  EXPECT_THROW(SpineStore(*shards.index, queue, spine_units(), {.stop = &stop}), Error);
  stopper.join();
}

}  // namespace
}  // namespace penstock

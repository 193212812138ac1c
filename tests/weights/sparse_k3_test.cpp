// SPDX-License-Identifier: Apache-2.0
//
// The whole Kimi K3 as sparse files: every offset the program computes against the layout of the
// published shards (tests/golden/kimi-k3/).
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/spine_segments.h"
#include "engine/weights/tensor_index.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kLayers = 93;
constexpr std::int32_t kExperts = 896;
constexpr std::uint64_t kFileBytes = 1'560'936'091'448;

nlohmann::json read_json(const char* name) {
  std::ifstream file(std::string(PENSTOCK_GOLDEN "/kimi-k3/") + name);
  return nlohmann::json::parse(file);
}

// Sanitizers keep freed memory and shadow what is used.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<std::uint64_t>(usage.ru_maxrss);
#else
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

// Why the sparse model cannot be made here; empty when it can.
std::string obstacle(const TempDir& dir) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) return "python3 is missing";
  const std::string path = dir.write("probe", "x");
  std::error_code error;
  fs::resize_file(path, 20'000'000'000, error);
  if (error) return "files of 20 GB are refused: " + error.message();
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_blocks > 2048) {
    return "the file system has no sparse files";
  }
  fs::remove(path);
  if (fs::space(dir.path()).available < 300'000'000) return "less than 300 MB of disk are free";
  return "";
}

void check_experts(const TensorIndex& index, const ExpertStore& store) {
  EXPECT_EQ(store.expert_bytes(), 17'547'264U);
  EXPECT_EQ(store.slot_bytes(), 17'547'264U + kPageBytes);
  const nlohmann::json layout = read_json("shard_layout.json");
  std::int32_t layers = 0;
  for (const nlohmann::json& shard : layout.at("shards")) {
    if (!shard.contains("experts")) continue;
    ++layers;
    const std::int32_t layer = shard.at("layer");
    const std::uint64_t first = shard.at("first_expert_offset");
    const std::uint64_t bytes = shard.at("expert_bytes");
    for (std::int32_t expert = 0; expert < kExperts; ++expert) {
      const std::span<const Extent> extents = store.extents(layer, expert);
      ASSERT_EQ(extents.size(), 1U) << "layer " << layer << " expert " << expert;
      const auto rank = static_cast<std::uint64_t>(store.rank()[static_cast<std::size_t>(expert)]);
      ASSERT_EQ(extents[0].offset, first + rank * bytes) << "layer " << layer << " " << expert;
      ASSERT_EQ(extents[0].bytes, bytes);
      ASSERT_EQ(index.source(extents[0].source).name(), shard.at("shard").get<std::string>());
    }
    EXPECT_EQ(index.source(store.extents(layer, 0)[0].source).size(),
              shard.at("file_bytes").get<std::uint64_t>());
  }
  EXPECT_EQ(layers, kLayers - 1);
}

void check_parts(const ExpertStore& store) {
  const nlohmann::json layout = read_json("shard_layout.json").at("expert_inner_layout");
  const std::vector<std::byte> nothing;
  const ExpertView view = store.view(5, 17, nothing.data());
  const auto start = reinterpret_cast<const unsigned char*>(nothing.data()) +
                     store.extents(5, 17)[0].offset % kPageBytes;
  const unsigned char* parts[] = {view.w1.data,   view.w1.scales, view.w2.data,
                                  view.w2.scales, view.w3.data,   view.w3.scales};
  ASSERT_EQ(layout.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(parts[i] - start, layout[i].at("offset").get<std::ptrdiff_t>()) << layout[i];
  }
}

void check_spine_tensors(const TensorIndex& index) {
  const nlohmann::json layout = read_json("spine_layout.json");
  const std::map<std::string, TensorType> types = {{"F32", TensorType::f32},
                                                   {"BF16", TensorType::bf16}};
  for (const nlohmann::json& tensor : layout.at("tensors")) {
    const std::string name = tensor.at("name");
    const TensorInfo* info = index.find(name);
    ASSERT_NE(info, nullptr) << name;
    ASSERT_EQ(info->offset, tensor.at("file_offset").get<std::uint64_t>()) << name;
    ASSERT_EQ(info->bytes, tensor.at("nbytes").get<std::uint64_t>()) << name;
    ASSERT_EQ(info->shape, tensor.at("shape").get<std::vector<std::int64_t>>()) << name;
    ASSERT_EQ(info->type, types.at(tensor.at("dtype"))) << name;
    ASSERT_EQ(index.source(info->source).name(), tensor.at("shard").get<std::string>()) << name;
  }
  EXPECT_EQ(index.tensors().size(), layout.at("tensors").size());
}

void check_segments(const TensorIndex& index) {
  std::vector<SpineUnit> units;
  std::uint64_t payload = 0;
  for (const auto& [name, info] : index.tensors()) {
    if (info.shape.size() != 2 || !name.starts_with("language_model.")) continue;
    units.push_back({name, cut_by_rows(index, name, static_cast<std::int32_t>(info.shape[0]),
                                       static_cast<std::int32_t>(info.shape[1]), UINT64_MAX)});
    payload += info.bytes;
  }
  std::uint64_t planned = 0;
  for (const SpineSegment& segment : plan_segments({&index}, units)) {
    planned += segment.payload_bytes;
  }
  EXPECT_EQ(planned, payload);
  EXPECT_GT(planned, 113'000'000'000U);
}

// One test, as writing the files takes most of the time.
TEST(SparseK3, LiesWhereItIsPublished) {
  const TempDir dir;
  const std::string why_not = obstacle(dir);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const std::string command =
      "python3 '" PENSTOCK_SOURCE_DIR "/scripts/bench/sparse_k3' '" + dir.path() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  const std::uint64_t memory_before = peak_memory_bytes();
  const auto start = std::chrono::steady_clock::now();
  const TensorIndex index =
      TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); });
  std::vector<bool> is_moe(kLayers, true);
  is_moe[0] = false;
  const ExpertStore store(index, {kLayers, kExperts, 3584, 3072}, is_moe);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::uint64_t memory = peak_memory_bytes() - memory_before;
  std::cout << "opened in " << seconds.count() << " s, peak memory "
            << static_cast<double>(memory) / 1e6 << " MB more\n";

  EXPECT_EQ(index.source_count(), 96U);
  EXPECT_EQ(index.file_bytes(), kFileBytes);
  EXPECT_EQ(index.tensors().size() + index.expert_tensors().size(), 497'220U);
  if (!kSanitized) {
    EXPECT_LT(memory, 200'000'000U);
  }
  check_experts(index, store);
  check_parts(store);
  check_spine_tensors(index);
  check_segments(index);
}

}  // namespace
}  // namespace penstock

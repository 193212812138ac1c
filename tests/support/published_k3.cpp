// SPDX-License-Identifier: Apache-2.0
#include "tests/support/published_k3.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/base/buffer.h"

namespace penstock {
namespace {

nlohmann::json read_layout(const char* name) {
  std::ifstream file(std::string(PENSTOCK_GOLDEN "/kimi-k3/") + name);
  return nlohmann::json::parse(file);
}

constexpr std::int32_t kMoeLayers = 92;
constexpr std::int32_t kExperts = 896;

void check_files(const TensorIndex& index) {
  EXPECT_EQ(index.file_bytes(), 1'560'936'091'448U);
  EXPECT_EQ(index.tensors().size() + index.expert_tensors().size(), 497'220U);
  const nlohmann::json shards = read_layout("shard_layout.json").at("shards");
  ASSERT_EQ(index.source_count(), shards.size());
  for (std::uint32_t i = 0; i < index.source_count(); ++i) {
    EXPECT_EQ(index.source(i).name(), shards[i].at("shard").get<std::string>());
    EXPECT_EQ(index.source(i).size(), shards[i].at("file_bytes").get<std::uint64_t>()) << shards[i];
  }
}

void check_experts(const TensorIndex& index, const ExpertStore& store) {
  EXPECT_EQ(store.expert_bytes(), 17'547'264U);
  EXPECT_EQ(store.slot_bytes(), 17'547'264U + kPageBytes);
  const nlohmann::json layout = read_layout("shard_layout.json");
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
  }
  EXPECT_EQ(layers, kMoeLayers);
}

void check_parts(const ExpertStore& store) {
  const nlohmann::json layout = read_layout("shard_layout.json").at("expert_inner_layout");
  const std::vector<std::byte> slot(store.slot_bytes());
  const ExpertView view = store.view(5, 17, slot.data());
  const auto start = reinterpret_cast<const unsigned char*>(slot.data()) +
                     store.extents(5, 17)[0].offset % kPageBytes;
  const unsigned char* parts[] = {view.w1.data,   view.w1.scales, view.w2.data,
                                  view.w2.scales, view.w3.data,   view.w3.scales};
  ASSERT_EQ(layout.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(parts[i] - start, layout[i].at("offset").get<std::ptrdiff_t>()) << layout[i];
  }
}

void check_spine_tensors(const TensorIndex& index) {
  const nlohmann::json layout = read_layout("spine_layout.json");
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

}  // namespace

void expect_published_k3(const TensorIndex& index, const ExpertStore& store) {
  check_files(index);
  check_experts(index, store);
  check_parts(store);
  check_spine_tensors(index);
}

}  // namespace penstock

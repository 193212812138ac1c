// SPDX-License-Identifier: Apache-2.0
//
// The tables of the synthetic checkpoints against the layout of the published ones.
#include "tests/bench/synthetic_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "tests/bench/synthetic_config.h"
#include "tests/bench/synthetic_values.h"

namespace penstock {
namespace {

using Description = std::pair<std::string, std::vector<std::int64_t>>;  // type, shape
using Tensors = std::map<std::string, Description>;

nlohmann::json published(const char* name) {
  std::ifstream file(std::string(PENSTOCK_GOLDEN "/kimi-k3/") + name);
  return nlohmann::json::parse(file);
}

ModelConfig config_of(SyntheticModel model) {
  return parse_model_config(synthetic_config(model, {}), "", "config.json");
}

// The spine of the published K3: layers 0 and 1, layer 3 as number 2, and the ends.
Tensors published_slice() {
  Tensors tensors;
  const nlohmann::json layout = published("spine_layout.json");
  for (const auto& tensor : layout.at("tensors")) {
    std::string name = tensor.at("name");
    const std::string layers = "language_model.model.layers.";
    if (name.starts_with(layers)) {
      const std::size_t dot = name.find('.', layers.size());
      const int layer = std::stoi(name.substr(layers.size(), dot - layers.size()));
      if (layer != 0 && layer != 1 && layer != 3) continue;
      if (layer == 3) name.replace(layers.size(), 1, "2");
    } else if (!name.starts_with("language_model.")) {
      continue;  // vision
    }
    tensors[name] = {tensor.at("dtype"), tensor.at("shape").get<std::vector<std::int64_t>>()};
  }
  return tensors;
}

TEST(SyntheticTensors, SpineOfTheSliceIsThePublishedOne) {
  Tensors spine;
  for (const SyntheticShard& shard : synthetic_shards(config_of(SyntheticModel::k3_slice))) {
    for (const SyntheticTensor& tensor : shard.tensors) {
      if (tensor.type == TensorType::u8) continue;
      spine[tensor.name] = {tensor_type_name(tensor.type), tensor.shape};
    }
  }
  EXPECT_EQ(spine, published_slice());
}

TEST(SyntheticTensors, ExpertsOfTheSliceLieAsPublished) {
  const nlohmann::json layout = published("shard_layout.json");
  const std::vector<SyntheticShard> shards = synthetic_shards(config_of(SyntheticModel::k3_slice));
  ASSERT_EQ(shards.size(), 5U);
  for (const auto& [shard, layer] : {std::pair(1, 1), std::pair(2, 3)}) {
    const auto& expected = layout.at("shards").at(static_cast<std::size_t>(layer));
    ASSERT_EQ(expected.at("layer"), layer);
    const SyntheticShard& found = shards[static_cast<std::size_t>(shard)];
    std::uint64_t offset = found.header.size();
    std::size_t i = 0;
    for (; found.tensors[i].type != TensorType::u8; ++i) offset += found.tensors[i].bytes();
    EXPECT_EQ(offset % kPageBytes,
              expected.at("first_expert_offset").get<std::uint64_t>() % kPageBytes);
    EXPECT_EQ(found.bytes() - offset, 896 * std::uint64_t{17'547'264});
    const std::string first =
        "language_model.model.layers." + std::to_string(shard) + ".block_sparse_moe.experts.0.";
    for (const auto& part : layout.at("expert_inner_layout")) {
      EXPECT_EQ(found.tensors[i].name, first + part.at("part").get<std::string>());
      EXPECT_EQ(found.tensors[i].shape, part.at("shape").get<std::vector<std::int64_t>>());
      ++i;
    }
    // String order of the ids.
    EXPECT_NE(found.tensors[i + 6].name.find(".experts.10."), std::string::npos);
  }
}

TEST(SyntheticTensors, KimiLinearHasThePublishedNumberOfParameters) {
  std::uint64_t parameters = 0;
  std::uint64_t expert_bytes = 0;
  for (const SyntheticShard& shard : synthetic_shards(config_of(SyntheticModel::kimi_linear))) {
    for (const SyntheticTensor& tensor : shard.tensors) {
      if (tensor.type == TensorType::u8) expert_bytes += tensor.bytes();
      if (tensor.name.ends_with("weight_scale")) continue;
      parameters += std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                    tensor.type == TensorType::u8 ? std::uint64_t{2} : 1,
                                    [](std::uint64_t product, std::int64_t dimension) {
                                      return product * static_cast<std::uint64_t>(dimension);
                                    });
    }
  }
  EXPECT_EQ(parameters, 49'122'681'728U);
  EXPECT_EQ(expert_bytes, 26 * 256 * std::uint64_t{3'760'128});
}

TEST(SyntheticValues, BiasesMakeTheAskedPopularity) {
  constexpr std::int32_t kExperts = 16;
  constexpr double kStd = 0.8;
  const std::vector<float> biases = popularity_biases(kExperts, 4, 1.0, kStd);
  // Some threshold is passed by rank i in proportion to 1 / i, unless that is nearly always.
  const auto chosen = [&](std::size_t i, double threshold) {
    const double score = threshold - biases[i];
    if (score <= 0 || score >= 1) return score <= 0 ? 1.0 : 0.0;
    return 0.5 * std::erfc(std::log(score / (1 - score)) / kStd / std::sqrt(2.0));
  };
  double low = -2;
  double high = 2;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (std::size_t i = 0; i < kExperts; ++i) sum += chosen(i, middle);
    (sum > 4 ? low : high) = middle;
  }
  EXPECT_NEAR(chosen(0, low), 0.98, 1e-4);
  for (std::size_t i = 2; i < kExperts; ++i) {
    EXPECT_NEAR(chosen(i, low) / chosen(1, low), 2.0 / static_cast<double>(i + 1), 1e-4) << i;
  }
  EXPECT_EQ(popularity_biases(kExperts, 4, 0, kStd), std::vector<float>(kExperts, 0.0F));
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_tensors.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/model/checkpoint_layout.h"
#include "kernels/formats.h"

namespace penstock {
namespace {

using Tensors = std::vector<LayoutTensor>;

constexpr std::size_t kLengthBytes = 8;
// Where the experts of published K3 shards begin, modulo the page size: layers 1 to 9.
constexpr std::size_t kKdaResidue = 3088;
constexpr std::size_t kMlaResidue = 976;

// Attention of random weights gives every token much the same: at full strength in the hidden state
// it would send all tokens to the same experts.
constexpr std::int32_t kAttentionLog2Gain = -2;

// Power of two nearest to 1 / sqrt(cols): outputs of order one from inputs of order one.
std::int32_t unit_gain(std::int64_t cols) {
  return static_cast<std::int32_t>(std::lround(-0.5 * std::log2(static_cast<double>(cols))));
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Fill fill_of(std::string_view name) {
  if (name.ends_with("weight_packed")) return Fill::nibbles;
  if (name.ends_with("w2.weight_scale")) return Fill::scales_of_down;
  if (name.ends_with("weight_scale")) return Fill::scales_of_up;
  if (name.ends_with("e_score_correction_bias")) return Fill::router_bias;
  if (name.ends_with("A_log")) return Fill::a_log;
  if (name.ends_with("dt_bias")) return Fill::dt_bias;
  if (name.ends_with("conv1d.weight")) return Fill::conv;
  return name.ends_with("norm.weight") ? Fill::norm : Fill::normal;
}

std::int32_t log2_std_of(const LayoutTensor& tensor) {
  if (tensor.name.ends_with("embed_tokens.weight")) return 0;
  const bool attention_out = tensor.name.ends_with("self_attn.o_proj.weight");
  return unit_gain(tensor.shape.back()) + (attention_out ? kAttentionLog2Gain : 0);
}

// The matrix of an expert as K3 has it: codes and scales.
void add_quantized(const LayoutTensor& matrix, Tensors& to) {
  const std::int64_t rows = matrix.shape[0];
  const std::int64_t cols = matrix.shape[1];
  to.push_back({matrix.name + "_packed", TensorType::u8, {rows, cols / 2}});
  to.push_back({matrix.name + "_scale", TensorType::u8, {rows, cols / kMxfp4BlockCols}});
}

// The header with spaces behind it, so that the first expert begins at `residue` modulo the page
// size.
std::string pad_header(std::string json, const Tensors& tensors, std::size_t residue) {
  std::uint64_t before_experts = 0;
  for (const LayoutTensor& tensor : tensors) {
    if (tensor.type != TensorType::u8) before_experts += tensor_bytes(tensor.type, tensor.shape);
  }
  const std::size_t found = (kLengthBytes + json.size() + before_experts) % kPageBytes;
  json.append((residue + kPageBytes - found) % kPageBytes, ' ');
  return json;
}

std::string with_length(const std::string& json) {
  std::string header(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header[i] = static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i));
  }
  return header + json;
}

// `tensors` sorted as published, `json` their header.
SyntheticShard make_shard(std::string file, Tensors tensors, const std::string& json) {
  SyntheticShard shard{std::move(file), {}, with_length(json)};
  for (LayoutTensor& tensor : tensors) {
    const Fill fill = fill_of(tensor.name);
    const std::int32_t log2_std = fill == Fill::normal ? log2_std_of(tensor) : 0;
    shard.tensors.push_back({std::move(tensor), fill, log2_std});
  }
  return shard;
}

// The contents of synthetic_shards().
std::vector<Tensors> regrouped(const ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  std::vector<Tensors> groups(layers + 2);
  const std::string layer_prefix = config.prefix + "model.layers.";
  for (LayoutFile& file : checkpoint_layout(config)) {
    for (LayoutTensor& tensor : file.tensors) {
      Tensors* group = &groups[layers];
      if (tensor.name.ends_with("e_score_correction_bias")) {
        group = &groups[layers + 1];
      } else if (tensor.name.starts_with(layer_prefix)) {
        group = &groups[std::stoul(tensor.name.substr(layer_prefix.size()))];
      } else if (contains(tensor.name, "vision_tower.") || contains(tensor.name, "mm_projector.")) {
        continue;
      }
      if (contains(tensor.name, ".experts.") && tensor.type == TensorType::bf16) {
        add_quantized(tensor, *group);
      } else {
        group->push_back(std::move(tensor));
      }
    }
  }
  return groups;
}

}  // namespace

std::uint64_t SyntheticShard::bytes() const {
  std::uint64_t sum = header.size();
  for (const SyntheticTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

std::vector<SyntheticShard> synthetic_shards(const ModelConfig& config) {
  std::vector<SyntheticShard> shards;
  std::vector<Tensors> groups = regrouped(config);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::array<char, 64> file;
    std::snprintf(file.data(), file.size(), "model-%05zu-of-%06zu.safetensors", i + 1,
                  groups.size());
    sort_as_published(groups[i]);
    std::string json = make_safetensors_header(groups[i]).json;
    if (i < static_cast<std::size_t>(config.layers)) {
      json = pad_header(std::move(json), groups[i], config.is_kda[i] ? kKdaResidue : kMlaResidue);
    }
    shards.push_back(make_shard(file.data(), std::move(groups[i]), json));
  }
  return shards;
}

std::vector<SyntheticShard> published_shards(const ModelConfig& config) {
  std::vector<SyntheticShard> shards;
  for (LayoutFile& file : checkpoint_layout(config)) {
    sort_as_published(file.tensors);
    const std::string json = make_safetensors_header(file.tensors).json;
    shards.push_back(make_shard(std::move(file.name), std::move(file.tensors), json));
  }
  return shards;
}

std::string synthetic_index(const std::vector<SyntheticShard>& shards) {
  nlohmann::ordered_json index;
  std::uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (const SyntheticShard& shard : shards) {
    for (const SyntheticTensor& tensor : shard.tensors) map[tensor.name] = shard.file;
    total += shard.bytes() - shard.header.size();
  }
  index["metadata"]["total_size"] = total;
  index["weight_map"] = std::move(map);
  return index.dump();
}

double router_logit_std(const ModelConfig& config) {
  // Inputs have passed a norm: mean square one, times the norm's own weights.
  return std::sqrt(config.hidden * (1 + kNormStd * kNormStd)) * std::exp2(unit_gain(config.hidden));
}

}  // namespace penstock

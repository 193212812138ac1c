// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "engine/base/buffer.h"
#include "kernels/formats.h"

namespace penstock {
namespace {

constexpr std::size_t kLengthBytes = 8;
// Where the experts of published K3 shards begin, modulo the page size: layers 1 to 9.
constexpr std::size_t kKdaResidue = 3088;
constexpr std::size_t kMlaResidue = 976;

// Attention of random weights gives every token much the same: at full strength in the hidden state
// it would send all tokens to the same experts.
constexpr std::int32_t kAttentionLog2Gain = -2;

using Shape = std::initializer_list<std::int64_t>;

// Power of two nearest to 1 / sqrt(cols): outputs of order one from inputs of order one.
std::int32_t unit_gain(std::int64_t cols) {
  return static_cast<std::int32_t>(std::lround(-0.5 * std::log2(static_cast<double>(cols))));
}

// Appends the tensors of one layer, or of the ends, under a prefix.
class Adder {
 public:
  Adder(const ModelConfig& config, std::vector<SyntheticTensor>* tensors, std::string prefix)
      : config_(config), tensors_(*tensors), prefix_(std::move(prefix)) {}

  const ModelConfig& config() const { return config_; }

  void add(const std::string& name, TensorType type, Shape shape, Fill fill,
           std::int32_t log2_std = 0) {
    tensors_.push_back({prefix_ + name, type, shape, fill, log2_std});
  }
  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
              std::int32_t log2_gain = 0) {
    add(name + ".weight", TensorType::bf16, {rows, cols}, Fill::normal,
        unit_gain(cols) + log2_gain);
  }
  void norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", TensorType::bf16, {width}, Fill::norm);
  }
  // K3 keeps its small KDA tensors and biases in F32, Kimi-Linear most of them in BF16.
  TensorType small_type() const {
    return config_.prefix.empty() ? TensorType::bf16 : TensorType::f32;
  }

 private:
  const ModelConfig& config_;
  std::vector<SyntheticTensor>& tensors_;
  std::string prefix_;
};

void add_kda(Adder& to) {
  const KdaConfig& kda = to.config().kda;
  const std::int32_t hidden = to.config().hidden;
  const std::string attn = "self_attn.";
  for (const char* name : {"q", "k", "v"}) {
    to.matrix(attn + name + "_proj", kda.width(), hidden);
    to.add(attn + name + "_conv1d.weight", to.small_type(), {kda.width(), 1, kda.conv_taps},
           Fill::conv);
  }
  to.matrix(attn + "f_a_proj", kda.head_dim, hidden);
  to.matrix(attn + "f_b_proj", kda.width(), kda.head_dim);
  to.matrix(attn + "b_proj", kda.heads, hidden);
  if (kda.full_rank_gate) {
    to.matrix(attn + "g_proj", kda.width(), hidden);
    to.add(attn + "A_log", TensorType::f32, {std::max(128, kda.heads)}, Fill::a_log);
  } else {
    to.matrix(attn + "g_a_proj", kda.head_dim, hidden);
    to.matrix(attn + "g_b_proj", kda.width(), kda.head_dim);
    to.add(attn + "A_log", TensorType::f32, {1, 1, kda.heads, 1}, Fill::a_log);
  }
  to.add(attn + "dt_bias", TensorType::f32, {kda.width()}, Fill::dt_bias);
  to.add(attn + "o_norm.weight", to.small_type(), {kda.head_dim}, Fill::norm);
  to.matrix(attn + "o_proj", hidden, kda.width(), kAttentionLog2Gain);
}

void add_mla(Adder& to) {
  const MlaConfig& mla = to.config().mla;
  const std::int32_t hidden = to.config().hidden;
  const std::int32_t values = mla.heads * mla.v_head_dim;
  const std::string attn = "self_attn.";
  if (mla.q_lora_rank == 0) {
    to.matrix(attn + "q_proj", mla.heads * mla.q_head_dim(), hidden);
  } else {
    to.matrix(attn + "q_a_proj", mla.q_lora_rank, hidden);
    to.norm(attn + "q_a_layernorm", mla.q_lora_rank);
    to.matrix(attn + "q_b_proj", mla.heads * mla.q_head_dim(), mla.q_lora_rank);
  }
  to.matrix(attn + "kv_a_proj_with_mqa", mla.cache_width(), hidden);
  to.norm(attn + "kv_a_layernorm", mla.kv_lora_rank);
  to.matrix(attn + "kv_b_proj", mla.heads * (mla.qk_nope_head_dim + mla.v_head_dim),
            mla.kv_lora_rank);
  if (mla.output_gate) to.matrix(attn + "g_proj", values, hidden);
  to.matrix(attn + "o_proj", hidden, values, kAttentionLog2Gain);
}

void add_ffn(Adder& to, const std::string& name, std::int32_t width) {
  to.matrix(name + ".gate_proj", width, to.config().hidden);
  to.matrix(name + ".up_proj", width, to.config().hidden);
  to.matrix(name + ".down_proj", to.config().hidden, width);
}

void add_expert(Adder& to, std::int32_t expert) {
  for (const char part : {'1', '2', '3'}) {
    std::int64_t rows = to.config().moe.intermediate;
    std::int64_t cols = to.config().expert_input();
    if (part == '2') std::swap(rows, cols);
    const std::string name =
        "block_sparse_moe.experts." + std::to_string(expert) + ".w" + part + ".weight";
    to.add(name + "_packed", TensorType::u8, {rows, cols / 2}, Fill::nibbles);
    to.add(name + "_scale", TensorType::u8, {rows, cols / kMxfp4BlockCols},
           part == '2' ? Fill::scales_of_down : Fill::scales_of_up);
  }
}

void add_moe(Adder& to) {
  const ModelConfig& config = to.config();
  const MoeConfig& moe = config.moe;
  const std::string block = "block_sparse_moe.";
  to.matrix(block + "gate", moe.experts, config.hidden);
  if (moe.latent > 0) {
    to.matrix(block + "routed_expert_down_proj", moe.latent, config.hidden);
    to.norm(block + "routed_expert_norm", moe.latent);
    to.matrix(block + "routed_expert_up_proj", config.hidden, moe.latent);
  }
  add_ffn(to, block + "shared_experts", moe.shared_intermediate);
  for (std::int32_t expert = 0; expert < moe.experts; ++expert) add_expert(to, expert);
}

// The vectors of an attention residual.
void add_residual(Adder& to, const std::string& name) {
  to.norm(name + "_norm", to.config().hidden);
  to.matrix(name + "_proj", 1, to.config().hidden);
}

std::string layer_prefix(const ModelConfig& config, std::int32_t layer) {
  return config.prefix + "model.layers." + std::to_string(layer) + ".";
}

std::vector<SyntheticTensor> layer_tensors(const ModelConfig& config, std::int32_t layer) {
  std::vector<SyntheticTensor> tensors;
  Adder to(config, &tensors, layer_prefix(config, layer));
  to.norm("input_layernorm", config.hidden);
  to.norm("post_attention_layernorm", config.hidden);
  if (config.attn_res_block > 0) {
    add_residual(to, "self_attention_res");
    add_residual(to, "mlp_res");
  }
  const auto l = static_cast<std::size_t>(layer);
  config.is_kda[l] ? add_kda(to) : add_mla(to);
  config.is_moe[l] ? add_moe(to) : add_ffn(to, "mlp", config.dense_intermediate);
  return tensors;
}

std::vector<SyntheticTensor> end_tensors(const ModelConfig& config) {
  std::vector<SyntheticTensor> tensors;
  Adder to(config, &tensors, config.prefix);
  to.matrix("lm_head", config.vocab, config.hidden);
  to.add("model.embed_tokens.weight", TensorType::bf16, {config.vocab, config.hidden},
         Fill::normal);
  to.norm("model.norm", config.hidden);
  if (config.attn_res_block > 0) add_residual(to, "model.output_attn_res");
  return tensors;
}

std::vector<SyntheticTensor> bias_tensors(const ModelConfig& config) {
  std::vector<SyntheticTensor> tensors;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    if (!config.is_moe[static_cast<std::size_t>(layer)]) continue;
    Adder to(config, &tensors, layer_prefix(config, layer));
    to.add("block_sparse_moe.gate.e_score_correction_bias", to.small_type(), {config.moe.experts},
           Fill::router_bias);
  }
  return tensors;
}

void sort_as_published(std::vector<SyntheticTensor>& tensors) {
  const auto key = [](const SyntheticTensor& tensor) {
    const int rank = tensor.type == TensorType::f32 ? 0 : tensor.type == TensorType::bf16 ? 1 : 2;
    return std::pair(rank, std::string_view(tensor.name));
  };
  std::sort(tensors.begin(), tensors.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

std::string header_json(const std::vector<SyntheticTensor>& tensors) {
  std::string json = "{";
  std::uint64_t begin = 0;
  for (const SyntheticTensor& tensor : tensors) {
    const std::uint64_t end = begin + tensor.bytes();
    if (begin > 0) json += ",";
    json += "\"" + tensor.name + R"(":{"dtype":")" + tensor_type_name(tensor.type) +
            R"(","shape":)" + nlohmann::json(tensor.shape).dump() + R"(,"data_offsets":[)" +
            std::to_string(begin) + "," + std::to_string(end) + "]}";
    begin = end;
  }
  return json + "}";
}

// Header with spaces at the end, so that the first expert begins at `residue` modulo the page size.
std::string header_of(const std::vector<SyntheticTensor>& tensors, std::size_t residue) {
  std::string json = header_json(tensors);
  std::uint64_t before_experts = 0;
  for (const SyntheticTensor& tensor : tensors) {
    if (tensor.type != TensorType::u8) before_experts += tensor.bytes();
  }
  json.append(round_up(json.size(), 8) - json.size(), ' ');
  const std::size_t found = (kLengthBytes + json.size() + before_experts) % kPageBytes;
  json.append((residue + kPageBytes - found) % kPageBytes, ' ');
  std::string header(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header[i] = static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i));
  }
  return header + json;
}

}  // namespace

std::uint64_t SyntheticTensor::bytes() const {
  const std::uint64_t element = type == TensorType::f32 ? 4 : type == TensorType::bf16 ? 2 : 1;
  return std::accumulate(shape.begin(), shape.end(), element,
                         [](std::uint64_t product, std::int64_t dimension) {
                           return product * static_cast<std::uint64_t>(dimension);
                         });
}

std::uint64_t SyntheticShard::bytes() const {
  std::uint64_t sum = header.size();
  for (const SyntheticTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

std::vector<SyntheticShard> synthetic_shards(const ModelConfig& config) {
  std::vector<SyntheticShard> shards;
  const std::int32_t count = config.layers + 2;
  const auto add = [&](std::vector<SyntheticTensor> tensors, std::size_t residue) {
    std::array<char, 64> file;
    std::snprintf(file.data(), file.size(), "model-%05d-of-%06d.safetensors",
                  static_cast<int>(shards.size()) + 1, count);
    sort_as_published(tensors);
    std::string header = header_of(tensors, residue);
    shards.push_back({file.data(), std::move(tensors), std::move(header)});
  };
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const bool is_kda = config.is_kda[static_cast<std::size_t>(layer)];
    add(layer_tensors(config, layer), is_kda ? kKdaResidue : kMlaResidue);
  }
  add(end_tensors(config), 0);
  add(bias_tensors(config), 0);
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

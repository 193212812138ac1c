// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint_layout.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "kernels/formats.h"

namespace penstock {
namespace {

using Tensors = std::vector<LayoutTensor>;
using Shape = std::vector<std::int64_t>;

constexpr std::uint64_t kLinearFileBytes = 5'000'000'000;

bool is_k3(const ModelConfig& config) {
  return config.architecture == "kimi-k3";
}

// K3 keeps its small KDA tensors and the routers' biases in F32, Kimi-Linear in BF16.
TensorType small_type(const ModelConfig& config) {
  return is_k3(config) ? TensorType::f32 : TensorType::bf16;
}

// Appends tensors whose names begin alike.
class Adder {
 public:
  Adder(Tensors* tensors, std::string prefix) : tensors_(*tensors), prefix_(std::move(prefix)) {}

  void add(const std::string& name, TensorType type, Shape shape) {
    tensors_.push_back({prefix_ + name, type, std::move(shape)});
  }
  void weight(const std::string& name, Shape shape) {
    add(name + ".weight", TensorType::bf16, std::move(shape));
  }
  void ffn(const std::string& name, std::int64_t width, std::int64_t hidden) {
    weight(name + ".gate_proj", {width, hidden});
    weight(name + ".up_proj", {width, hidden});
    weight(name + ".down_proj", {hidden, width});
  }
  // An attention residual's.
  void residual(const std::string& name, std::int64_t hidden) {
    weight(name + "_norm", {hidden});
    weight(name + "_proj", {1, hidden});
  }

 private:
  Tensors& tensors_;
  std::string prefix_;
};

void add_kda(const ModelConfig& config, Adder& to) {
  const KdaConfig& kda = config.kda;
  for (const std::string name : {"q", "k", "v"}) {
    to.weight(name + "_proj", {kda.width(), config.hidden});
    to.add(name + "_conv1d.weight", small_type(config), {kda.width(), 1, kda.conv_taps});
  }
  to.weight("b_proj", {kda.heads, config.hidden});
  to.weight("f_a_proj", {kda.head_dim, config.hidden});
  to.weight("f_b_proj", {kda.width(), kda.head_dim});
  if (kda.full_rank_gate) {
    to.weight("g_proj", {kda.width(), config.hidden});
  } else {
    to.weight("g_a_proj", {kda.head_dim, config.hidden});
    to.weight("g_b_proj", {kda.width(), kda.head_dim});
  }
  // One number per head; K3's has zeros behind them.
  to.add("A_log", TensorType::f32, is_k3(config) ? Shape{kda.head_dim} : Shape{1, 1, kda.heads, 1});
  to.add("dt_bias", TensorType::f32, {kda.width()});
  to.add("o_norm.weight", small_type(config), {kda.head_dim});
  to.weight("o_proj", {config.hidden, kda.width()});
}

void add_mla(const ModelConfig& config, Adder& to) {
  const MlaConfig& mla = config.mla;
  const std::int64_t values = std::int64_t{mla.heads} * mla.v_head_dim;
  const std::int64_t queries = std::int64_t{mla.heads} * mla.q_head_dim();
  if (mla.q_lora_rank == 0) {
    to.weight("q_proj", {queries, config.hidden});
  } else {
    to.weight("q_a_proj", {mla.q_lora_rank, config.hidden});
    to.weight("q_a_layernorm", {mla.q_lora_rank});
    to.weight("q_b_proj", {queries, mla.q_lora_rank});
  }
  to.weight("kv_a_proj_with_mqa", {mla.cache_width(), config.hidden});
  to.weight("kv_a_layernorm", {mla.kv_lora_rank});
  to.weight("kv_b_proj",
            {std::int64_t{mla.heads} * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank});
  if (mla.output_gate) to.weight("g_proj", {values, config.hidden});
  to.weight("o_proj", {config.hidden, values});
}

void add_expert(const ModelConfig& config, std::int32_t expert, Adder& to) {
  const std::int64_t narrow = config.moe.intermediate;
  const std::int64_t wide = config.expert_input();
  for (const char part : {'1', '2', '3'}) {
    const std::int64_t rows = part == '2' ? wide : narrow;
    const std::int64_t cols = part == '2' ? narrow : wide;
    const std::string name = "experts." + std::to_string(expert) + ".w" + part;
    if (is_k3(config)) {
      to.add(name + ".weight_packed", TensorType::u8, {rows, cols / 2});
      to.add(name + ".weight_scale", TensorType::u8, {rows, cols / kMxfp4BlockCols});
    } else {
      to.weight(name, {rows, cols});
    }
  }
}

void add_moe(const ModelConfig& config, Adder& to) {
  const MoeConfig& moe = config.moe;
  for (std::int32_t expert = 0; expert < moe.experts; ++expert) add_expert(config, expert, to);
  to.weight("gate", {moe.experts, config.hidden});
  to.add("gate.e_score_correction_bias", small_type(config), {moe.experts});
  if (moe.latent > 0) {
    to.weight("routed_expert_down_proj", {moe.latent, config.hidden});
    to.weight("routed_expert_up_proj", {config.hidden, moe.latent});
  }
  if (moe.latent_norm) to.weight("routed_expert_norm", {moe.latent});
  if (moe.shared_intermediate > 0) {
    to.ffn("shared_experts", moe.shared_intermediate, config.hidden);
  }
}

// In the order of the modules: attention, FFN, norms.
void add_layer(const ModelConfig& config, std::int32_t layer, Tensors* tensors) {
  const auto l = static_cast<std::size_t>(layer);
  const std::string prefix = config.prefix + "model.layers." + std::to_string(layer) + ".";
  Adder attention(tensors, prefix + "self_attn.");
  config.is_kda[l] ? add_kda(config, attention) : add_mla(config, attention);
  Adder experts(tensors, prefix + "block_sparse_moe.");
  Adder rest(tensors, prefix);
  if (config.is_moe[l]) {
    add_moe(config, experts);
  } else {
    rest.ffn("mlp", config.dense_intermediate, config.hidden);
  }
  rest.weight("input_layernorm", {config.hidden});
  rest.weight("post_attention_layernorm", {config.hidden});
  if (config.attn_res_block > 0) {
    rest.residual("self_attention_res", config.hidden);
    rest.residual("mlp_res", config.hidden);
  }
}

void add_embedding(const ModelConfig& config, Tensors* tensors) {
  Adder(tensors, config.prefix).weight("model.embed_tokens", {config.vocab, config.hidden});
}

void add_head(const ModelConfig& config, Tensors* tensors) {
  Adder to(tensors, config.prefix);
  to.weight("model.norm", {config.hidden});
  if (config.attn_res_block > 0) to.residual("model.output_attn_res", config.hidden);
  to.weight("lm_head", {config.vocab, config.hidden});
}

Tensors projector_tensors(const ModelConfig& config) {
  Tensors tensors;
  Adder to(&tensors, "mm_projector.");
  const std::int64_t merged = std::int64_t{config.vision->hidden} * config.vision->merged_patches;
  to.weight("proj.0", {merged, merged});
  to.weight("proj.2", {config.hidden, merged});
  to.weight("post_norm", {config.hidden});
  return tensors;
}

Tensors tower_tensors(const VisionConfig& vision) {
  Tensors tensors;
  Adder to(&tensors, "vision_tower.");
  constexpr std::int64_t kColours = 3;
  to.weight("patch_embed.proj", {vision.hidden, kColours, vision.patch, vision.patch});
  to.weight("patch_embed.pos_emb", {vision.grid_height, vision.grid_width, vision.hidden});
  for (std::int32_t block = 0; block < vision.layers; ++block) {
    const std::string name = "encoder.blocks." + std::to_string(block) + ".";
    to.weight(name + "norm0", {vision.hidden});
    to.weight(name + "norm1", {vision.hidden});
    to.weight(name + "wqkv", {std::int64_t{3} * vision.attention_width, vision.hidden});
    to.weight(name + "wo", {vision.hidden, vision.attention_width});
    to.weight(name + "mlp.fc0", {vision.intermediate, vision.hidden});
    to.weight(name + "mlp.fc1", {vision.hidden, vision.intermediate});
  }
  to.weight("encoder.final_layernorm", {vision.hidden});
  return tensors;
}

// Names the files; the release writes their count with `count_digits` digits.
std::vector<LayoutFile> name_files(std::vector<Tensors> contents, int count_digits) {
  std::vector<LayoutFile> files;
  for (Tensors& tensors : contents) {
    std::array<char, 64> name;
    std::snprintf(name.data(), name.size(), "model-%05d-of-%0*d.safetensors",
                  static_cast<int>(files.size()) + 1, count_digits,
                  static_cast<int>(contents.size()));
    files.push_back({name.data(), std::move(tensors)});
  }
  return files;
}

std::vector<LayoutFile> k3_files(const ModelConfig& config) {
  std::vector<Tensors> contents(static_cast<std::size_t>(config.layers) + 1);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    add_layer(config, layer, &contents[static_cast<std::size_t>(layer)]);
  }
  add_embedding(config, &contents.back());
  add_head(config, &contents.back());
  if (config.vision) {
    contents.push_back(projector_tensors(config));
    contents.push_back(tower_tensors(*config.vision));
  }
  return name_files(std::move(contents), 6);
}

std::vector<LayoutFile> linear_files(const ModelConfig& config) {
  Tensors tensors;
  add_embedding(config, &tensors);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) add_layer(config, layer, &tensors);
  add_head(config, &tensors);
  std::vector<Tensors> contents(1);
  std::uint64_t filled = 0;
  for (LayoutTensor& tensor : tensors) {
    const std::uint64_t bytes = tensor_bytes(tensor.type, tensor.shape);
    if (filled > 0 && filled + bytes > kLinearFileBytes) {
      contents.emplace_back();
      filled = 0;
    }
    contents.back().push_back(std::move(tensor));
    filled += bytes;
  }
  return name_files(std::move(contents), 5);
}

}  // namespace

std::vector<LayoutFile> checkpoint_layout(const ModelConfig& config) {
  return is_k3(config) ? k3_files(config) : linear_files(config);
}

}  // namespace penstock

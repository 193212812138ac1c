// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kimi_weights.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/weights/tensor_reader.h"

namespace penstock {
namespace {

// A matrix of a layer: where its view goes, its name behind the layer's, its shape.
using Visit =
    std::function<void(WeightMatrix* view, const char* name, std::int32_t rows, std::int32_t cols)>;

void visit_kda(const ModelConfig& config, KdaMatrices* m, const Visit& visit) {
  const KdaConfig& kda = config.kda;
  visit(&m->q_proj, "self_attn.q_proj", kda.width(), config.hidden);
  visit(&m->k_proj, "self_attn.k_proj", kda.width(), config.hidden);
  visit(&m->v_proj, "self_attn.v_proj", kda.width(), config.hidden);
  visit(&m->b_proj, "self_attn.b_proj", kda.heads, config.hidden);
  visit(&m->f_a_proj, "self_attn.f_a_proj", kda.head_dim, config.hidden);
  visit(&m->f_b_proj, "self_attn.f_b_proj", kda.width(), kda.head_dim);
  if (kda.full_rank_gate) {
    visit(&m->g_proj, "self_attn.g_proj", kda.width(), config.hidden);
  } else {
    visit(&m->g_a_proj, "self_attn.g_a_proj", kda.head_dim, config.hidden);
    visit(&m->g_b_proj, "self_attn.g_b_proj", kda.width(), kda.head_dim);
  }
}

void visit_mla(const ModelConfig& config, MlaMatrices* m, const Visit& visit) {
  const MlaConfig& mla = config.mla;
  const std::int32_t q_rows = mla.heads * mla.q_head_dim();
  visit(&m->kv_a_proj, "self_attn.kv_a_proj_with_mqa", mla.cache_width(), config.hidden);
  if (mla.q_lora_rank == 0) {
    visit(&m->q_proj, "self_attn.q_proj", q_rows, config.hidden);
  } else {
    visit(&m->q_a_proj, "self_attn.q_a_proj", mla.q_lora_rank, config.hidden);
    visit(&m->q_b_proj, "self_attn.q_b_proj", q_rows, mla.q_lora_rank);
  }
  visit(&m->kv_b_proj, "self_attn.kv_b_proj", mla.heads * (mla.qk_nope_head_dim + mla.v_head_dim),
        mla.kv_lora_rank);
  if (mla.output_gate) {
    visit(&m->g_proj, "self_attn.g_proj", mla.width(), config.hidden);
  }
}

// Attention's output projection has a unit of its own: it is read while the heads are computed.
void visit_output(const ModelConfig& config, std::int32_t width, const Visit& visit) {
  visit(nullptr, "self_attn.o_proj", config.hidden, width);
}

void visit_moe(const ModelConfig& config, MoeMatrices* m, const Visit& visit) {
  const MoeConfig& moe = config.moe;
  visit(&m->gate, "block_sparse_moe.gate", moe.experts, config.hidden);
  if (moe.latent > 0) {
    visit(&m->latent_down, "block_sparse_moe.routed_expert_down_proj", moe.latent, config.hidden);
  }
  if (moe.shared_intermediate > 0) {
    const std::int32_t width = moe.shared_intermediate;
    visit(&m->shared.gate, "block_sparse_moe.shared_experts.gate_proj", width, config.hidden);
    visit(&m->shared.up, "block_sparse_moe.shared_experts.up_proj", width, config.hidden);
    visit(&m->shared.down, "block_sparse_moe.shared_experts.down_proj", config.hidden, width);
  }
  if (moe.latent > 0) {
    visit(&m->latent_up, "block_sparse_moe.routed_expert_up_proj", config.hidden, moe.latent);
  }
}

// The part of a dense feed-forward block that makes its hidden values; down has a unit of its own.
void visit_gate_up(const ModelConfig& config, FfnMatrices* m, const Visit& visit) {
  visit(&m->gate, "mlp.gate_proj", config.dense_intermediate, config.hidden);
  visit(&m->up, "mlp.up_proj", config.dense_intermediate, config.hidden);
}

void visit_down(const ModelConfig& config, FfnMatrices* m, const Visit& visit) {
  visit(&m->down, "mlp.down_proj", config.hidden, config.dense_intermediate);
}

// Gives each visited view the lease's next matrix.
Visit take_from(const SpineLease& lease) {
  return [&lease, i = std::size_t{0}](WeightMatrix* view, const char*, std::int32_t,
                                      std::int32_t) mutable { *view = lease.matrix(i++); };
}

std::string layer_name(const ModelConfig& config, std::int32_t layer) {
  return config.prefix + "model.layers." + std::to_string(layer) + ".";
}

// a * b, element by element: norm_w * proj_w of an attention residual, formed in fp32 first.
std::vector<float> product(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

// The taps of q, k and v [width][1][taps] as [taps][3][width].
std::vector<float> read_conv(const TensorIndex& index, const ModelConfig& config,
                             const std::string& layer) {
  const auto width = static_cast<std::size_t>(config.kda.width());
  const auto taps = static_cast<std::size_t>(config.kda.conv_taps);
  std::vector<float> conv(taps * 3 * width);
  const char* const names[3] = {"q_conv1d", "k_conv1d", "v_conv1d"};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto w = read_vector(index, layer + "self_attn." + names[i] + ".weight",
                               static_cast<std::int64_t>(width * taps));
    for (std::size_t c = 0; c < width; ++c) {
      for (std::size_t j = 0; j < taps; ++j) conv[(j * 3 + i) * width + c] = w[c * taps + j];
    }
  }
  return conv;
}

// exp(A_log) per head. K3 pads A_log with zeros behind the heads; Kimi-Linear does not.
std::vector<float> read_decay_scale(const TensorIndex& index, const ModelConfig& config,
                                    const std::string& layer, const Kernels& kernels) {
  const std::string name = layer + "self_attn.A_log";
  std::int64_t count = 1;
  for (const std::int64_t n : index.get(name).shape) count *= n;
  const auto heads = static_cast<std::size_t>(config.kda.heads);
  if (count < config.kda.heads) count = config.kda.heads;  // read_vector says what is wrong
  std::vector<float> a_log = read_vector(index, name, count);
  a_log.resize(heads);
  kernels.exp(a_log.data(), a_log.data(), heads);
  return a_log;
}

KdaVectors read_kda(const TensorIndex& index, const ModelConfig& config, const std::string& layer,
                    const Kernels& kernels) {
  const std::string attn = layer + "self_attn.";
  return {.conv = read_conv(index, config, layer),
          .decay_scale = read_decay_scale(index, config, layer, kernels),
          .dt_bias = read_vector(index, attn + "dt_bias", config.kda.width()),
          .o_norm = read_vector(index, attn + "o_norm.weight", config.kda.head_dim)};
}

MlaVectors read_mla(const TensorIndex& index, const ModelConfig& config, const std::string& layer) {
  const std::string attn = layer + "self_attn.";
  MlaVectors mla;
  if (config.mla.q_lora_rank > 0) {
    mla.q_a_layernorm = read_vector(index, attn + "q_a_layernorm.weight", config.mla.q_lora_rank);
  }
  mla.kv_a_layernorm = read_vector(index, attn + "kv_a_layernorm.weight", config.mla.kv_lora_rank);
  return mla;
}

MoeVectors read_moe(const TensorIndex& index, const ModelConfig& config, const std::string& layer) {
  const std::string moe = layer + "block_sparse_moe.";
  MoeVectors vectors;
  vectors.correction_bias =
      read_vector(index, moe + "gate.e_score_correction_bias", config.moe.experts);
  if (config.moe.latent_norm) {
    vectors.routed_expert_norm =
        read_vector(index, moe + "routed_expert_norm.weight", config.moe.latent);
  }
  return vectors;
}

std::vector<float> read_residual(const TensorIndex& index, const ModelConfig& config,
                                 const std::string& name) {
  return product(read_vector(index, name + "_norm.weight", config.hidden),
                 read_vector(index, name + "_proj.weight", config.hidden));
}

}  // namespace

KimiSpine spine_units(const TensorIndex& index, const ModelConfig& config) {
  KimiSpine spine;
  std::uint64_t largest = 0;  // unit of a layer, as published
  const auto add_unit = [&](std::int32_t layer, const char* part, const auto& visit_part) {
    SpineUnit unit{"layer " + std::to_string(layer) + " " + part, {}};
    std::uint64_t bytes = 0;
    visit_part([&](WeightMatrix*, const char* name, std::int32_t rows, std::int32_t cols) {
      const std::string tensor = layer_name(config, layer) + name + ".weight";
      unit.matrices.push_back({tensor, rows, cols, 0, rows});
      bytes += index.get(tensor).bytes;
    });
    largest = std::max(largest, bytes);
    spine.units.push_back(std::move(unit));
    return static_cast<std::int32_t>(spine.units.size() - 1);
  };
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    KdaMatrices kda;
    MlaMatrices mla;
    MoeMatrices moe;
    FfnMatrices dense;
    spine.attention.push_back(add_unit(layer, "attention", [&](const Visit& visit) {
      if (config.is_kda[l]) {
        visit_kda(config, &kda, visit);
      } else {
        visit_mla(config, &mla, visit);
      }
    }));
    add_unit(layer, "attention output", [&](const Visit& visit) {
      visit_output(config, config.is_kda[l] ? config.kda.width() : config.mla.width(), visit);
    });
    if (config.is_moe[l]) {
      spine.ffn.push_back(add_unit(layer, "router and shared experts",
                                   [&](const Visit& visit) { visit_moe(config, &moe, visit); }));
    } else {
      spine.ffn.push_back(add_unit(
          layer, "gate and up", [&](const Visit& visit) { visit_gate_up(config, &dense, visit); }));
      add_unit(layer, "down", [&](const Visit& visit) { visit_down(config, &dense, visit); });
    }
  }
  spine.head = static_cast<std::int32_t>(spine.units.size());
  // The head is cut into pieces that fit the windows of the layers.
  for (SpineMatrix& piece : cut_by_rows(index, config.prefix + "lm_head.weight", config.vocab,
                                        config.hidden, std::min(largest, kMaxSegmentBytes))) {
    const std::string name = "lm_head from row " + std::to_string(piece.row_begin);
    spine.units.push_back({name, {std::move(piece)}});
  }
  return spine;
}

KdaMatrices kda_matrices(const ModelConfig& config, const SpineLease& lease) {
  KdaMatrices matrices;
  visit_kda(config, &matrices, take_from(lease));
  return matrices;
}

MlaMatrices mla_matrices(const ModelConfig& config, const SpineLease& lease) {
  MlaMatrices matrices;
  visit_mla(config, &matrices, take_from(lease));
  return matrices;
}

MoeMatrices moe_matrices(const ModelConfig& config, const SpineLease& lease) {
  MoeMatrices matrices;
  visit_moe(config, &matrices, take_from(lease));
  return matrices;
}

FfnMatrices dense_matrices(const SpineLease& gate_up, const SpineLease& down) {
  return {gate_up.matrix(0), gate_up.matrix(1), down.matrix(0)};
}

std::vector<LayerVectors> read_layer_vectors(const TensorIndex& index, const ModelConfig& config,
                                             const Kernels& kernels, const StopFlag* stop) {
  std::vector<LayerVectors> layers(static_cast<std::size_t>(config.layers));
  for (std::int32_t l = 0; l < config.layers; ++l) {
    if (stop != nullptr && stop->stop_requested()) {
      throw Error(ErrorCode::cancelled, "stopped while loading the model");
    }
    const std::string name = layer_name(config, l);
    LayerVectors& layer = layers[static_cast<std::size_t>(l)];
    layer.input_layernorm = read_vector(index, name + "input_layernorm.weight", config.hidden);
    layer.post_attention_layernorm =
        read_vector(index, name + "post_attention_layernorm.weight", config.hidden);
    if (config.attn_res_block > 0) {
      layer.self_attention_res = read_residual(index, config, name + "self_attention_res");
      layer.mlp_res = read_residual(index, config, name + "mlp_res");
    }
    if (config.is_kda[static_cast<std::size_t>(l)]) {
      layer.kda = read_kda(index, config, name, kernels);
    } else {
      layer.mla = read_mla(index, config, name);
    }
    if (config.is_moe[static_cast<std::size_t>(l)]) layer.moe = read_moe(index, config, name);
  }
  return layers;
}

HeadVectors read_head_vectors(const TensorIndex& index, const ModelConfig& config) {
  HeadVectors head;
  head.norm = read_vector(index, config.prefix + "model.norm.weight", config.hidden);
  if (config.attn_res_block > 0) {
    head.output_attn_res = read_residual(index, config, config.prefix + "model.output_attn_res");
  }
  return head;
}

std::uint64_t vector_bytes(const ModelConfig& config) {
  const auto hidden = static_cast<std::uint64_t>(config.hidden);
  const auto width = static_cast<std::uint64_t>(config.kda.width());
  const auto taps = static_cast<std::uint64_t>(config.kda.conv_taps);
  const std::uint64_t per_layer = 4 * hidden;
  const std::uint64_t per_kda =
      3 * taps * width + width + static_cast<std::uint64_t>(config.kda.heads);
  const std::uint64_t per_moe = static_cast<std::uint64_t>(config.moe.experts) +
                                static_cast<std::uint64_t>(config.moe.latent);
  const std::uint64_t floats = static_cast<std::uint64_t>(config.layers) * per_layer +
                               static_cast<std::uint64_t>(config.kda_layers()) * per_kda +
                               static_cast<std::uint64_t>(config.moe_layers()) * per_moe +
                               2 * hidden;
  return floats * sizeof(float);
}

ExpertShape expert_shape(const ModelConfig& config) {
  return {config.layers, config.moe.experts, config.expert_input(), config.moe.intermediate};
}

}  // namespace penstock

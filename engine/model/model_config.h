// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's config.json as checked numbers (spec: model.md section 1). Which features a model
// has follows from which fields are present, so one engine serves Kimi K3 and Kimi-Linear. Plain
// data, immutable once parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace penstock {

// Kimi Delta Attention.
struct KdaConfig {
  std::int32_t heads;
  std::int32_t head_dim;   // of keys and values; also the width of the low-rank gates
  std::int32_t conv_taps;  // of the short convolution
  bool full_rank_gate;     // g_proj, else g_a_proj and g_b_proj
  std::optional<float> gate_lower_bound;  // decay by lower_bound * sigmoid, else by -softplus

  std::int32_t width() const { return heads * head_dim; }
};

// Multi-head latent attention.
struct MlaConfig {
  std::int32_t heads;
  std::int32_t q_lora_rank;  // 0: a single q_proj
  std::int32_t kv_lora_rank;
  std::int32_t qk_nope_head_dim;
  std::int32_t qk_rope_head_dim;
  std::int32_t v_head_dim;
  bool output_gate;

  std::int32_t cache_width() const { return kv_lora_rank + qk_rope_head_dim; }
  std::int32_t q_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  std::int32_t width() const { return heads * v_head_dim; }
};

struct MoeConfig {
  std::int32_t experts;
  std::int32_t top_k;
  std::int32_t intermediate;         // of one routed expert
  std::int32_t shared_intermediate;  // of the shared expert; 0: there is none
  std::int32_t latent;               // routed_expert_hidden_size; 0: experts see the hidden state
  bool latent_norm;
  bool renormalize;
  float routed_scaling;
};

// The tower that sees images, and what its projector merges. Not used yet.
struct VisionConfig {
  std::int32_t layers;
  std::int32_t hidden;
  std::int32_t intermediate;
  std::int32_t attention_width;
  std::int32_t patch;        // pixels of a side
  std::int32_t grid_height;  // of the position embedding, in patches
  std::int32_t grid_width;
  std::int32_t merged_patches;  // that become one token
};

enum class Activation : std::uint8_t { silu, situ };

struct ModelConfig {
  std::string architecture;  // "kimi-k3", "kimi-linear"
  std::string prefix;        // of the text tensors' names: "language_model." or ""
  std::int32_t layers;
  std::int32_t hidden;
  std::int32_t vocab;
  std::int32_t dense_intermediate;
  std::int64_t max_context;
  float rms_norm_eps;
  Activation activation;
  float situ_beta;              // 1 when the config says null or 0
  float situ_linear_beta;       // 0: up is left as it is
  std::int32_t attn_res_block;  // layers per block of the attention residuals; 0: plain residuals
  KdaConfig kda;
  MlaConfig mla;
  MoeConfig moe;
  std::optional<VisionConfig> vision;  // empty: text only
  std::vector<bool> is_kda;            // [layers]; the others are MLA
  std::vector<bool> is_moe;            // [layers]; the others have a dense FFN
  std::vector<Token> stop_ids;

  std::int32_t kda_layers() const;
  std::int32_t mla_layers() const { return layers - kda_layers(); }
  std::int32_t moe_layers() const;
  std::size_t attention_index(std::int32_t layer) const;  // among the layers of its kind
  std::int32_t expert_input() const { return moe.latent > 0 ? moe.latent : hidden; }
  // Blocks of the attention residuals that exist when layer `layer` mixes for its FFN.
  std::int32_t attn_res_blocks() const {
    return attn_res_block == 0 ? 0 : (layers + attn_res_block - 1) / attn_res_block;
  }
};

// Epsilon of q_a_layernorm and kv_a_layernorm: the official modules are built without an argument
// and take their class's default, not rms_norm_eps (spec: model.md section 2).
inline constexpr float kMlaNormEps = 1e-6F;
inline constexpr float kKdaL2NormEps = 1e-6F;  // inside the root, as in fla

// Parses config.json; `generation_config` is that file's text, or empty when there is none. `what`
// opens the messages. Throws Error(model) naming the field: missing, of the wrong type, out of
// bounds, not supported.
ModelConfig parse_model_config(std::string_view config, std::string_view generation_config,
                               const std::string& what);

// Reads config.json and generation_config.json of a model folder.
ModelConfig read_model_config(const std::string& model_dir);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The weights of one layer, as a layer's functions see them: matrices by lease, vectors in fp32.
// Tensor names: spec, checkpoint.md section 2.5. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/formats.h"

namespace penstock {

struct KdaVectors {
  std::vector<float> conv;  // [conv_taps][3][width]: q, k, v taps; the last is the current token's
  std::vector<float> decay_scale;  // [heads]: exp(A_log)
  std::vector<float> dt_bias;      // [width]
  std::vector<float> o_norm;       // [head_dim]
};

struct KdaMatrices {
  WeightMatrix q_proj, k_proj, v_proj;  // [width][hidden]
  WeightMatrix f_a_proj;                // [head_dim][hidden]
  WeightMatrix f_b_proj;                // [width][head_dim]
  WeightMatrix b_proj;                  // [heads][hidden]
  WeightMatrix g_proj;                  // [width][hidden] with full_rank_gate, else
  WeightMatrix g_a_proj, g_b_proj;      // [head_dim][hidden], [width][head_dim]
};

struct MlaVectors {
  std::vector<float> q_a_layernorm;   // [q_lora_rank]
  std::vector<float> kv_a_layernorm;  // [kv_lora_rank]
};

struct MlaMatrices {
  WeightMatrix q_proj;              // [heads * q_head_dim][hidden] without q_lora_rank, else
  WeightMatrix q_a_proj, q_b_proj;  // [q_lora_rank][hidden], [heads * q_head_dim][q_lora_rank]
  WeightMatrix kv_a_proj;           // kv_a_proj_with_mqa [kv_lora_rank + rope][hidden]
  WeightMatrix kv_b_proj;           // [heads * (nope + v)][kv_lora_rank]
  WeightMatrix g_proj;              // [heads * v_head_dim][hidden] with output_gate
};

// A gated FFN: down(act(gate x, up x)).
struct FfnMatrices {
  WeightMatrix gate, up, down;
};

struct MoeVectors {
  std::vector<float> correction_bias;     // [experts]
  std::vector<float> routed_expert_norm;  // [latent] with latent_norm
};

struct MoeMatrices {
  WeightMatrix gate;                    // [experts][hidden], the router
  WeightMatrix latent_down, latent_up;  // routed_expert_{down,up}_proj
  FfnMatrices shared;
};

struct LayerVectors {
  std::vector<float> input_layernorm;           // [hidden]
  std::vector<float> post_attention_layernorm;  // [hidden]
  std::vector<float> self_attention_res;        // [hidden]: norm * proj of the attention residual
  std::vector<float> mlp_res;                   // [hidden]
  KdaVectors kda;
  MlaVectors mla;
  MoeVectors moe;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Kimi Delta Attention (spec: model.md section 7): short convolution, gated delta rule, gated norm.
// Plain functions over (weights, state, ops); parallel over heads.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/layer_weights.h"
#include "engine/model/model_config.h"
#include "engine/model/ops.h"

namespace penstock {

// Consecutive tokens of one sequence within a tile, and the layer's state before and after them.
struct KdaSegment {
  std::int32_t begin;           // row of the tile
  std::int32_t tokens;          // at least one
  const float* recurrent_from;  // [heads][head_dim][head_dim]; may be recurrent_to
  const float* conv_from;       // [conv_taps - 1][3][width]; may be conv_to
  float* recurrent_to;
  float* conv_to;
};

// Work arrays of a tile; the first five are filled by project_kda.
struct KdaTile {
  float* qkv;    // [tokens][3][width]: raw projections, then normalised q, k, and v
  float* decay;  // [tokens][width]: f_b(f_a x), then exp(g)
  float* gate;   // [tokens][width]
  float* beta;   // [tokens][heads]: logits, then sigmoid
  float* out;    // [tokens][width]: heads' outputs, then normed and gated
};

// Takes the arrays of a tile from the scratch.
KdaTile take_kda_tile(const Ops& ops, const KdaConfig& config, std::int32_t tokens);
// Floats that a tile's arrays and its projections take per token.
std::size_t kda_tile_floats(const KdaConfig& config, std::int32_t hidden);

// The formulas of one head of one token, in place.
// u = u / sqrt(sum(u^2) + kKdaL2NormEps) * scale (step 3).
void l2_normalise(const Kernels& kernels, float* u, std::size_t n, float scale);
// f = exp(g), g the log decay of f_b(f_a x) = f (step 4); decay_scale = exp(A_log) of the head.
void decay_gate(const Kernels& kernels, const std::optional<float>& lower_bound, float decay_scale,
                const float* dt_bias, float* f, std::size_t n);
// o = o / sqrt(mean(o^2) + eps) * w * sigmoid(gate) (step 7).
void gated_rms_norm(const Kernels& kernels, const float* gate, const float* w, std::int32_t n,
                    float eps, float* o);

// Step 1 and the matrix parts of 4, 5 and 7, for all tokens of x [tokens][hidden].
void project_kda(const Ops& ops, const KdaConfig& config, const KdaMatrices& w, Rows* x,
                 const KdaTile& tile);

// Steps 2 to 7 without o_proj for one segment: advances its state and fills tile.out.
void advance_kda(const Ops& ops, const KdaConfig& config, const KdaVectors& w, float norm_eps,
                 const KdaSegment& segment, const KdaTile& tile);

}  // namespace penstock

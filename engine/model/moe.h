// SPDX-License-Identifier: Apache-2.0
//
// Gated FFNs and the mixture of experts (spec: model.md sections 9 and 10). Tokens are grouped by
// expert: each expert that any token wants is leased once. Plain functions over (weights, cache,
// ops).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/layer_weights.h"
#include "engine/model/model_config.h"
#include "engine/model/ops.h"
#include "engine/weights/expert_cache.h"

namespace penstock {

// The experts of every token of a sweep, in one layer.
struct Routing {
  std::vector<std::int32_t> experts;  // [tokens][top_k]
  std::vector<float> weights;         // [tokens][top_k]
};

// Steps 1 to 3 for one token: the top_k experts of sigmoid(logits) + bias (the lower id wins a tie)
// and their weights. `scores` holds the logits [experts] and is overwritten.
void route_token(const Kernels& kernels, const MoeConfig& config, const float* bias, float* scores,
                 std::int32_t* experts, float* weights);

// y [tokens][hidden] = down(act(gate x, up x)).
void ffn(const Ops& ops, const ModelConfig& config, const FfnMatrices& w, Rows* x, float* y);

// Routes tokens [begin, begin + x->tokens) of a sweep.
void route(const Ops& ops, const ModelConfig& config, const MoeMatrices& w,
           const MoeVectors& vectors, Rows* x, std::int32_t begin, Routing* routing);

// The distinct experts of a layer in file order, each with its tokens.
struct ExpertGroups {
  struct Use {
    std::int32_t token;
    float weight;
  };
  std::vector<std::int32_t> experts;
  std::vector<std::vector<Use>> uses;  // ascending tokens
};
ExpertGroups group_by_expert(const Routing& routing, std::int32_t top_k,
                             const std::vector<std::int32_t>& rank);

// Where time goes, summed up.
struct ExpertTimes {
  double* wait_s;
  double* compute_s;
};

// y[t] += weight * expert(z[t]) for the experts of `groups`, summed in their order; the batch of
// the cache has been begun with groups.experts. z and y are [tokens][expert_input]. The experts of
// a single token are computed as they come, those of more tokens in their order.
void apply_experts(const Ops& ops, const ModelConfig& config, ExpertCache& cache,
                   const ExpertGroups& groups, std::int32_t tokens, const float* z, float* y,
                   const ExpertTimes& times);

// Floats that ffn() takes per token of a tile, and each expert of a single token.
std::size_t ffn_tile_floats(std::int32_t input, std::int32_t intermediate);

// Tokens of one tile: projections of a longer sweep are done tile by tile.
inline constexpr std::int32_t kTileTokens = 256;

}  // namespace penstock

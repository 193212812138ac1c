// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention in absorbed form (spec: model.md section 8): the cache holds one
// normalised latent and one k_rot per position, in fp32. Plain functions over (weights, cache,
// ops).
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/layer_weights.h"
#include "engine/model/model_config.h"
#include "engine/model/ops.h"
#include "engine/model/sequence_state.h"

namespace penstock {

// Consecutive tokens of one sequence within a tile.
struct MlaSegment {
  std::int32_t begin;     // row of the tile
  std::int32_t tokens;    // at least one
  std::int64_t position;  // of the first one in its sequence
  LatentCache* cache;     // holds all positions before; has room for these
};

// Attends for all tokens of x [tokens][hidden]: writes the cache rows of the segments (which cover
// the tile) and out [tokens][heads * v_head_dim], before o_proj.
void mla(const Ops& ops, const MlaConfig& config, const MlaMatrices& w, const MlaVectors& vectors,
         std::size_t mla_layer, std::span<const MlaSegment> segments, Rows* x, float* out);

// Floats that mla() and its out take per token of a tile.
std::size_t mla_tile_floats(const MlaConfig& config, std::int32_t hidden);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Attention residuals (spec: model.md section 6): a softmax over earlier blocks' hidden states and
// the running prefix decides what a layer sees. Plain functions over rows.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/ops.h"

namespace penstock {

// The hidden states of a sweep's tokens: the running prefix and the blocks closed so far.
struct Residuals {
  float* prefix;               // [tokens][hidden]
  std::vector<float*> blocks;  // each [tokens][hidden], oldest first
  std::int32_t hidden;
};

// out[t] = sum over s of p_s * s, for the sources s = blocks of token t and its prefix (last), with
// p = softmax(score), score_s = (s / sqrt(mean(s^2) + eps)) . weight, weight [hidden] =
// norm_w * proj_w. Tokens [begin, begin + tokens) into out [tokens][hidden]. out must not overlap.
void attn_res(const Ops& ops, const Residuals& residuals, const float* weight, float eps,
              std::int32_t begin, std::int32_t tokens, float* out);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/attn_res.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace penstock {
namespace {

// Turns scores into their softmax, in place; the sum runs in the order of the sources.
void softmax(const Kernels& kernels, std::span<float> scores) {
  const float max = *std::max_element(scores.begin(), scores.end());
  for (float& score : scores) score -= max;
  kernels.exp(scores.data(), scores.data(), scores.size());
  float sum = 0;
  for (const float p : scores) sum += p;
  for (float& p : scores) p /= sum;
}

// sources [n] rows of [hidden]; p [n] is room for the probabilities.
void mix_token(const Kernels& kernels, std::span<const float* const> sources, const float* weight,
               std::size_t hidden, float eps, std::span<float> p, float* out) {
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const float mean = kernels.dot(sources[s], sources[s], hidden) / static_cast<float>(hidden);
    p[s] = kernels.dot(sources[s], weight, hidden) * (1.0F / std::sqrt(mean + eps));
  }
  softmax(kernels, p);
  std::fill_n(out, hidden, 0.0F);
  for (std::size_t s = 0; s < sources.size(); ++s) kernels.axpy(p[s], sources[s], out, hidden);
}

}  // namespace

void attn_res(const Ops& ops, const Residuals& residuals, const float* weight, float eps,
              std::int32_t begin, std::int32_t tokens, float* out) {
  const std::size_t count = residuals.blocks.size() + 1;
  const auto threads = static_cast<std::size_t>(ops.pool.threads());
  const Scratch::Frame frame(ops.scratch);
  const auto sources = ops.scratch.take<const float*>(threads * count);
  float* const p = ops.scratch.floats(threads * count);
  const std::ptrdiff_t hidden = residuals.hidden;
  ops.parallel_for(tokens, 1, [&](std::int64_t first, std::int64_t last, int worker) {
    const std::span my_sources(sources + static_cast<std::size_t>(worker) * count, count);
    const std::span my_p(p + static_cast<std::size_t>(worker) * count, count);
    for (std::int64_t t = first; t < last; ++t) {
      const std::ptrdiff_t row = (begin + t) * hidden;
      for (std::size_t b = 0; b + 1 < count; ++b) my_sources[b] = residuals.blocks[b] + row;
      my_sources[count - 1] = residuals.prefix + row;
      mix_token(ops.kernels, my_sources, weight, static_cast<std::size_t>(hidden), eps, my_p,
                out + t * hidden);
    }
  });
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/moe.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <vector>

#include "engine/base/timed.h"

namespace penstock {
namespace {

// h = act(g, u) over n values, in place of g.
void activate(const Kernels& kernels, const ModelConfig& config, float* g, const float* u,
              std::size_t n) {
  if (config.activation == Activation::silu) {
    kernels.silu_mul(g, u, g, n);
  } else {
    kernels.situ_mul(g, u, config.situ_beta, config.situ_linear_beta, g, n);
  }
}

// Rows of z that the uses name: a view when there is one, else a copy in the scratch.
Rows gather(const Ops& ops, std::span<const ExpertGroups::Use> uses, const float* z,
            std::int32_t cols) {
  const auto tokens = static_cast<std::int32_t>(uses.size());
  if (tokens == 1) return {z + std::ptrdiff_t{uses[0].token} * cols, cols, 1, cols};
  float* const rows = ops.scratch.floats(uses.size() * size(cols));
  for (std::size_t i = 0; i < uses.size(); ++i) {
    std::copy_n(z + std::ptrdiff_t{uses[i].token} * cols, cols, rows + i * size(cols));
  }
  return {rows, cols, tokens, cols};
}

// h [tokens][intermediate] = act(gate x, up x).
struct GatedHidden {
  const WeightMatrix& gate;
  const WeightMatrix& up;
  Rows* x;
  float* h;
};

void compute_hidden(const Ops& ops, const ModelConfig& config, std::span<const GatedHidden> all) {
  std::vector<Matmul> gates;
  std::vector<float*> ups;
  for (const GatedHidden& one : all) {
    ops.prepare(one.x, one.gate.format);  // outside of the frame: x outlives it
    gates.push_back({one.gate, one.x, one.h, one.gate.rows});
  }
  const Scratch::Frame frame(ops.scratch);
  for (const GatedHidden& one : all) {
    ups.push_back(ops.scratch.floats(size(one.x->tokens) * size(one.up.rows)));
  }
  ops.matmul(gates, [&](std::size_t i, std::int32_t begin, std::int32_t end) {
    const auto& [gate, up, x, h] = all[i];
    const MatmulKernel& kernel = ops.kernels.matmul[static_cast<int>(up.format)];
    assert(x->prepared_by == kernel.prepare);
    kernel.run(up, begin, end, x->prepared, x->tokens, ups[i] + begin, up.rows);
    for (std::int32_t t = 0; t < x->tokens; ++t) {
      const std::ptrdiff_t row = std::ptrdiff_t{t} * up.rows + begin;
      activate(ops.kernels, config, h + row, ups[i] + row, size(end - begin));
    }
  });
}

// y[t] += weight * expert(z[t]) for the tokens of one expert.
void apply_expert(const Ops& ops, const ModelConfig& config, const ExpertView& expert,
                  std::span<const ExpertGroups::Use> uses, const float* z, float* y) {
  const Scratch::Frame frame(ops.scratch);
  const std::int32_t width = config.expert_input();
  Rows x = gather(ops, uses, z, width);
  float* const h = ops.scratch.floats(uses.size() * size(config.moe.intermediate));
  const GatedHidden gated{expert.w1, expert.w3, &x, h};
  compute_hidden(ops, config, {&gated, 1});
  Rows rows{h, config.moe.intermediate, x.tokens, config.moe.intermediate};
  float* const out = ops.scratch.floats(uses.size() * size(width));
  const Matmul down{expert.w2, &rows, out, width};
  ops.matmul({&down, 1}, [&](std::size_t, std::int32_t begin, std::int32_t end) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      ops.kernels.axpy(uses[i].weight, out + i * size(width) + begin,
                       y + std::ptrdiff_t{uses[i].token} * width + begin, size(end - begin));
    }
  });
}

// out[lease.index()] [expert_input] = expert(x), x being a single row.
void compute_experts(const Ops& ops, const ModelConfig& config, std::span<const ExpertLease> leases,
                     Rows* x, float* out) {
  ops.prepare(x, leases.front().view().w1.format);  // outside of the frame: x outlives it
  const Scratch::Frame frame(ops.scratch);
  const std::int32_t intermediate = config.moe.intermediate;
  float* const h = ops.scratch.floats(leases.size() * size(intermediate));
  std::vector<Rows> hidden;
  std::vector<GatedHidden> gated;
  for (std::size_t i = 0; i < leases.size(); ++i) {
    float* const own = h + i * size(intermediate);
    hidden.push_back({own, intermediate, 1, intermediate});
    gated.push_back({leases[i].view().w1, leases[i].view().w3, x, own});
  }
  compute_hidden(ops, config, gated);
  std::vector<Matmul> down;
  for (std::size_t i = 0; i < leases.size(); ++i) {
    down.push_back(
        {leases[i].view().w2, &hidden[i], out + leases[i].index() * size(x->cols), x->cols});
  }
  ops.matmul(down);
}

void apply_experts_to_token(const Ops& ops, const ModelConfig& config, ExpertCache& cache,
                            const ExpertGroups& groups, const float* z, float* y,
                            const ExpertTimes& times) {
  const Scratch::Frame frame(ops.scratch);
  const std::int32_t width = config.expert_input();
  Rows x{z, width, 1, width};
  float* const out = ops.scratch.floats(groups.experts.size() * size(width));
  for (std::size_t given = 0; given < groups.experts.size();) {
    const std::vector<ExpertLease> leases = [&] {
      const Timed timed(times.wait_s);
      return cache.next_ready(ops.stop);
    }();
    given += leases.size();
    const Timed timed(times.compute_s);
    compute_experts(ops, config, leases, &x, out);
  }
  for (std::size_t i = 0; i < groups.experts.size(); ++i) {
    ops.kernels.axpy(groups.uses[i].front().weight, out + i * size(width), y, size(width));
  }
}

}  // namespace

void route_token(const Kernels& kernels, const MoeConfig& config, const float* bias, float* scores,
                 std::int32_t* experts, float* weights) {
  kernels.sigmoid(scores, scores, size(config.experts));
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float score_a = scores[a] + bias[a];
    const float score_b = scores[b] + bias[b];
    return score_a > score_b || (score_a == score_b && a < b);
  };
  std::int32_t found = 0;  // of the best so far, in experts[], best first
  for (std::int32_t e = 0; e < config.experts; ++e) {
    if (found == config.top_k && !better(e, experts[found - 1])) continue;
    std::int32_t k = found < config.top_k ? found++ : found - 1;
    for (; k > 0 && better(e, experts[k - 1]); --k) experts[k] = experts[k - 1];
    experts[k] = e;
  }
  float sum = 0;
  for (std::int32_t k = 0; k < config.top_k; ++k) sum += scores[experts[k]];
  for (std::int32_t k = 0; k < config.top_k; ++k) {
    const float score = scores[experts[k]];
    weights[k] = (config.renormalize ? score / (sum + 1e-20F) : score) * config.routed_scaling;
  }
}

void ffn(const Ops& ops, const ModelConfig& config, const FfnMatrices& w, Rows* x, float* y) {
  ops.prepare(x, w.gate.format);  // outside of the frame: x outlives it
  const Scratch::Frame frame(ops.scratch);
  float* const h = ops.scratch.floats(size(x->tokens) * size(w.gate.rows));
  const GatedHidden gated{w.gate, w.up, x, h};
  compute_hidden(ops, config, {&gated, 1});
  Rows rows{h, w.gate.rows, x->tokens, w.gate.rows};
  ops.matmul(w.down, &rows, y, w.down.rows);
}

void route(const Ops& ops, const ModelConfig& config, const MoeMatrices& w,
           const MoeVectors& vectors, Rows* x, std::int32_t begin, Routing* routing) {
  ops.prepare(x, w.gate.format);  // outside of the frame: x outlives it
  const Scratch::Frame frame(ops.scratch);
  const std::ptrdiff_t experts = config.moe.experts;
  float* const logits = ops.scratch.floats(size(x->tokens) * size(config.moe.experts));
  ops.matmul(w.gate, x, logits, experts);
  ops.parallel_for(x->tokens, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      const std::ptrdiff_t row = (begin + t) * config.moe.top_k;
      route_token(ops.kernels, config.moe, vectors.correction_bias.data(), logits + t * experts,
                  routing->experts.data() + row, routing->weights.data() + row);
    }
  });
}

ExpertGroups group_by_expert(const Routing& routing, std::int32_t top_k,
                             const std::vector<std::int32_t>& rank) {
  std::vector<std::int32_t> uses_of(rank.size(), 0);
  for (const std::int32_t expert : routing.experts) ++uses_of[size(expert)];
  ExpertGroups groups;
  for (std::size_t e = 0; e < rank.size(); ++e) {
    if (uses_of[e] > 0) groups.experts.push_back(static_cast<std::int32_t>(e));
  }
  std::sort(groups.experts.begin(), groups.experts.end(),
            [&](std::int32_t a, std::int32_t b) { return rank[size(a)] < rank[size(b)]; });
  groups.uses.resize(groups.experts.size());
  std::vector<std::size_t> group_of(rank.size(), 0);
  for (std::size_t g = 0; g < groups.experts.size(); ++g) {
    group_of[size(groups.experts[g])] = g;
    groups.uses[g].reserve(size(uses_of[size(groups.experts[g])]));
  }
  for (std::size_t i = 0; i < routing.experts.size(); ++i) {
    groups.uses[group_of[size(routing.experts[i])]].push_back(
        {static_cast<std::int32_t>(i / size(top_k)), routing.weights[i]});
  }
  return groups;
}

void apply_experts(const Ops& ops, const ModelConfig& config, ExpertCache& cache,
                   const ExpertGroups& groups, std::int32_t tokens, const float* z, float* y,
                   const ExpertTimes& times) {
  if (tokens == 1) return apply_experts_to_token(ops, config, cache, groups, z, y, times);
  const auto next = [&] {
    const Timed timed(times.wait_s);
    return cache.next(ops.stop);
  };
  for (const auto& uses : groups.uses) {
    const ExpertLease lease = next();
    const Timed timed(times.compute_s);
    for (std::size_t begin = 0; begin < uses.size(); begin += kTileTokens) {
      const std::size_t count = std::min<std::size_t>(kTileTokens, uses.size() - begin);
      apply_expert(ops, config, lease.view(), std::span(uses).subspan(begin, count), z, y);
    }
  }
}

std::size_t ffn_tile_floats(std::int32_t input, std::int32_t intermediate) {
  // Gathered and prepared x, h, u, prepared h, out.
  return 3 * size(input) + 3 * size(intermediate) + 2 * std::size_t{kLaneBlockCols};
}

}  // namespace penstock

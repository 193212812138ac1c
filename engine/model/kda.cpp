// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kda.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

namespace penstock {
namespace {

// One head's view of a segment: pointers at its channels of the segment's first row.
struct HeadRows {
  std::int32_t tokens;
  std::size_t head_dim;
  std::ptrdiff_t qkv_stride;  // floats from a token to the next in qkv
  std::ptrdiff_t width;       // ... in decay, gate, out; and from q to k to v
  float* qkv;
  float* decay;
  float* gate;
  float* out;
};

// The raw row of token `t` of the segment; those before it (t < 0) are in `history`
// [taps - 1][3][width], at the head's channels.
const float* raw_row(const HeadRows& rows, std::int32_t taps, const float* history,
                     std::int32_t t) {
  return t >= 0 ? rows.qkv + t * rows.qkv_stride : history + (t + taps - 1) * (3 * rows.width);
}

// c[t] = sum over taps j of w[j] * in[t - taps + 1 + j], then SiLU, in place: the last token first,
// so that what earlier tokens still need is raw.
void convolve(const Kernels& kernels, const HeadRows& rows, std::int32_t taps, const float* history,
              const float* weights, float* sum) {
  const std::ptrdiff_t tap_stride = 3 * rows.width;
  for (std::int32_t t = rows.tokens - 1; t >= 0; --t) {
    std::fill_n(sum, rows.head_dim, 0.0F);
    for (std::int32_t j = 0; j < taps; ++j) {
      const std::int32_t from = t - taps + 1 + j;
      const float* in = raw_row(rows, taps, history, from);
      const float* w = weights + j * tap_stride;
      for (std::size_t c = 0; c < rows.head_dim; ++c) sum[c] += w[c] * in[c];
    }
    kernels.sigmoid_mul(sum, sum, rows.qkv + t * rows.qkv_stride, rows.head_dim);
  }
}

// The last taps - 1 raw rows after the segment; `history` are those before it.
void next_history(const HeadRows& rows, std::int32_t taps, const float* history, float* next) {
  for (std::int32_t j = 0; j < taps - 1; ++j) {
    std::memcpy(next + static_cast<std::size_t>(j) * rows.head_dim,
                raw_row(rows, taps, history, rows.tokens - taps + 1 + j),
                rows.head_dim * sizeof(float));
  }
}

// Convolves one head's channels of q, k or v and moves its history on. `room` holds taps *
// head_dim.
void short_conv(const Kernels& kernels, const HeadRows& rows, std::int32_t taps,
                const float* conv_from, float* conv_to, const float* weights, float* room) {
  const std::ptrdiff_t tap_stride = 3 * rows.width;
  float* const next = room;
  float* const sum = room + static_cast<std::size_t>(taps - 1) * rows.head_dim;
  next_history(rows, taps, conv_from, next);
  convolve(kernels, rows, taps, conv_from, weights, sum);
  for (std::int32_t j = 0; j < taps - 1; ++j) {
    std::memcpy(conv_to + j * tap_stride, next + static_cast<std::size_t>(j) * rows.head_dim,
                rows.head_dim * sizeof(float));
  }
}

// The segment's rows at one head's channels.
HeadRows head_rows(const KdaConfig& config, const KdaSegment& segment, const KdaTile& tile,
                   std::int32_t head) {
  const std::ptrdiff_t width = config.width();
  const std::ptrdiff_t channel = std::ptrdiff_t{head} * config.head_dim;
  const std::ptrdiff_t begin = segment.begin * width + channel;
  return {.tokens = segment.tokens,
          .head_dim = static_cast<std::size_t>(config.head_dim),
          .qkv_stride = 3 * width,
          .width = width,
          .qkv = tile.qkv + 3 * width * segment.begin + channel,
          .decay = tile.decay + begin,
          .gate = tile.gate + begin,
          .out = tile.out + begin};
}

// Steps 3 to 5 for one head: what the recurrence reads.
void normalise_and_gate(const Kernels& kernels, const KdaConfig& config, const KdaVectors& w,
                        std::int32_t head, const HeadRows& rows, float* beta) {
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  const float decay_scale = w.decay_scale[static_cast<std::size_t>(head)];
  const float* const dt_bias = w.dt_bias.data() + std::ptrdiff_t{head} * config.head_dim;
  for (std::ptrdiff_t t = 0; t < rows.tokens; ++t) {
    float* const q = rows.qkv + t * rows.qkv_stride;
    l2_normalise(kernels, q, rows.head_dim, q_scale);
    l2_normalise(kernels, q + rows.width, rows.head_dim, 1.0F);
    decay_gate(kernels, config.gate_lower_bound, decay_scale, dt_bias, rows.decay + t * rows.width,
               rows.head_dim);
    kernels.sigmoid(beta + t * config.heads, beta + t * config.heads, 1);
  }
}

void advance_head(const Ops& ops, const KdaConfig& config, const KdaVectors& w, float norm_eps,
                  const KdaSegment& segment, const KdaTile& tile, std::int32_t head, float* room) {
  const Kernels& kernels = ops.kernels;
  const HeadRows rows = head_rows(config, segment, tile, head);
  HeadRows part = rows;  // of q, then k, then v
  for (std::ptrdiff_t i = 0; i < 3; ++i) {
    const std::ptrdiff_t offset = i * rows.width + std::ptrdiff_t{head} * config.head_dim;
    part.qkv = rows.qkv + i * rows.width;
    short_conv(kernels, part, config.conv_taps, segment.conv_from + offset,
               segment.conv_to + offset, w.conv.data() + offset, room);
  }
  float* const beta = tile.beta + std::ptrdiff_t{segment.begin} * config.heads + head;
  normalise_and_gate(kernels, config, w, head, rows, beta);
  const std::size_t state = static_cast<std::size_t>(head) * rows.head_dim * rows.head_dim;
  kernels.kda({.initial = segment.recurrent_from + state,
               .state = segment.recurrent_to + state,
               .q = rows.qkv,
               .k = rows.qkv + rows.width,
               .v = rows.qkv + 2 * rows.width,
               .decay = rows.decay,
               .beta = beta,
               .out = rows.out,
               .qkv_stride = rows.qkv_stride,
               .row_stride = rows.width,
               .beta_stride = config.heads,
               .tokens = rows.tokens,
               .key_dim = config.head_dim,
               .value_dim = config.head_dim});
  for (std::ptrdiff_t t = 0; t < rows.tokens; ++t) {
    gated_rms_norm(kernels, rows.gate + t * rows.width, w.o_norm.data(), config.head_dim, norm_eps,
                   rows.out + t * rows.width);
  }
}

}  // namespace

void l2_normalise(const Kernels& kernels, float* u, std::size_t n, float scale) {
  const float r = 1.0F / std::sqrt(kernels.dot(u, u, n) + kKdaL2NormEps);
  for (std::size_t i = 0; i < n; ++i) u[i] = (u[i] * r) * scale;
}

void decay_gate(const Kernels& kernels, const std::optional<float>& lower_bound, float decay_scale,
                const float* dt_bias, float* f, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) f[i] += dt_bias[i];
  if (lower_bound) {
    for (std::size_t i = 0; i < n; ++i) f[i] *= decay_scale;
    kernels.sigmoid(f, f, n);
    for (std::size_t i = 0; i < n; ++i) f[i] *= *lower_bound;
  } else {
    kernels.softplus(f, f, n);
    for (std::size_t i = 0; i < n; ++i) f[i] *= -decay_scale;
  }
  kernels.exp(f, f, n);
}

void gated_rms_norm(const Kernels& kernels, const float* gate, const float* w, std::int32_t n,
                    float eps, float* o) {
  rms_norm(kernels, o, w, n, eps, o);
  kernels.sigmoid_mul(gate, o, o, static_cast<std::size_t>(n));
}

KdaTile take_kda_tile(const Ops& ops, const KdaConfig& config, std::int32_t tokens) {
  const auto n = static_cast<std::size_t>(tokens);
  const auto width = static_cast<std::size_t>(config.width());
  return {.qkv = ops.scratch.floats(n * 3 * width),
          .decay = ops.scratch.floats(n * width),
          .gate = ops.scratch.floats(n * width),
          .beta = ops.scratch.floats(n * static_cast<std::size_t>(config.heads)),
          .out = ops.scratch.floats(n * width)};
}

std::size_t kda_tile_floats(const KdaConfig& config, std::int32_t hidden) {
  const auto width = static_cast<std::size_t>(config.width());
  // The arrays; the low-rank intermediates; the prepared forms of x, of those and of out.
  return 7 * width + static_cast<std::size_t>(config.heads + 4 * config.head_dim + hidden) +
         4 * std::size_t{kLaneBlockCols};
}

void project_kda(const Ops& ops, const KdaConfig& config, const KdaMatrices& w, Rows* x,
                 const KdaTile& tile) {
  const std::ptrdiff_t width = config.width();
  const std::ptrdiff_t rank = config.head_dim;
  const bool low_rank_gate = !config.full_rank_gate;
  ops.prepare(x, w.q_proj.format);  // outside of the frame: x outlives it
  const Scratch::Frame frame(ops.scratch);
  const std::size_t floats = size(x->tokens) * size(config.head_dim);
  float* const f = ops.scratch.floats(floats);  // f_a_proj x
  float* const g = ops.scratch.floats(floats);  // g_a_proj x, when there is one
  const std::array from_x{
      Matmul{w.q_proj, x, tile.qkv, 3 * width},
      Matmul{w.k_proj, x, tile.qkv + width, 3 * width},
      Matmul{w.v_proj, x, tile.qkv + 2 * width, 3 * width},
      low_rank_gate ? Matmul{w.g_a_proj, x, g, rank} : Matmul{w.g_proj, x, tile.gate, width},
      Matmul{w.f_a_proj, x, f, rank},
      Matmul{w.b_proj, x, tile.beta, config.heads}};
  ops.matmul(from_x);
  Rows f_rows{f, rank, x->tokens, config.head_dim};
  Rows g_rows{g, rank, x->tokens, config.head_dim};
  const std::array from_low_rank{Matmul{w.f_b_proj, &f_rows, tile.decay, width},
                                 Matmul{w.g_b_proj, &g_rows, tile.gate, width}};
  ops.matmul(std::span(from_low_rank).first(low_rank_gate ? 2 : 1));
}

void advance_kda(const Ops& ops, const KdaConfig& config, const KdaVectors& w, float norm_eps,
                 const KdaSegment& segment, const KdaTile& tile) {
  const std::size_t room =
      static_cast<std::size_t>(config.conv_taps) * static_cast<std::size_t>(config.head_dim);
  const Scratch::Frame frame(ops.scratch);
  float* const rooms = ops.scratch.floats(room * static_cast<std::size_t>(ops.pool.threads()));
  ops.parallel_for(config.heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t head = begin; head < end; ++head) {
      advance_head(ops, config, w, norm_eps, segment, tile, static_cast<std::int32_t>(head),
                   rooms + static_cast<std::size_t>(worker) * room);
    }
  });
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace penstock {
namespace {

// q [tokens][heads * q_head_dim] and the raw cache rows latents [tokens][cache_width].
void project(const Ops& ops, const MlaConfig& config, const MlaMatrices& w,
             const MlaVectors& vectors, Rows* x, float* q, float* latents) {
  const std::ptrdiff_t ldq = std::ptrdiff_t{config.heads} * config.q_head_dim();
  const Matmul to_latents{w.kv_a_proj, x, latents, config.cache_width()};
  if (config.q_lora_rank == 0) {
    ops.matmul(std::array{Matmul{w.q_proj, x, q, ldq}, to_latents});
    return;
  }
  const Scratch::Frame frame(ops.scratch);
  const std::ptrdiff_t rank = config.q_lora_rank;
  float* const low = ops.scratch.floats(size(x->tokens) * size(config.q_lora_rank));
  ops.matmul(std::array{Matmul{w.q_a_proj, x, low, rank}, to_latents});
  rms_norm_rows(ops, low, rank, vectors.q_a_layernorm.data(), x->tokens, config.q_lora_rank,
                kMlaNormEps);
  Rows rows{low, rank, x->tokens, config.q_lora_rank};
  ops.matmul(w.q_b_proj, &rows, q, ldq);
}

// Fills the cache rows of the tile: the normalised latent, then k_rot as it is.
void fill_cache(const Ops& ops, const MlaConfig& config, const MlaVectors& vectors,
                std::size_t mla_layer, std::span<const MlaSegment> segments, std::int32_t tokens,
                float* latents) {
  const std::ptrdiff_t width = config.cache_width();
  rms_norm_rows(ops, latents, width, vectors.kv_a_layernorm.data(), tokens, config.kv_lora_rank,
                kMlaNormEps);
  for (const MlaSegment& segment : segments) {
    for (std::int32_t t = 0; t < segment.tokens; ++t) {
      std::memcpy(segment.cache->row(mla_layer, segment.position + t),
                  latents + (segment.begin + t) * width,
                  size(config.cache_width()) * sizeof(float));
    }
  }
}

// query [tokens][heads][cache_width] = (Wk[h]^T q_nope[h], q_rot[h]).
void absorb_query(const Ops& ops, const MlaConfig& config, const WeightMatrix& kv_b, const float* q,
                  std::int32_t tokens, float* query) {
  const auto absorb = ops.kernels.matmul_t[static_cast<int>(kv_b.format)];
  const std::ptrdiff_t width = config.cache_width();
  const std::ptrdiff_t ldq = std::ptrdiff_t{config.heads} * config.q_head_dim();
  const std::ptrdiff_t ld_query = config.heads * width;
  ops.parallel_for(config.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t head = begin; head < end; ++head) {
      const auto first_row =
          static_cast<std::int32_t>(head * (config.qk_nope_head_dim + config.v_head_dim));
      const float* const q_head = q + head * config.q_head_dim();
      float* const query_head = query + head * width;
      absorb(kv_b, first_row, first_row + config.qk_nope_head_dim, q_head, ldq, tokens, query_head,
             ld_query);
      for (std::int32_t t = 0; t < tokens; ++t) {
        std::memcpy(query_head + t * ld_query + config.kv_lora_rank,
                    q_head + t * ldq + config.qk_nope_head_dim,
                    size(config.qk_rope_head_dim) * sizeof(float));
      }
    }
  });
}

// Merges `block` into the running softmax (max, sum, weighted), of `latent` values.
void merge(const Kernels& kernels, const AttentionPartial& block, std::size_t latent,
           AttentionPartial* total) {
  const float max = std::max(total->max, block.max);
  float factors[2] = {total->max - max, block.max - max};
  kernels.exp(factors, factors, 2);
  total->max = max;
  total->sum = total->sum * factors[0] + block.sum * factors[1];
  for (std::size_t i = 0; i < latent; ++i) {
    total->weighted[i] = total->weighted[i] * factors[0] + block.weighted[i] * factors[1];
  }
}

// m [latent] = sum over positions 0 .. last of softmax(scores) * latent, for one head of one token.
// `room` holds a block's weighted sum.
void attend_all(const Ops& ops, const MlaConfig& config, const LatentCache& cache,
                std::size_t mla_layer, std::int64_t last, const float* query, float* m,
                float* room) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(config.q_head_dim()));
  const auto latent = size(config.kv_lora_rank);
  AttentionPartial total{0, 0, m};
  AttentionPartial block{0, 0, room};
  for (std::int64_t first = 0; first <= last; first += kAttentionBlock) {
    if (ops.stop != nullptr && ops.stop->stop_requested()) return;
    const auto positions =
        static_cast<std::int32_t>(std::min<std::int64_t>(kAttentionBlock, last + 1 - first));
    const AttentionBlock input{
        query, cache.row(mla_layer, first), config.cache_width(), config.kv_lora_rank, positions,
        scale};
    ops.kernels.attend(input, first == 0 ? &total : &block);
    if (first > 0) merge(ops.kernels, block, latent, &total);
  }
  for (std::size_t i = 0; i < latent; ++i) m[i] /= total.sum;
}

// m [tokens][heads][latent] of every token and head; one thread owns a (head, token).
void attend(const Ops& ops, const MlaConfig& config, std::size_t mla_layer,
            const MlaSegment& segment, const float* query, float* m) {
  const Scratch::Frame frame(ops.scratch);
  const std::ptrdiff_t latent = config.kv_lora_rank;
  float* const rooms = ops.scratch.floats(size(ops.pool.threads()) * size(config.kv_lora_rank));
  const std::int64_t pairs = std::int64_t{segment.tokens} * config.heads;
  ops.parallel_for(pairs, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const std::int64_t row = std::int64_t{segment.begin} * config.heads + pair;
      attend_all(ops, config, *segment.cache, mla_layer, segment.position + pair / config.heads,
                 query + row * config.cache_width(), m + row * latent, rooms + worker * latent);
    }
  });
}

// out [tokens][heads * v_head_dim] = Wv[h] m[h].
void expand_values(const Ops& ops, const MlaConfig& config, const WeightMatrix& kv_b,
                   const float* m, std::int32_t tokens, float* out) {
  const MatmulKernel& kernel = ops.kernels.matmul[static_cast<int>(kv_b.format)];
  const Scratch::Frame frame(ops.scratch);
  const std::size_t room =
      round_up(kernel.prepared_bytes(tokens, config.kv_lora_rank), kPreparedAlignment);
  auto* const rooms = ops.scratch.take<std::byte>(room * size(ops.pool.threads()));
  const std::ptrdiff_t ld = std::ptrdiff_t{config.heads} * config.kv_lora_rank;
  ops.parallel_for(config.heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    std::byte* const prepared = rooms + static_cast<std::size_t>(worker) * room;
    for (std::int64_t head = begin; head < end; ++head) {
      const auto first_row = static_cast<std::int32_t>(
          head * (config.qk_nope_head_dim + config.v_head_dim) + config.qk_nope_head_dim);
      kernel.prepare(m + head * config.kv_lora_rank, ld, config.kv_lora_rank, 0, tokens, prepared);
      kernel.run(kv_b, first_row, first_row + config.v_head_dim, prepared, tokens,
                 out + head * config.v_head_dim, std::ptrdiff_t{config.heads} * config.v_head_dim);
    }
  });
}

// out *= sigmoid(g_proj x).
void gate_output(const Ops& ops, const WeightMatrix& g_proj, Rows* x, float* out) {
  ops.prepare(x, g_proj.format);  // outside of the frame: x outlives it
  const Scratch::Frame frame(ops.scratch);
  const std::ptrdiff_t width = g_proj.rows;
  float* const gate = ops.scratch.floats(size(x->tokens) * size(g_proj.rows));
  const Matmul product{g_proj, x, gate, width};
  ops.matmul({&product, 1}, [&](std::size_t, std::int32_t begin, std::int32_t end) {
    for (std::int32_t t = 0; t < x->tokens; ++t) {
      float* const y = out + t * width + begin;
      ops.kernels.sigmoid_mul(gate + t * width + begin, y, y, size(end - begin));
    }
  });
}

}  // namespace

void mla(const Ops& ops, const MlaConfig& config, const MlaMatrices& w, const MlaVectors& vectors,
         std::size_t mla_layer, std::span<const MlaSegment> segments, Rows* x, float* out) {
  ops.prepare(x, w.kv_a_proj.format);  // outside of the frame: x outlives it
  {
    const Scratch::Frame frame(ops.scratch);
    const std::size_t rows = size(x->tokens) * size(config.heads);
    float* const q = ops.scratch.floats(rows * size(config.q_head_dim()));
    float* const query = ops.scratch.floats(rows * size(config.cache_width()));
    float* const m = ops.scratch.floats(rows * size(config.kv_lora_rank));
    float* const latents = ops.scratch.floats(size(x->tokens) * size(config.cache_width()));
    project(ops, config, w, vectors, x, q, latents);
    fill_cache(ops, config, vectors, mla_layer, segments, x->tokens, latents);
    absorb_query(ops, config, w.kv_b_proj, q, x->tokens, query);
    for (const MlaSegment& segment : segments) attend(ops, config, mla_layer, segment, query, m);
    expand_values(ops, config, w.kv_b_proj, m, x->tokens, out);
  }
  if (config.output_gate) gate_output(ops, w.g_proj, x, out);
}

std::size_t mla_tile_floats(const MlaConfig& config, std::int32_t hidden) {
  const std::size_t per_head =
      size(config.q_head_dim() + config.cache_width() + config.kv_lora_rank + config.v_head_dim);
  const std::size_t later = size(config.heads) * size(config.v_head_dim);  // gate or prepared out
  return size(config.heads) * per_head + later + size(hidden) + 2 * size(config.q_lora_rank) +
         size(config.cache_width()) + 2 * std::size_t{kLaneBlockCols};
}

}  // namespace penstock

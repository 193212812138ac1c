// SPDX-License-Identifier: Apache-2.0
//
// The table of AVX-512 F, BW, VL and DQ: vectors and attention here, matrix products in
// avx512_matmul.cpp.
#include "kernels/avx512_lanes.h"
#include "kernels/tables.h"

namespace penstock {
namespace {

using Steps = MathSteps<Ops>;

// One block of 32 columns in lane order.
inline __m512 fuse(Pair a, Pair b, __m512 sum) {
  return _mm512_fmadd_ps(a.odd, b.odd, _mm512_fmadd_ps(a.even, b.even, sum));
}

float dot(const float* a, const float* b, size_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (; n >= kLaneBlockCols; n -= kLaneBlockCols, a += kLaneBlockCols, b += kLaneBlockCols) {
    sum = fuse(load_pair(a), load_pair(b), sum);
  }
  const auto rest = static_cast<int32_t>(n);
  if (rest != 0) sum = fuse(load_pair(a, rest), load_pair(b, rest), sum);
  return reduce(sum);
}

// y[i] = f(i, mask of the lanes that exist) for 16 values at a time.
template <class F>
void map(float* y, size_t n, F f) {
  for (size_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = lanes_below(static_cast<ptrdiff_t>(n - i));
    _mm512_mask_storeu_ps(y + i, mask, f(i, mask));
  }
}

template <__m512 (*f)(__m512)>
void map_one(const float* x, float* y, size_t n) {
  map(y, n, [=](size_t i, __mmask16 mask) { return f(_mm512_maskz_loadu_ps(mask, x + i)); });
}

void sigmoid_mul(const float* gate, const float* x, float* y, size_t n) {
  map(y, n, [=](size_t i, __mmask16 mask) {
    const __m512 s = Steps::sigmoid(_mm512_maskz_loadu_ps(mask, gate + i));
    return Ops::mul(s, _mm512_maskz_loadu_ps(mask, x + i));
  });
}

void silu_mul(const float* gate, const float* up, float* y, size_t n) {
  map(y, n, [=](size_t i, __mmask16 mask) {
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    return Ops::mul(Ops::mul(g, Steps::sigmoid(g)), _mm512_maskz_loadu_ps(mask, up + i));
  });
}

// bound * tanh(x / bound).
__m512 soft_bound(__m512 x, float bound) {
  const __m512 b = Ops::set(bound);
  return Ops::mul(b, Steps::tanh(Ops::div(x, b)));
}

void situ_mul(const float* gate, const float* up, float beta, float linear_beta, float* y,
              size_t n) {
  map(y, n, [=](size_t i, __mmask16 mask) {
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 u = _mm512_maskz_loadu_ps(mask, up + i);
    const __m512 gated = Ops::mul(soft_bound(g, beta), Steps::sigmoid(g));
    return Ops::mul(gated, linear_beta == 0.0F ? u : soft_bound(u, linear_beta));
  });
}

void axpy(float a, const float* x, float* y, size_t n) {
  map(y, n, [=](size_t i, __mmask16 mask) {
    return Ops::fma(Ops::set(a), _mm512_maskz_loadu_ps(mask, x + i),
                    _mm512_maskz_loadu_ps(mask, y + i));
  });
}

// Columns of the state that are worked on together, and for how many rows of them L1 has room.
constexpr int kStripVectors = 2;
constexpr int32_t kStripCols = kStripVectors * kLanes;
constexpr int32_t kStripRows = 128;

using StripMasks = __mmask16[kStripVectors];
using StripVectors = __m512[kStripVectors];

// One pass over the rows of a strip; the strides are floats from a row to the next.
struct Pass {
  const float* from;
  ptrdiff_t from_stride;
  float* to;
  ptrdiff_t to_stride;
};

// s = decay * s; u = sum of k * s.
inline void decay_strip(const KdaHead& head, ptrdiff_t t, const StripMasks& masks, Pass p,
                        StripVectors& u) {
  const float* k = head.k + t * head.qkv_stride;
  const float* decay = head.decay + t * head.row_stride;
  for (int32_t i = 0; i < head.key_dim; ++i, p.from += p.from_stride, p.to += p.to_stride) {
#pragma GCC unroll 2
    for (ptrdiff_t v = 0; v < kStripVectors; ++v) {
      const __m512 old = _mm512_maskz_loadu_ps(masks[v], p.from + v * kLanes);
      const __m512 s = Ops::mul(old, Ops::set(decay[i]));
      _mm512_mask_storeu_ps(p.to + v * kLanes, masks[v], s);
      u[v] = Ops::fma(Ops::set(k[i]), s, u[v]);
    }
  }
}

// s += k * d; out = sum of q * s.
inline void update_strip(const KdaHead& head, ptrdiff_t t, const StripMasks& masks, Pass p,
                         const StripVectors& d, StripVectors& out) {
  const float* k = head.k + t * head.qkv_stride;
  const float* q = head.q + t * head.qkv_stride;
  for (int32_t i = 0; i < head.key_dim; ++i, p.from += p.from_stride, p.to += p.to_stride) {
#pragma GCC unroll 2
    for (ptrdiff_t v = 0; v < kStripVectors; ++v) {
      const __m512 old = _mm512_maskz_loadu_ps(masks[v], p.from + v * kLanes);
      const __m512 s = Ops::fma(Ops::set(k[i]), d[v], old);
      _mm512_mask_storeu_ps(p.to + v * kLanes, masks[v], s);
      out[v] = Ops::fma(Ops::set(q[i]), s, out[v]);
    }
  }
}

// Columns [j, j + 32) of the state over all tokens. Between tokens they lie side by side in a
// buffer: at the stride of the state they share a few sets of L1 and do not stay there (128 x 128,
// many tokens: 1.4 us a token instead of 3.1).
void kda_strip(const KdaHead& head, int32_t j) {
  alignas(64) float buffer[kStripRows * kStripCols];
  float* const state = head.state + j;
  const ptrdiff_t stride = head.value_dim;
  float* const work = head.key_dim <= kStripRows ? buffer : state;
  const ptrdiff_t work_stride = head.key_dim <= kStripRows ? kStripCols : stride;
  const StripMasks masks = {lanes_below(head.value_dim - j),
                            lanes_below(head.value_dim - j - kLanes)};
  for (ptrdiff_t t = 0; t < head.tokens; ++t) {
    Pass pass{work, work_stride, work, work_stride};
    if (t == 0) pass = {head.initial + j, stride, work, work_stride};
    StripVectors u = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    decay_strip(head, t, masks, pass, u);
    const __m512 beta = Ops::set(head.beta[t * head.beta_stride]);
    const float* value = head.v + t * head.qkv_stride + j;
    StripVectors d;
    for (ptrdiff_t v = 0; v < kStripVectors; ++v) {
      d[v] = Ops::mul(beta, Ops::sub(_mm512_maskz_loadu_ps(masks[v], value + v * kLanes), u[v]));
    }
    pass = {work, work_stride, work, work_stride};
    if (t + 1 == head.tokens) pass = {work, work_stride, state, stride};
    StripVectors out = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    update_strip(head, t, masks, pass, d, out);
    for (ptrdiff_t v = 0; v < kStripVectors; ++v) {
      _mm512_mask_storeu_ps(head.out + t * head.row_stride + j + v * kLanes, masks[v], out[v]);
    }
  }
}

void kda(const KdaHead& head) {
  for (int32_t j = 0; j < head.value_dim; j += kStripCols) kda_strip(head, j);
}

// What scale * dot(query, row) needs before scaling: 8 positions share each piece of the query.
void score(const AttentionBlock& a, float* scores) {
  constexpr int kRows = 8;
  const int32_t blocks = a.width / kLaneBlockCols;
  const int32_t rest = a.width % kLaneBlockCols;
  for (int32_t i = 0; i < a.positions; i += kRows) {
    const float* rows[kRows];
    __m512 sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const int32_t row = i + r < a.positions ? i + r : a.positions - 1;
      rows[r] = a.cache + static_cast<ptrdiff_t>(row) * a.width;
      sum[r] = _mm512_setzero_ps();
    }
    for (ptrdiff_t b = 0; b < blocks; ++b) {
      const Pair query = load_pair(a.query + b * kLaneBlockCols);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sum[r] = fuse(query, load_pair(rows[r] + b * kLaneBlockCols), sum[r]);
      }
    }
    if (rest != 0) {
      const ptrdiff_t c = static_cast<ptrdiff_t>(blocks) * kLaneBlockCols;
      const Pair query = load_pair(a.query + c, rest);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sum[r] = fuse(query, load_pair(rows[r] + c, rest), sum[r]);
      }
    }
    _mm_storeu_ps(scores + i, reduce(sum[0], sum[1], sum[2], sum[3]));
    _mm_storeu_ps(scores + i + 4, reduce(sum[4], sum[5], sum[6], sum[7]));
  }
}

// weighted[r .. r + 128) += over the positions.
void weigh_strip(const AttentionBlock& a, const float* p, int32_t r, float* weighted) {
  constexpr int kVectors = 8;
  __m512 sum[kVectors];
  __mmask16 masks[kVectors];
#pragma GCC unroll 8
  for (ptrdiff_t v = 0; v < kVectors; ++v) {
    sum[v] = _mm512_setzero_ps();
    masks[v] = lanes_below(a.latent - r - v * kLanes);
  }
  const float* row = a.cache + r;
  for (int32_t i = 0; i < a.positions; ++i, row += a.width) {
    const __m512 weight = Ops::set(p[i]);
#pragma GCC unroll 8
    for (ptrdiff_t v = 0; v < kVectors; ++v) {
      sum[v] = Ops::fma(weight, _mm512_maskz_loadu_ps(masks[v], row + v * kLanes), sum[v]);
    }
  }
#pragma GCC unroll 8
  for (ptrdiff_t v = 0; v < kVectors; ++v) {
    _mm512_mask_storeu_ps(weighted + r + v * kLanes, masks[v], sum[v]);
  }
}

void attend(const AttentionBlock& block, AttentionPartial* partial) {
  alignas(64) float p[kAttentionBlock];
  score(block, p);
  const __m512 scale = Ops::set(block.scale);
  __m512 highest = Ops::set(-__builtin_inff());
  for (int32_t i = 0; i < block.positions; i += kLanes) {
    const __mmask16 mask = lanes_below(block.positions - i);
    const __m512 scores = Ops::mul(scale, _mm512_maskz_loadu_ps(mask, p + i));
    _mm512_store_ps(p + i, scores);
    highest = Ops::select(mask, Ops::max(scores, highest), highest);
  }
  partial->max = reduce_max(highest);
  __m512 sum = _mm512_setzero_ps();
  for (int32_t i = 0; i < block.positions; i += kLanes) {
    const __mmask16 mask = lanes_below(block.positions - i);
    const __m512 e = Steps::exp(Ops::sub(load(p + i), Ops::set(partial->max)));
    _mm512_store_ps(p + i, e);
    sum = _mm512_mask_add_ps(sum, mask, sum, e);
  }
  partial->sum = reduce(sum);
  for (int32_t r = 0; r < block.latent; r += 8 * kLanes) {
    weigh_strip(block, p, r, partial->weighted);
  }
}

}  // namespace

Kernels avx512_kernels(const Kernels& lower) {
  Kernels table = lower;
  table.name = "avx512";
  set_avx512_matmul(&table);
  table.dot = dot;
  table.exp = map_one<Steps::exp>;
  table.tanh = map_one<Steps::tanh>;
  table.sigmoid = map_one<Steps::sigmoid>;
  table.softplus = map_one<Steps::softplus>;
  table.sigmoid_mul = sigmoid_mul;
  table.silu_mul = silu_mul;
  table.situ_mul = situ_mul;
  table.axpy = axpy;
  table.kda = kda;
  table.attend = attend;
  return table;
}

}  // namespace penstock

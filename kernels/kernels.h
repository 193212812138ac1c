// SPDX-License-Identifier: Apache-2.0
//
// The table of functions that one instruction set provides, and the contract they keep.
// kernels/scalar.cpp is the specification: every slot of every fp32 table returns its bits.
// Tables are static and immutable; every function is pure, noexcept and callable from any thread.
//
// Lane order. A sum over n columns is split over 16 lanes: of each block of 32 columns, lane l
// takes column 2l, then column 2l + 1 (both by fused multiply-add, starting from +0). Columns past
// n, to the end of the block, count as 0 * 0. The lanes are added by a fixed tree: l += l + 8, then
// + 4, + 2, + 1. The order depends on nothing else, so y[t][r] has the same bits for any number of
// tokens, row range or thread. Which NaN a sum with a NaN gives is not fixed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/formats.h"

namespace penstock {

inline constexpr int32_t kLaneBlockCols = 32;     // columns of one step of the lane order
inline constexpr int32_t kAttentionBlock = 128;   // cached positions reduced together by attend
inline constexpr size_t kPreparedAlignment = 64;  // of the buffer that prepare() fills

// y = W x for many tokens. prepare() is done once per activation, run() is split over rows.
struct MatmulKernel {
  // Bytes of the prepared form of `tokens` activations of `cols` values each. In fp32 tables: per
  // token and block of 32 columns the 16 even columns, then the 16 odd ones, zeros past cols.
  size_t (*prepared_bytes)(int32_t tokens, int32_t cols);
  // Fills tokens [token_begin, token_end) of `prepared` from x [tokens][cols], row stride ldx.
  void (*prepare)(const float* x, ptrdiff_t ldx, int32_t cols, int32_t token_begin,
                  int32_t token_end, void* prepared);
  // y[t * ldy + r - row_begin] = sum over c of W[r][c] * x[t][c], r in [row_begin, row_end), in
  // lane order. int8_rows sums the integers and multiplies the sum by the scale of the row.
  void (*run)(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const void* prepared,
              int32_t tokens, float* y, ptrdiff_t ldy);
};

// y[t * ldy + c] = sum over r in [row_begin, row_end), ascending, of W[r][c] * x[t * ldx + r -
// row_begin]: one fma per row, from +0. int8_rows multiplies x by the scale of the row first.
using MatmulTransposedKernel = void (*)(const WeightMatrix& w, int32_t row_begin, int32_t row_end,
                                        const float* x, ptrdiff_t ldx, int32_t tokens, float* y,
                                        ptrdiff_t ldy);

// One head of Kimi Delta Attention over consecutive tokens (spec: model.md section 7, step 6).
struct KdaHead {
  const float* initial;  // [key_dim][value_dim], the state before the first token; may be `state`
  float* state;          // [key_dim][value_dim], written: the state after the last token
  const float* q;        // [tokens] x [key_dim], normalised and scaled
  const float* k;        // [tokens] x [key_dim], normalised
  const float* v;        // [tokens] x [value_dim]
  const float* decay;    // [tokens] x [key_dim], exp(g)
  const float* beta;     // [tokens]
  float* out;            // [tokens] x [value_dim]
  ptrdiff_t qkv_stride;  // floats from a token to the next in q, k and v
  ptrdiff_t row_stride;  // ... in decay and out
  ptrdiff_t beta_stride;
  int32_t tokens;
  int32_t key_dim;
  int32_t value_dim;
};

// At most kAttentionBlock cached positions seen by one head of one token (absorbed MLA).
struct AttentionBlock {
  const float* query;  // [width]: absorbed q_nope (latent values), then q_rot
  const float* cache;  // [positions][width]: normalised latent, then k_rot
  int32_t width;
  int32_t latent;     // the first `latent` values of a cache row are summed
  int32_t positions;  // 1 to kAttentionBlock
  float scale;
};

// What attend() makes of a block; blocks are merged in ascending order by the caller.
struct AttentionPartial {
  float max;        // of score = scale * dot(query, cache row), dot in lane order
  float sum;        // of p = exp(score - max); lane = position mod 16, then the tree
  float* weighted;  // [latent]: sum of p * cache row, positions ascending, by fma from +0
};

struct Kernels {
  const char* name;  // as in PENSTOCK_ISA and --version
  MatmulKernel matmul[kWeightFormats];
  MatmulTransposedKernel matmul_t[kWeightFormats];

  float (*dot)(const float* a, const float* b, size_t n);  // in lane order

  // Elementwise; at most 2 ulp over all fp32 inputs (kernels/math_steps.h). y may be x.
  void (*exp)(const float* x, float* y, size_t n);
  void (*tanh)(const float* x, float* y, size_t n);
  void (*sigmoid)(const float* x, float* y, size_t n);
  void (*softplus)(const float* x, float* y, size_t n);  // log(1 + e^x)

  // y = sigmoid(gate) * x. y may be gate or x; with gate == x this is SiLU.
  void (*sigmoid_mul)(const float* gate, const float* x, float* y, size_t n);
  // y = (gate * sigmoid(gate)) * up.
  void (*silu_mul)(const float* gate, const float* up, float* y, size_t n);
  // y = ((beta * tanh(gate / beta)) * sigmoid(gate)) * (linear_beta * tanh(up / linear_beta));
  // linear_beta 0 leaves up as it is.
  void (*situ_mul)(const float* gate, const float* up, float beta, float linear_beta, float* y,
                   size_t n);
  void (*axpy)(float a, const float* x, float* y, size_t n);  // y = fma(a, x, y)

  void (*kda)(const KdaHead& head);
  void (*attend)(const AttentionBlock& block, AttentionPartial* partial);
};

inline constexpr int kMaxKernelTables = 8;
struct KernelList {
  const Kernels* tables[kMaxKernelTables];  // best first
  int count;
};

// The tables that this machine can run, best first; the last is always "scalar".
KernelList supported_kernels();

// The table called `name`, or the best one when name is null or empty; null when this machine
// cannot run it or there is none of that name.
const Kernels* find_kernels(const char* name);

}  // namespace penstock

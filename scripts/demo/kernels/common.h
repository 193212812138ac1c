// SPDX-License-Identifier: Apache-2.0
//
// Fused training kernels, forward and backward by hand, called through ctypes (native.py).
// Everything works on a flat stream of N tokens made of documents: doc_off[0..docs] are the borders
// of the documents; no state (KDA, short convolution, attention) crosses a border. bf16 is stored
// as uint16_t.
#pragma once

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

using bf = uint16_t;
static inline float ld(bf v) {
  uint32_t u = (uint32_t)v << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline bf st(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return (bf)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

// Clamped: with -ffast-math 1/(1+inf) becomes NaN (reciprocal estimate plus a Newton step).
static inline float sig(float x) {
  return 1.f / (1.f + expf(-std::max(x, -60.f)));
}

// One zmm register; explicit, so that accumulators stay in registers.
typedef float v16 __attribute__((vector_size(64), aligned(4)));
static inline float hsum(v16 x) {
  return _mm512_reduce_add_ps((__m512)x);
}

// Documents, longest first: better balance between the threads.
static std::vector<int> longest_first(int ndoc, const int* off) {
  std::vector<int> o(ndoc);
  for (int i = 0; i < ndoc; i++) o[i] = i;
  std::sort(o.begin(), o.end(),
            [&](int a, int b) { return off[a + 1] - off[a] > off[b + 1] - off[b]; });
  return o;
}

// SPDX-License-Identifier: Apache-2.0
//
// The 16 lanes of the lane order as one zmm register: shared by the AVX-512 files only. Everything
// is local to the including file, which is compiled for AVX-512: a copy that the linker could keep
// for the whole program would crash lesser processors.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/math_steps.h"

namespace penstock {

void set_avx512_matmul(Kernels* table);  // avx512_matmul.cpp: matmul and matmul_t

namespace {

inline constexpr int32_t kLanes = 16;

struct Ops {
  using Float = __m512;
  using Mask = __mmask16;
  static __m512 set(float x) { return _mm512_set1_ps(x); }
  static __m512 from_bits(int32_t bits) { return _mm512_castsi512_ps(_mm512_set1_epi32(bits)); }
  static __m512 add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
  static __m512 sub(__m512 a, __m512 b) { return _mm512_sub_ps(a, b); }
  static __m512 mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
  static __m512 div(__m512 a, __m512 b) { return _mm512_div_ps(a, b); }
  static __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
  static __m512 max(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
  static __m512 min(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }
  static __m512 abs(__m512 a) { return _mm512_andnot_ps(set(-0.0F), a); }
  static __m512 negate(__m512 a) { return _mm512_xor_ps(a, set(-0.0F)); }
  static __m512 copy_sign(__m512 a, __m512 sign) {
    return _mm512_or_ps(a, _mm512_and_ps(sign, set(-0.0F)));
  }
  static __mmask16 less(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static __mmask16 is_nan(__m512 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static __m512 select(__mmask16 mask, __m512 yes, __m512 no) {
    return _mm512_mask_blend_ps(mask, no, yes);
  }
  static __m512 scale_by_power(__m512 p, __m512 t) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(kRoundBits));
    const __m512i half = _mm512_srai_epi32(n, 1);
    return mul(mul(p, power(half)), power(_mm512_sub_epi32(n, half)));
  }
  static __m512 power(__m512i n) {
    const __m512i biased = _mm512_add_epi32(n, _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
};

// The first n lanes, n <= 0 to 16 and more.
inline __mmask16 lanes_below(ptrdiff_t n) {
  if (n >= kLanes) return 0xFFFF;
  return n <= 0 ? __mmask16{0} : static_cast<__mmask16>((1U << n) - 1U);
}

inline __m512 load(const float* p) {
  return _mm512_loadu_ps(p);
}

// Columns 2l in even, 2l + 1 in odd.
struct Pair {
  __m512 even;
  __m512 odd;
};

inline Pair split(__m512 first, __m512 second) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return {_mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second)};
}

inline Pair join(Pair p) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high =
      _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  return {_mm512_permutex2var_ps(p.even, low, p.odd), _mm512_permutex2var_ps(p.even, high, p.odd)};
}

// The fixed tree over four accumulators at once: sums of a, b, c, d in order.
inline __m128 reduce(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  const __m512 all =
      _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  const __m512 pairs = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4E));
  const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xB1));
  return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, sums));
}

inline float reduce(__m512 a) {
  return _mm_cvtss_f32(reduce(a, a, a, a));
}

inline float reduce_max(__m512 a) {
  a = Ops::max(a, _mm512_shuffle_f32x4(a, a, 0x4E));
  a = Ops::max(a, _mm512_shuffle_f32x4(a, a, 0xB1));
  a = Ops::max(a, _mm512_permute_ps(a, 0x4E));
  return _mm512_cvtss_f32(Ops::max(a, _mm512_permute_ps(a, 0xB1)));
}

// 32 columns of bf16. As a pair of columns, the upper one is in place and the lower one a shift
// away.
inline Pair widen_bf16(__m512i values) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000U));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(values, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(values, upper))};
}

// 32 floats at p, at any alignment; with n below 32 the first n of them, and zeros.
inline Pair load_pair(const void* p) {
  return split(_mm512_loadu_ps(p), _mm512_loadu_ps(static_cast<const char*>(p) + 64));
}

inline Pair load_pair(const void* p, int32_t n) {
  return split(_mm512_maskz_loadu_ps(lanes_below(n), p),
               _mm512_maskz_loadu_ps(lanes_below(n - kLanes), static_cast<const char*>(p) + 64));
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// A row of bf12 (formats.h) by AVX-512: like avx512_lanes.h for the including file only.
#pragma once

#include "kernels/avx512_lanes.h"

namespace penstock {
namespace {

// The exponents that the codes of a block stand for, in their place in a bf16, by its base. The
// permutation looks at the low five bits of an index, of which the fifth is of another code.
struct ExponentTable {
  alignas(64) uint16_t words[256][32];
  constexpr ExponentTable() : words() {
    for (int32_t base = 0; base < 256; ++base) {
      for (int32_t i = 0; i < 32; ++i) {
        const int32_t code = i % 16;
        words[base][i] = code == 0 ? uint16_t{0} : static_cast<uint16_t>((base - 15 + code) << 7);
      }
    }
  }
};
inline constexpr ExponentTable kExponents;

// Constants that the compiler would otherwise make anew in every block.
struct Bf12Masks {
  __m512i sign_mantissa = _mm512_set1_epi32(static_cast<int32_t>(0x807F807F));
  __m512i swap_bytes =
      _mm512_broadcast_i32x4(_mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
  Bf12Masks() { __asm__("" : "+v"(sign_mantissa), "+v"(swap_bytes)); }
  // sign and mantissa | exponent, columns as words in order.
  __m512i join(__m512i words, __m512i exponent) const {
    return _mm512_ternarylogic_epi32(words, sign_mantissa, exponent, 0xEA);
  }
  __m512i swapped(__m512i words) const { return _mm512_shuffle_epi8(words, swap_bytes); }
};

struct Bf12Row {
  static constexpr ptrdiff_t kBlockBytes = 48;  // and a base byte for four
  static constexpr ptrdiff_t kFullBytes = 4 * kBlockBytes + 1;
  const unsigned char* data;
  const WeightMatrix* matrix;
  int32_t blocks;  // of 32 columns, with the last part of one
  Bf12Row(const WeightMatrix& w, ptrdiff_t r)
      : matrix(&w), blocks((w.cols + kLaneBlockCols - 1) / kLaneBlockCols) {
    data = w.data + r * ((blocks + 3) / 4 + blocks * kBlockBytes);
  }

  static __m512i exponents(uint8_t base) { return _mm512_load_si512(kExponents.words[base]); }

  // 64 columns from their codes on.
  struct Group {
    __m512i codes;
    __m512i words;
    explicit Group(const unsigned char* p)
        : codes(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))),
          words(_mm512_loadu_si512(p + 32)) {}
    Pair first(__m512i table, const Bf12Masks& masks) const {
      return widen_bf16(masks.join(words, _mm512_permutexvar_epi16(codes, table)));
    }
    Pair second(__m512i table, const Bf12Masks& masks) const {
      const __m512i upper = _mm512_srli_epi16(codes, 4);
      return widen_bf16(masks.join(masks.swapped(words), _mm512_permutexvar_epi16(upper, table)));
    }
  };
  // A group of 32 columns: columns 16 to 31 go into the upper half of the registers.
  static Pair small_group(const unsigned char* p, __m512i table, const Bf12Masks& masks) {
    const auto codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const auto words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
    const __m512i all_codes =
        _mm512_inserti64x4(_mm512_castsi256_si512(codes), _mm256_srli_epi16(codes, 4), 1);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(words), words, 1);
    const __m512i all_words = _mm512_mask_blend_epi32(0xFF00, both, masks.swapped(both));
    return widen_bf16(masks.join(all_words, _mm512_permutexvar_epi16(all_codes, table)));
  }
  // Block j of the `count` of a raw one, which begins at p.
  Pair raw(const unsigned char* p, int32_t count, int32_t j) const {
    const int32_t in_place = (static_cast<int32_t>(kBlockBytes) * count - 4) / kBf12PieceBytes;
    if (j < in_place) return widen_bf16(_mm512_loadu_si512(p + 5 + ptrdiff_t{j} * kBf12PieceBytes));
    uint32_t first = 0;
    __builtin_memcpy(&first, p + 1, sizeof first);
    const int64_t index = static_cast<int64_t>(first) - matrix->first_piece + j - in_place;
    if (index < 0 || index >= matrix->pieces)
      return {Ops::set(__builtin_nanf("")), Ops::set(__builtin_nanf(""))};
    return widen_bf16(_mm512_loadu_si512(matrix->scales + index * kBf12PieceBytes));
  }
  Pair block(ptrdiff_t b) const {
    const unsigned char* p = data + b / 4 * kFullBytes;
    const auto j = static_cast<int32_t>(b % 4);
    const auto left = blocks - static_cast<int32_t>(b - j);
    const int32_t count = left < 4 ? left : 4;
    if (*p == kBf12Raw) return raw(p, count, j);
    const __m512i table = exponents(*p);
    const unsigned char* codes = p + 1 + ptrdiff_t{j & ~1} * kBlockBytes;
    const Bf12Masks masks;
    if ((j | 1) >= count) return small_group(codes, table, masks);
    return j % 2 == 0 ? Group(codes).first(table, masks) : Group(codes).second(table, masks);
  }
  // Its rows are whole blocks.
  Pair part(ptrdiff_t b, int32_t) const { return block(b); }
};

}  // namespace
}  // namespace penstock

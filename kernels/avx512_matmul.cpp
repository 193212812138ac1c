// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by AVX-512. Weights are decoded in registers and used at once, 8 rows by up to 3
// tokens or 4 rows by up to 6 tokens in 24 accumulators; a block of rows that fits L2 goes through
// all tokens before the next. (Tiles of rows decoded into memory first were slower at every number
// of tokens, at 4 tokens up to four times.)
#include "kernels/avx512_bf12.h"
#include "kernels/avx512_lanes.h"

namespace penstock {
namespace {

constexpr int32_t kTokens = 6;  // of one register tile
constexpr ptrdiff_t kRowBlockBytes =
    ptrdiff_t{256} * 1024;  // of weights: a quarter of the smallest L2

// --- One row of each format: block(b) gives columns 32 b to 32 b + 31, part(b, n) the first n of
// them and zeros. All conversions are exact.

struct F32Row {
  static constexpr ptrdiff_t kBlockBytes = 128;
  const unsigned char* data;
  F32Row(const WeightMatrix& w, ptrdiff_t r) : data(w.data + r * w.cols * 4) {}
  Pair block(ptrdiff_t b) const { return load_pair(data + b * kBlockBytes); }
  Pair part(ptrdiff_t b, int32_t n) const { return load_pair(data + b * kBlockBytes, n); }
};

struct Bf16Row {
  static constexpr ptrdiff_t kBlockBytes = 64;
  const unsigned char* data;
  Bf16Row(const WeightMatrix& w, ptrdiff_t r) : data(w.data + r * w.cols * 2) {}
  Pair block(ptrdiff_t b) const { return widen_bf16(_mm512_loadu_si512(data + b * kBlockBytes)); }
  Pair part(ptrdiff_t b, int32_t n) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1U);
    return widen_bf16(_mm512_maskz_loadu_epi16(mask, data + b * kBlockBytes));
  }
};

struct Int8Row {
  static constexpr ptrdiff_t kBlockBytes = 32;
  const unsigned char* data;
  Int8Row(const WeightMatrix& w, ptrdiff_t r) : data(w.data + r * w.cols) {}
  static Pair widen(__m256i values) {
    const __m512i pairs = _mm512_cvtepi16_epi32(values);
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 24), 24)),
            _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 8))};
  }
  Pair block(ptrdiff_t b) const {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + b * kBlockBytes)));
  }
  Pair part(ptrdiff_t b, int32_t n) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1U);
    return widen(_mm256_maskz_loadu_epi8(mask, data + b * kBlockBytes));
  }
};

// Bits of 2^(b - 127); b = 0 is a denormal.
struct PowerTable {
  int32_t bits[256];
  constexpr PowerTable() : bits() {
    bits[0] = 0x00400000;
    for (int32_t b = 1; b < 256; ++b) bits[b] = b << 23;
  }
};
constexpr PowerTable kPowers;

struct Mxfp4Row {
  static constexpr ptrdiff_t kBlockBytes = 16;
  const unsigned char* data;
  const unsigned char* scales;
  Mxfp4Row(const WeightMatrix& w, ptrdiff_t r)
      : data(w.data + r * (w.cols / 2)), scales(w.scales + r * (w.cols / kMxfp4BlockCols)) {}
  Pair block(ptrdiff_t b) const {
    const auto* p = reinterpret_cast<const __m128i*>(data + b * kBlockBytes);
    const __m512 codes = _mm512_set_ps(-6.0F, -4.0F, -3.0F, -2.0F, -1.5F, -1.0F, -0.5F, -0.0F,  //
                                       6.0F, 4.0F, 3.0F, 2.0F, 1.5F, 1.0F, 0.5F, 0.0F);
    // Scaling the 16 codes costs one multiplication for 32 weights.
    const __m512 table = Ops::mul(codes, Ops::from_bits(kPowers.bits[scales[b]]));
    const __m512i nibbles = _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
    // The permutation looks at the low four bits of an index only.
    return {_mm512_permutexvar_ps(nibbles, table),
            _mm512_permutexvar_ps(_mm512_srli_epi32(nibbles, 4), table)};
  }
  // Its rows are whole blocks.
  Pair part(ptrdiff_t b, int32_t) const { return block(b); }
};

// --- Products.

// What a register tile works on: T tokens of `x` (prepared, x_stride apart) times 8 rows.
struct Step {
  const float* x;
  ptrdiff_t x_stride;
  ptrdiff_t blocks;  // whole ones
  int32_t rest;      // columns of one more block
  float* y;          // [T][rows], y_stride apart
  ptrdiff_t y_stride;
  __mmask8 y_rows;              // rows that exist
  const unsigned char* scales;  // floats of the rows; null: none
  // What is wanted next, for prefetches; 0: nothing. Without them a product from memory took its
  // time for loading plus its time for computing (mxfp4, 1 token: 8.0 GB/s instead of 11.8).
  ptrdiff_t rows_ahead;  // bytes from each row to the one that comes in its place
  ptrdiff_t x_ahead;     // floats from x to the one that comes in its place
};

template <int R, int T>
using Sums = __m512[static_cast<size_t>(R)][static_cast<size_t>(T)];

template <int R, int T>
inline void store_sums(const Step& s, const Sums<R, T>& sum) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (ptrdiff_t r = 0; r < R; r += 4) {
      const auto rows = static_cast<__mmask8>(s.y_rows >> r & 15);
      __m128 y = reduce(sum[r][t], sum[r + 1][t], sum[r + 2][t], sum[r + 3][t]);
      if (s.scales != nullptr) y = _mm_mul_ps(y, _mm_maskz_loadu_ps(rows, s.scales + 4 * r));
      _mm_mask_storeu_ps(s.y + t * s.y_stride + r, rows, y);
    }
  }
}

template <int R, int T>
inline void fuse(const float* x, ptrdiff_t x_stride, int r, Pair w, Sums<R, T>& sum) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    sum[r][t] = _mm512_fmadd_ps(w.even, load(x + t * x_stride), sum[r][t]);
    sum[r][t] = _mm512_fmadd_ps(w.odd, load(x + t * x_stride + kLanes), sum[r][t]);
  }
}

// What comes `ahead` bytes after block b: over all blocks, each cache line of each row once.
template <class Row, int R>
inline void prefetch_rows(const Row* rows, ptrdiff_t b, ptrdiff_t ahead) {
  constexpr ptrdiff_t kEvery = Row::kBlockBytes < 64 ? 64 / Row::kBlockBytes : 1;
  constexpr ptrdiff_t kCount = R / kEvery;
  const ptrdiff_t first = b % kEvery * kCount;
#pragma GCC unroll 8
  for (ptrdiff_t i = 0; i < kCount; ++i) {
    const char* p = reinterpret_cast<const char*>(rows[first + i].data) + b * Row::kBlockBytes;
    for (ptrdiff_t line = 0; line < Row::kBlockBytes; line += 64) {
      _mm_prefetch(p + line + ahead, _MM_HINT_T1);
    }
  }
}

template <int T>
inline void prefetch_tokens(const float* x, ptrdiff_t x_stride) {
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    _mm_prefetch(reinterpret_cast<const char*>(x + t * x_stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(x + t * x_stride + kLanes), _MM_HINT_T0);
  }
}

// Whole blocks from `first` on.
template <class Row, int R, int T>
inline void fuse_blocks(const Row* rows, const Step& s, ptrdiff_t first, Sums<R, T>& sum) {
  const float* x = s.x + first * kLaneBlockCols;
  for (ptrdiff_t b = first; b < s.blocks; ++b, x += kLaneBlockCols) {
    if (s.rows_ahead != 0) prefetch_rows<Row, R>(rows, b, s.rows_ahead);
    if (s.x_ahead != 0) prefetch_tokens<T>(x + s.x_ahead, s.x_stride);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) fuse<R, T>(x, s.x_stride, r, rows[r].block(b), sum);
  }
}

// Four blocks share the decoding of their exponents and of the halves of their groups.
template <int R, int T>
[[gnu::always_inline]] inline void fuse_four(const Bf12Row& row, ptrdiff_t four,
                                             const Bf12Masks& masks, const float* x,
                                             ptrdiff_t x_stride, int r, Sums<R, T>& sum) {
  const unsigned char* p = row.data + four * Bf12Row::kFullBytes;
  if (*p == kBf12Raw) {
#pragma GCC unroll 1
    for (int32_t j = 0; j < 4; ++j) {
      fuse<R, T>(x + ptrdiff_t{j} * kLaneBlockCols, x_stride, r, row.raw(p, 4, j), sum);
    }
    return;
  }
  const __m512i table = Bf12Row::exponents(*p);
#pragma GCC unroll 2
  for (ptrdiff_t j = 0; j < 4; j += 2) {
    const Bf12Row::Group group(p + 1 + j * Bf12Row::kBlockBytes);
    fuse<R, T>(x + j * kLaneBlockCols, x_stride, r, group.first(table, masks), sum);
    fuse<R, T>(x + (j + 1) * kLaneBlockCols, x_stride, r, group.second(table, masks), sum);
  }
}

template <int R, int T>
[[gnu::always_inline]] inline void fuse_fours(const Bf12Row* rows, const Step& s, Sums<R, T>& sum) {
  const float* x = s.x;
  const ptrdiff_t fours = s.blocks / 4;
  const Bf12Masks masks;
  for (ptrdiff_t four = 0; four < fours; ++four, x += ptrdiff_t{4} * kLaneBlockCols) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (s.rows_ahead != 0) {
        const char* next = reinterpret_cast<const char*>(rows[r].data) + s.rows_ahead;
        for (ptrdiff_t line = 0; line < 4 * Bf12Row::kBlockBytes; line += 64) {
          _mm_prefetch(next + four * Bf12Row::kFullBytes + line, _MM_HINT_T1);
        }
      }
      fuse_four<R, T>(rows[r], four, masks, x, s.x_stride, r, sum);
    }
    if (s.x_ahead != 0) {
      for (ptrdiff_t j = 0; j < 4; ++j) {
        prefetch_tokens<T>(x + s.x_ahead + j * kLaneBlockCols, s.x_stride);
      }
    }
  }
  fuse_blocks<Bf12Row, R, T>(rows, s, fours * 4, sum);
}

template <class Row, int R, int T>
void register_tile(const Row* rows, const Step& s) {
  Sums<R, T> sum;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) sum[r][t] = _mm512_setzero_ps();
  }
  if constexpr (__is_same(Row, Bf12Row)) {
    fuse_fours<R, T>(rows, s, sum);
  } else {
    fuse_blocks<Row, R, T>(rows, s, 0, sum);
  }
  if (s.rest != 0) {
    const float* x = s.x + s.blocks * kLaneBlockCols;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      fuse<R, T>(x, s.x_stride, r, rows[r].part(s.blocks, s.rest), sum);
    }
  }
  store_sums<R, T>(s, sum);
}

constexpr int32_t rows_for(int32_t tokens) {
  return tokens <= 3 ? 8 : 4;
}

template <class Row>
void register_tile(const Row* rows, int32_t tokens, const Step& s) {
  switch (tokens) {
    case 1: return register_tile<Row, rows_for(1), 1>(rows, s);
    case 2: return register_tile<Row, rows_for(2), 2>(rows, s);
    case 3: return register_tile<Row, rows_for(3), 3>(rows, s);
    case 4: return register_tile<Row, rows_for(4), 4>(rows, s);
    case 5: return register_tile<Row, rows_for(5), 5>(rows, s);
    default: return register_tile<Row, rows_for(6), 6>(rows, s);
  }
}

ptrdiff_t padded(int32_t cols) {
  return (static_cast<ptrdiff_t>(cols) + kLaneBlockCols - 1) / kLaneBlockCols * kLaneBlockCols;
}

size_t prepared_bytes(int32_t tokens, int32_t cols) {
  return static_cast<size_t>(tokens) * static_cast<size_t>(padded(cols)) * sizeof(float);
}

// One activation of `cols` values in prepared form.
void prepare_row(const float* x, int32_t cols, float* out) {
  for (int32_t c = 0; c < cols; c += kLaneBlockCols) {
    const int32_t left = cols - c;
    const Pair pair = left < kLaneBlockCols ? load_pair(x + c, left) : load_pair(x + c);
    _mm512_storeu_ps(out + c, pair.even);
    _mm512_storeu_ps(out + c + kLanes, pair.odd);
  }
}

void prepare(const float* x, ptrdiff_t ldx, int32_t cols, int32_t token_begin, int32_t token_end,
             void* prepared) {
  for (ptrdiff_t t = token_begin; t < token_end; ++t) {
    prepare_row(x + t * ldx, cols, static_cast<float*>(prepared) + t * padded(cols));
  }
}

int32_t smaller(int32_t a, int32_t b) {
  return a < b ? a : b;
}

// What one call of run() works on.
struct Product {
  const WeightMatrix& w;
  int32_t row_begin;
  int32_t row_end;
  const float* x;  // [tokens], prepared or plain
  int32_t tokens;
  float* y;
  ptrdiff_t ldy;
};

// Rows [row, end) times tokens [t, t + tokens); rows_for(tokens) at a time.
template <class Row>
void multiply_rows(const Product& p, int32_t row, int32_t end, int32_t t, int32_t tokens, Step s) {
  const ptrdiff_t x_ahead = t + tokens < p.tokens ? tokens * s.x_stride : 0;
  const int32_t step = rows_for(tokens);
  s.x = p.x + t * s.x_stride;
  for (int32_t r = row; r < end; r += step) {
    const auto at = [&](int32_t i) { return Row(p.w, smaller(r + i, end - 1)); };
    const Row rows[8] = {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
    // Rows come from memory for the first tokens only, and the next tokens once per row block.
    s.rows_ahead = t == 0 && r + step < p.row_end ? Row(p.w, r + step).data - rows[0].data : 0;
    s.x_ahead = r == row ? x_ahead : 0;
    s.y = p.y + t * p.ldy + (r - p.row_begin);
    s.y_rows = static_cast<__mmask8>(lanes_below(end - r));
    if (p.w.format == WeightFormat::int8_rows) {
      s.scales = p.w.scales + static_cast<ptrdiff_t>(r) * 4;
    }
    register_tile(rows, tokens, s);
  }
}

template <class Row>
void matmul(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const void* prepared,
            int32_t tokens, float* y, ptrdiff_t ldy) {
  const Product p{w, row_begin, row_end, static_cast<const float*>(prepared), tokens, y, ldy};
  Step s{};
  s.x_stride = padded(w.cols);
  s.blocks = w.cols / kLaneBlockCols;
  s.rest = w.cols % kLaneBlockCols;
  s.y_stride = ldy;
  const ptrdiff_t group_bytes = 8 * (s.blocks + 1) * Row::kBlockBytes;
  const int32_t row_block = 8 * static_cast<int32_t>(kRowBlockBytes / group_bytes + 1);
  for (int32_t row = row_begin; row < row_end; row += row_block) {
    const int32_t end = row_end - row < row_block ? row_end : row + row_block;
    for (int32_t t = 0; t < tokens; t += kTokens) {
      multiply_rows<Row>(p, row, end, t, smaller(kTokens, tokens - t), s);
    }
  }
}

// T tokens by B blocks of 32 columns, down all rows. `rest` below 32: B is 1 and this many columns.
template <class Row, int T, int B>
void transposed_strip(const Product& p, ptrdiff_t ldx, int32_t block, int32_t rest) {
  Pair sum[static_cast<size_t>(T)][static_cast<size_t>(B)];
  for (auto& token : sum) {
    for (Pair& pair : token) pair = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  }
  for (int32_t r = p.row_begin; r < p.row_end; ++r) {
    const Row row(p.w, r);
    float scale = 1.0F;
    if (p.w.format == WeightFormat::int8_rows) {
      __builtin_memcpy(&scale, p.w.scales + static_cast<ptrdiff_t>(r) * 4, sizeof scale);
    }
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) {
      const Pair w = rest < kLaneBlockCols ? row.part(block, rest) : row.block(block + b);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m512 x = _mm512_set1_ps(p.x[t * ldx + r - p.row_begin] * scale);
        sum[t][b].even = _mm512_fmadd_ps(w.even, x, sum[t][b].even);
        sum[t][b].odd = _mm512_fmadd_ps(w.odd, x, sum[t][b].odd);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int b = 0; b < B; ++b) {
      const Pair y = join(sum[t][b]);
      float* out = p.y + t * p.ldy + static_cast<ptrdiff_t>(block + b) * kLaneBlockCols;
      _mm512_mask_storeu_ps(out, lanes_below(rest), y.even);
      _mm512_mask_storeu_ps(out + kLanes, lanes_below(rest - kLanes), y.odd);
    }
  }
}

template <class Row, int T, int B>
void transposed_tokens(const Product& p, ptrdiff_t ldx) {
  const int32_t blocks = p.w.cols / kLaneBlockCols;
  const int32_t rest = p.w.cols % kLaneBlockCols;
  int32_t b = 0;
  for (; b + B <= blocks; b += B) transposed_strip<Row, T, B>(p, ldx, b, kLaneBlockCols);
  for (; b < blocks; ++b) transposed_strip<Row, T, 1>(p, ldx, b, kLaneBlockCols);
  if (rest != 0) transposed_strip<Row, T, 1>(p, ldx, b, rest);
}

template <class Row>
void matmul_t(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const float* x,
              ptrdiff_t ldx, int32_t tokens, float* y, ptrdiff_t ldy) {
  Product p{w, row_begin, row_end, x, tokens, y, ldy};
  int32_t t = 0;
  for (; t + 4 <= tokens; t += 4, p.x += 4 * ldx, p.y += 4 * ldy) {
    transposed_tokens<Row, 4, 2>(p, ldx);
  }
  for (; t < tokens; ++t, p.x += ldx, p.y += ldy) transposed_tokens<Row, 1, 8>(p, ldx);
}

template <class Row>
void set_matmul(WeightFormat format, Kernels* table) {
  const int i = static_cast<int>(format);
  table->matmul[i] = {prepared_bytes, prepare, matmul<Row>};
  table->matmul_t[i] = matmul_t<Row>;
}

}  // namespace

void set_avx512_matmul(Kernels* table) {
  set_matmul<F32Row>(WeightFormat::f32, table);
  set_matmul<Bf16Row>(WeightFormat::bf16, table);
  set_matmul<Int8Row>(WeightFormat::int8_rows, table);
  set_matmul<Mxfp4Row>(WeightFormat::mxfp4, table);
  set_matmul<Bf12Row>(WeightFormat::bf12, table);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by AVX-512, 8 rows by up to 3 tokens in 24 accumulators: straight from the
// weights for up to 3 tokens, else from a tile of rows that is decoded once for kTileTokens tokens.
#include "kernels/avx512_lanes.h"

namespace penstock {
namespace {

constexpr int32_t kRows = 8;         // of one register tile
constexpr int32_t kTokens = 3;       // of one register tile
constexpr int32_t kTileRows = 16;    // decoded together
constexpr int32_t kTileBlocks = 16;  // of 32 columns: 16 KiB per 8 decoded rows, half of L1
constexpr int32_t kTileTokens = 48;  // share a decoded tile; their accumulators take 48 KiB

// --- One row of each format: block(b) gives columns 32 b to 32 b + 31, part(b, n) the first n of
// them and zeros. All conversions are exact.

struct F32Row {
  const float* data;  // at any alignment
  F32Row(const WeightMatrix& w, ptrdiff_t r)
      : data(reinterpret_cast<const float*>(w.data + r * w.cols * 4)) {}
  Pair block(ptrdiff_t b) const {
    const float* p = data + b * kLaneBlockCols;
    _mm_prefetch(reinterpret_cast<const char*>(p + 256), _MM_HINT_T0);
    return load_pair(p);
  }
  Pair part(ptrdiff_t b, int32_t n) const { return load_pair(data + b * kLaneBlockCols, n); }
};

struct Bf16Row {
  const unsigned char* data;
  Bf16Row(const WeightMatrix& w, ptrdiff_t r) : data(w.data + r * w.cols * 2) {}
  static Pair widen(__m512i values) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000U));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(values, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(values, upper))};
  }
  Pair block(ptrdiff_t b) const {
    const unsigned char* p = data + b * 64;
    _mm_prefetch(reinterpret_cast<const char*>(p + 1024), _MM_HINT_T0);
    return widen(_mm512_loadu_si512(p));
  }
  Pair part(ptrdiff_t b, int32_t n) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1U);
    return widen(_mm512_maskz_loadu_epi16(mask, data + b * 64));
  }
};

struct Int8Row {
  const unsigned char* data;
  Int8Row(const WeightMatrix& w, ptrdiff_t r) : data(w.data + r * w.cols) {}
  static Pair widen(__m256i values) {
    const __m512i pairs = _mm512_cvtepi16_epi32(values);
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 24), 24)),
            _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 8))};
  }
  Pair block(ptrdiff_t b) const {
    const unsigned char* p = data + b * 32;
    _mm_prefetch(reinterpret_cast<const char*>(p + 1024), _MM_HINT_T0);
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  Pair part(ptrdiff_t b, int32_t n) const {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1U);
    return widen(_mm256_maskz_loadu_epi8(mask, data + b * 32));
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
  const unsigned char* data;
  const unsigned char* scales;
  Mxfp4Row(const WeightMatrix& w, ptrdiff_t r)
      : data(w.data + r * (w.cols / 2)), scales(w.scales + r * (w.cols / kMxfp4BlockCols)) {}
  Pair block(ptrdiff_t b) const {
    const unsigned char* p = data + b * 16;
    _mm_prefetch(reinterpret_cast<const char*>(p + 512), _MM_HINT_T0);
    const __m512 codes = _mm512_set_ps(-6.0F, -4.0F, -3.0F, -2.0F, -1.5F, -1.0F, -0.5F, -0.0F,  //
                                       6.0F, 4.0F, 3.0F, 2.0F, 1.5F, 1.0F, 0.5F, 0.0F);
    // Scaling the 16 codes costs one multiplication for 32 weights.
    const __m512 table = Ops::mul(codes, Ops::from_bits(kPowers.bits[scales[b]]));
    const __m512i nibbles =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    // The permutation looks at the low four bits of an index only.
    return {_mm512_permutexvar_ps(nibbles, table),
            _mm512_permutexvar_ps(_mm512_srli_epi32(nibbles, 4), table)};
  }
  // Its rows are whole blocks.
  Pair part(ptrdiff_t b, int32_t) const { return block(b); }
};

// A row that decode_tile() left in prepared form.
struct DecodedRow {
  const float* data;
  Pair block(ptrdiff_t b) const { return {load(data + b * 32), load(data + b * 32 + 16)}; }
  Pair part(ptrdiff_t b, int32_t) const { return block(b); }
};

// --- Products.

// What a register tile works on: T tokens of `x` (prepared, x_stride apart) times 8 rows.
struct Step {
  const float* x;
  ptrdiff_t x_stride;
  ptrdiff_t blocks;  // whole ones, counted from where x and the rows begin
  int32_t rest;      // columns of one more block
  float* lanes;      // [8][T][16] accumulators; null: start at zero and keep nothing
  bool first;        // do not read `lanes`
  bool last;         // reduce into y instead of writing `lanes`
  float* y;          // [T][rows], y_stride apart
  ptrdiff_t y_stride;
  __mmask8 y_rows;      // rows that exist
  const float* scales;  // of the rows, at any alignment; null: none
};

template <int T>
using Sums = __m512[kRows][static_cast<size_t>(T)];

template <int T>
inline void store_sums(const Step& s, const Sums<T>& sum) {
#pragma GCC unroll 3
  for (int t = 0; t < T; ++t) {
    const __m128 low = reduce(sum[0][t], sum[1][t], sum[2][t], sum[3][t]);
    const __m128 high = reduce(sum[4][t], sum[5][t], sum[6][t], sum[7][t]);
    __m256 y = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
    if (s.scales != nullptr) y = _mm256_mul_ps(y, _mm256_maskz_loadu_ps(s.y_rows, s.scales));
    _mm256_mask_storeu_ps(s.y + t * s.y_stride, s.y_rows, y);
  }
}

template <int T>
inline void fuse(const float* x, ptrdiff_t x_stride, int r, Pair w, Sums<T>& sum) {
#pragma GCC unroll 3
  for (int t = 0; t < T; ++t) {
    sum[r][t] = _mm512_fmadd_ps(w.even, load(x + t * x_stride), sum[r][t]);
    sum[r][t] = _mm512_fmadd_ps(w.odd, load(x + t * x_stride + kLanes), sum[r][t]);
  }
}

template <class Row, int T>
void register_tile(const Row (&rows)[kRows], const Step& s) {
  Sums<T> sum;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) {
      sum[r][t] = s.first ? _mm512_setzero_ps() : load(s.lanes + (r * T + t) * kLanes);
    }
  }
  const float* x = s.x;
  for (ptrdiff_t b = 0; b < s.blocks; ++b, x += kLaneBlockCols) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) fuse<T>(x, s.x_stride, r, rows[r].block(b), sum);
  }
  if (s.rest != 0) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) fuse<T>(x, s.x_stride, r, rows[r].part(s.blocks, s.rest), sum);
  }
  if (s.last) return store_sums<T>(s, sum);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(s.lanes + (r * T + t) * kLanes, sum[r][t]);
  }
}

template <class Row>
void register_tile(const Row (&rows)[kRows], int32_t tokens, const Step& s) {
  switch (tokens) {
    case 1: return register_tile<Row, 1>(rows, s);
    case 2: return register_tile<Row, 2>(rows, s);
    default: return register_tile<Row, 3>(rows, s);
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

// The output side of a step: rows [r, r + 8) below row_end.
void set_rows(const WeightMatrix& w, int32_t r, int32_t row_end, Step* s) {
  s->y_rows = static_cast<__mmask8>(lanes_below(row_end - r));
  s->scales = w.format == WeightFormat::int8_rows
                  ? reinterpret_cast<const float*>(w.scales + static_cast<ptrdiff_t>(r) * 4)
                  : nullptr;
}

// What one call of run() works on.
struct Product {
  const WeightMatrix& w;
  int32_t row_begin;
  int32_t row_end;
  const float* x;  // prepared
  int32_t tokens;
  float* y;
  ptrdiff_t ldy;
};

// Up to 3 tokens: every weight is read once and used from the register.
template <class Row>
void multiply_few(const Product& p) {
  const int32_t last = p.row_end - 1;
  for (int32_t r = p.row_begin; r < p.row_end; r += kRows) {
    const Row rows[kRows] = {
        {p.w, r},
        {p.w, smaller(r + 1, last)},
        {p.w, smaller(r + 2, last)},
        {p.w, smaller(r + 3, last)},
        {p.w, smaller(r + 4, last)},
        {p.w, smaller(r + 5, last)},
        {p.w, smaller(r + 6, last)},
        {p.w, smaller(r + 7, last)},
    };
    Step s{};
    s.x = p.x;
    s.x_stride = padded(p.w.cols);
    s.blocks = p.w.cols / kLaneBlockCols;
    s.rest = p.w.cols % kLaneBlockCols;
    s.first = true;
    s.last = true;
    s.y = p.y + (r - p.row_begin);
    s.y_stride = p.ldy;
    set_rows(p.w, r, p.row_end, &s);
    register_tile(rows, p.tokens, s);
  }
}

// Rows [row, row + 16) below row_end, blocks [block, block + blocks), in prepared form.
template <class Row>
void decode_tile(const WeightMatrix& w, int32_t row, int32_t row_end, int32_t block, int32_t blocks,
                 float* out) {
  for (int32_t i = 0; i < kTileRows; ++i, out += kTileBlocks * kLaneBlockCols) {
    const Row from(w, smaller(row + i, row_end - 1));
    for (int32_t b = 0; b < blocks; ++b) {
      const int32_t left = w.cols - (block + b) * kLaneBlockCols;
      const Pair pair = left < kLaneBlockCols ? from.part(block + b, left) : from.block(block + b);
      _mm512_store_ps(out + b * kLaneBlockCols, pair.even);
      _mm512_store_ps(out + b * kLaneBlockCols + kLanes, pair.odd);
    }
  }
}

struct Tile {
  alignas(64) float weights[kTileRows][kTileBlocks * kLaneBlockCols];
  alignas(64) float lanes[kTileRows * kTileTokens * kLanes];
};

// The decoded rows [row, row + 16) and blocks [block, block + blocks) times tokens
// [token, token + tokens).
void multiply_tile(const Product& p, int32_t row, int32_t token, int32_t tokens, int32_t block,
                   int32_t blocks, Tile* tile) {
  Step s{};
  s.x_stride = padded(p.w.cols);
  s.blocks = blocks;
  s.first = block == 0;
  s.last = (block + blocks) * kLaneBlockCols >= p.w.cols;
  s.y_stride = p.ldy;
  for (int32_t half = 0; half < kTileRows && row + half < p.row_end; half += kRows) {
    DecodedRow rows[kRows];
    for (int32_t r = 0; r < kRows; ++r) rows[r].data = tile->weights[half + r];
    set_rows(p.w, row + half, p.row_end, &s);
    for (int32_t t = 0; t < tokens; t += kTokens) {
      s.x = p.x + (token + t) * s.x_stride + static_cast<ptrdiff_t>(block) * kLaneBlockCols;
      s.lanes = tile->lanes + (half * kTileTokens + t * kRows) * kLanes;
      s.y = p.y + (token + t) * p.ldy + (row + half - p.row_begin);
      register_tile(rows, tokens - t, s);
    }
  }
}

// Many tokens: weights are decoded once per kTileTokens tokens; lane sums go from one range of
// columns to the next, so the order is that of multiply_few().
template <class Row>
void multiply_many(const Product& p) {
  Tile tile;
  const int32_t all_blocks = static_cast<int32_t>(padded(p.w.cols) / kLaneBlockCols);
  for (int32_t row = p.row_begin; row < p.row_end; row += kTileRows) {
    for (int32_t token = 0; token < p.tokens; token += kTileTokens) {
      const int32_t tokens = smaller(kTileTokens, p.tokens - token);
      for (int32_t block = 0; block < all_blocks; block += kTileBlocks) {
        const int32_t blocks = smaller(kTileBlocks, all_blocks - block);
        decode_tile<Row>(p.w, row, p.row_end, block, blocks, tile.weights[0]);
        multiply_tile(p, row, token, tokens, block, blocks, &tile);
      }
    }
  }
}

template <class Row>
void matmul(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const void* prepared,
            int32_t tokens, float* y, ptrdiff_t ldy) {
  const Product p{w, row_begin, row_end, static_cast<const float*>(prepared), tokens, y, ldy};
  if (tokens <= kTokens) {
    multiply_few<Row>(p);
  } else {
    multiply_many<Row>(p);
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
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The definition of every slot, one number at a time. Speed is no concern here.
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/math_steps.h"
#include "kernels/tables.h"

namespace penstock {
namespace {

constexpr int32_t kLanes = kLaneBlockCols / 2;

float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

uint32_t bits_of(float x) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float x = 0.0F;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

float load_float(const unsigned char* p) {
  float x = 0.0F;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

struct Ops {
  using Float = float;
  using Mask = bool;
  static float set(float x) { return x; }
  static float from_bits(int32_t bits) { return float_of(static_cast<uint32_t>(bits)); }
  static float add(float a, float b) { return a + b; }
  static float sub(float a, float b) { return a - b; }
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float fma(float a, float b, float c) { return fused(a, b, c); }
  static float max(float a, float b) { return a > b ? a : b; }
  static float min(float a, float b) { return a < b ? a : b; }
  static float abs(float a) { return float_of(bits_of(a) & 0x7FFFFFFFU); }
  static float negate(float a) { return float_of(bits_of(a) ^ 0x80000000U); }
  static float copy_sign(float a, float sign) {
    return float_of(bits_of(a) | (bits_of(sign) & 0x80000000U));
  }
  static bool less(float a, float b) { return a < b; }
  static bool is_nan(float a) { return a != a; }
  static float select(bool mask, float yes, float no) { return mask ? yes : no; }
  static float scale_by_power(float p, float t) {
    const int32_t n = static_cast<int32_t>(bits_of(t)) - kRoundBits;
    const int32_t half = n >> 1;
    return p * power(half) * power(n - half);
  }
  static float power(int32_t n) { return float_of(static_cast<uint32_t>(n + 127) << 23); }
};

using Steps = MathSteps<Ops>;

uint32_t load_word(const unsigned char* p) {
  return p[0] | static_cast<uint32_t>(p[1]) << 8;
}

// Column c of a raw block of `pieces` 32s, as bf16; its index and data begin at p.
uint32_t bf12_raw(const WeightMatrix& w, const unsigned char* p, int32_t pieces, int32_t c) {
  const int32_t in_place = bf12_pieces_in_place(pieces);
  const int32_t piece = c / kBf12PieceCols;
  if (piece < in_place) return load_word(p + 4 + c * 2);
  const int64_t first = load_word(p) | static_cast<int64_t>(load_word(p + 2)) << 16;
  const int64_t index = first - w.first_piece + piece - in_place;
  if (index < 0 || index >= w.pieces) return 0x7FC0;
  return load_word(w.scales + index * kBf12PieceBytes + c % kBf12PieceCols * 2);
}

// Column c of a row, as bf16.
uint32_t bf12_weight(const WeightMatrix& w, const unsigned char* row, int32_t c) {
  const int32_t first = c / kBf12BlockCols * kBf12BlockCols;
  const int32_t pieces_left = (w.cols - first + kBf12PieceCols - 1) / kBf12PieceCols;
  const int32_t pieces = pieces_left < 4 ? pieces_left : 4;
  const unsigned char* block = row + row_data_bytes(WeightFormat::bf12, first);
  const uint32_t base = block[0];
  if (base == kBf12Raw) return bf12_raw(w, block + 1, pieces, c - first);
  const int32_t group = (c - first) / 64;
  const int32_t half = pieces - group * 2 >= 2 ? 32 : 16;
  const int32_t in_half = (c - first) % 64 % half;
  const bool upper = (c - first) % 64 >= half;
  const unsigned char* codes = block + 1 + group * 96;
  const uint32_t code = (codes[in_half] >> (upper ? 4 : 0)) & 15U;
  const unsigned char* word = codes + half + in_half * 2;
  const uint32_t sign_and_mantissa =
      upper ? word[1] | static_cast<uint32_t>(word[0]) << 8 : load_word(word);
  const uint32_t exponent = code == 0 ? 0 : base - 15 + code;
  return (sign_and_mantissa & 0x807FU) | exponent << 7;
}

// One weight; int8_rows without its row scale. All conversions are exact.
float weight(const WeightMatrix& w, int32_t r, int32_t c) {
  const size_t row = static_cast<size_t>(r);
  const size_t col = static_cast<size_t>(c);
  const unsigned char* data = w.data + row * row_data_bytes(w.format, w.cols);
  switch (w.format) {
    case WeightFormat::f32: return load_float(data + col * 4);
    case WeightFormat::bf16: {
      uint16_t upper = 0;
      __builtin_memcpy(&upper, data + col * 2, sizeof upper);
      return float_of(static_cast<uint32_t>(upper) << 16);
    }
    case WeightFormat::int8_rows: return static_cast<float>(static_cast<int8_t>(data[col]));
    case WeightFormat::mxfp4: {
      const uint32_t code = (data[col / 2] >> (col % 2 * 4)) & 15U;
      const uint32_t exponent = w.scales[row * row_scale_bytes(w.format, w.cols) + col / 32];
      const float scale = float_of(exponent == 0 ? 0x00400000U : exponent << 23);
      const float magnitude = kMxfp4Magnitudes[code & 7U];
      return (code < 8 ? magnitude : -magnitude) * scale;
    }
    case WeightFormat::bf12: return float_of(bf12_weight(w, data, c) << 16);
  }
  return 0.0F;
}

float row_scale(const WeightMatrix& w, int32_t r) {
  if (w.format != WeightFormat::int8_rows) return 1.0F;
  return load_float(w.scales + static_cast<size_t>(r) * sizeof(float));
}

// The fixed tree over 16 lanes.
template <float (*combine)(float, float)>
float reduce(float (&lanes)[kLanes]) {
  for (int32_t width = kLanes / 2; width > 0; width /= 2) {
    for (int32_t l = 0; l < width; ++l) lanes[l] = combine(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

int32_t blocks_of(int32_t cols) {
  return (cols + kLaneBlockCols - 1) / kLaneBlockCols;
}

size_t prepared_token_values(int32_t cols) {
  return static_cast<size_t>(blocks_of(cols)) * kLaneBlockCols;
}

size_t prepared_bytes(int32_t tokens, int32_t cols) {
  return static_cast<size_t>(tokens) * prepared_token_values(cols) * sizeof(float);
}

void prepare(const float* x, ptrdiff_t ldx, int32_t cols, int32_t token_begin, int32_t token_end,
             void* prepared) {
  const int32_t padded = blocks_of(cols) * kLaneBlockCols;
  for (int32_t t = token_begin; t < token_end; ++t) {
    float* out =
        static_cast<float*>(prepared) + static_cast<size_t>(t) * prepared_token_values(cols);
    for (int32_t c = 0; c < padded; ++c) {
      const int32_t block = c / kLaneBlockCols * kLaneBlockCols;
      out[block + c % 2 * kLanes + (c - block) / 2] = c < cols ? x[t * ldx + c] : 0.0F;
    }
  }
}

void matmul(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const void* prepared,
            int32_t tokens, float* y, ptrdiff_t ldy) {
  const int32_t blocks = blocks_of(w.cols);
  for (int32_t r = row_begin; r < row_end; ++r) {
    for (int32_t t = 0; t < tokens; ++t) {
      const float* x = static_cast<const float*>(prepared) +
                       static_cast<size_t>(t) * prepared_token_values(w.cols);
      float lanes[kLanes] = {};
      for (int32_t b = 0; b < blocks; ++b) {
        for (int32_t i = 0; i < kLaneBlockCols; ++i) {
          const int32_t c = b * kLaneBlockCols + i;
          const float value = c < w.cols ? weight(w, r, c) : 0.0F;
          lanes[i / 2] = fused(value, x[b * kLaneBlockCols + i % 2 * kLanes + i / 2], lanes[i / 2]);
        }
      }
      const float sum = reduce<Ops::add>(lanes);
      y[t * ldy + r - row_begin] =
          w.format == WeightFormat::int8_rows ? sum * row_scale(w, r) : sum;
    }
  }
}

void matmul_t(const WeightMatrix& w, int32_t row_begin, int32_t row_end, const float* x,
              ptrdiff_t ldx, int32_t tokens, float* y, ptrdiff_t ldy) {
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t c = 0; c < w.cols; ++c) {
      float sum = 0.0F;
      for (int32_t r = row_begin; r < row_end; ++r) {
        sum = fused(weight(w, r, c), x[t * ldx + r - row_begin] * row_scale(w, r), sum);
      }
      y[t * ldy + c] = sum;
    }
  }
}

float dot(const float* a, const float* b, size_t n) {
  float lanes[kLanes] = {};
  const size_t padded = (n + kLaneBlockCols - 1) / kLaneBlockCols * kLaneBlockCols;
  for (size_t i = 0; i < padded; ++i) {
    float& lane = lanes[i % kLaneBlockCols / 2];
    lane = i < n ? fused(a[i], b[i], lane) : fused(0.0F, 0.0F, lane);
  }
  return reduce<Ops::add>(lanes);
}

template <float (*f)(float)>
void map(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

void sigmoid_mul(const float* gate, const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = Steps::sigmoid(gate[i]) * x[i];
}

void silu_mul(const float* gate, const float* up, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = gate[i] * Steps::sigmoid(gate[i]) * up[i];
}

void situ_mul(const float* gate, const float* up, float beta, float linear_beta, float* y,
              size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float g = beta * Steps::tanh(gate[i] / beta) * Steps::sigmoid(gate[i]);
    const float u = linear_beta == 0.0F ? up[i] : linear_beta * Steps::tanh(up[i] / linear_beta);
    y[i] = g * u;
  }
}

void axpy(float a, const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = fused(a, x[i], y[i]);
}

void kda(const KdaHead& head) {
  for (int32_t t = 0; t < head.tokens; ++t) {
    const float* before = t == 0 ? head.initial : head.state;
    const float* q = head.q + t * head.qkv_stride;
    const float* k = head.k + t * head.qkv_stride;
    const float* decay = head.decay + t * head.row_stride;
    for (int32_t j = 0; j < head.value_dim; ++j) {
      const auto at = [&](int32_t i) { return static_cast<ptrdiff_t>(i) * head.value_dim + j; };
      float u = 0.0F;
      for (int32_t i = 0; i < head.key_dim; ++i) {
        const float s = before[at(i)] * decay[i];
        head.state[at(i)] = s;
        u = fused(k[i], s, u);
      }
      const float d = head.beta[t * head.beta_stride] * (head.v[t * head.qkv_stride + j] - u);
      float out = 0.0F;
      for (int32_t i = 0; i < head.key_dim; ++i) {
        const float s = fused(k[i], d, head.state[at(i)]);
        head.state[at(i)] = s;
        out = fused(q[i], s, out);
      }
      head.out[t * head.row_stride + j] = out;
    }
  }
}

void attend(const AttentionBlock& block, AttentionPartial* partial) {
  float p[kAttentionBlock];
  float lanes[kLanes];
  for (float& lane : lanes) lane = -__builtin_inff();
  for (int32_t i = 0; i < block.positions; ++i) {
    const float* row = block.cache + static_cast<ptrdiff_t>(i) * block.width;
    p[i] = block.scale * dot(block.query, row, static_cast<size_t>(block.width));
    lanes[i % kLanes] = Ops::max(p[i], lanes[i % kLanes]);
  }
  partial->max = reduce<Ops::max>(lanes);
  for (float& lane : lanes) lane = 0.0F;
  for (int32_t i = 0; i < block.positions; ++i) {
    p[i] = Steps::exp(p[i] - partial->max);
    lanes[i % kLanes] += p[i];
  }
  partial->sum = reduce<Ops::add>(lanes);
  for (int32_t r = 0; r < block.latent; ++r) {
    float sum = 0.0F;
    for (int32_t i = 0; i < block.positions; ++i) {
      sum = fused(p[i], block.cache[static_cast<ptrdiff_t>(i) * block.width + r], sum);
    }
    partial->weighted[r] = sum;
  }
}

}  // namespace

Kernels scalar_kernels() {
  Kernels table{};
  table.name = "scalar";
  for (int format = 0; format < kWeightFormats; ++format) {
    table.matmul[format] = {prepared_bytes, prepare, matmul};
    table.matmul_t[format] = matmul_t;
  }
  table.dot = dot;
  table.exp = map<Steps::exp>;
  table.tanh = map<Steps::tanh>;
  table.sigmoid = map<Steps::sigmoid>;
  table.softplus = map<Steps::softplus>;
  table.sigmoid_mul = sigmoid_mul;
  table.silu_mul = silu_mul;
  table.situ_mul = situ_mul;
  table.axpy = axpy;
  table.kda = kda;
  table.attend = attend;
  return table;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/kernel_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ostream>

namespace penstock {

// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Kernels* table, std::ostream* out) {
  *out << table->name;
}

}  // namespace penstock

#include "engine/weights/bf12.h"

namespace penstock::test {

std::vector<const Kernels*> all_tables() {
  const KernelList list = supported_kernels();
  return {list.tables, list.tables + list.count};
}

std::string table_name(const testing::TestParamInfo<const Kernels*>& info) {
  return info.param->name;
}

const char* format_name(WeightFormat format) {
  constexpr const char* kNames[] = {"f32", "bf16", "int8_rows", "mxfp4", "bf12"};
  return kNames[static_cast<int>(format)];
}

bool allows_cols(WeightFormat format, std::int32_t cols) {
  return format != WeightFormat::mxfp4 || cols % kMxfp4BlockCols == 0;
}

std::uint64_t Random::bits() {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

float Random::uniform(float low, float high) {
  const float unit = static_cast<float>(bits() >> 40) * 0x1p-24F;
  return low + (high - low) * unit;
}

GuardBuffer zero_floats(std::size_t count) {
  return GuardBuffer(count * sizeof(float));
}

float* floats(const GuardBuffer& buffer) {
  return buffer.as<float>().data();
}

GuardBuffer random_floats(std::size_t count, std::uint64_t seed, float low, float high) {
  GuardBuffer buffer = zero_floats(count);
  Random random(seed);
  for (float& value : buffer.as<float>()) value = random.uniform(low, high);
  return buffer;
}

namespace {

void store_float(float value, unsigned char* at) {
  std::memcpy(at, &value, sizeof value);
}

void fill_scales(WeightFormat format, std::span<unsigned char> out, Random* random) {
  if (format == WeightFormat::int8_rows) {
    for (std::size_t i = 0; i + sizeof(float) <= out.size(); i += sizeof(float)) {
      store_float(random->uniform(0.001F, 0.02F), &out[i]);
    }
    return;
  }
  for (unsigned char& b : out) {
    const std::uint64_t bits = random->bits();
    // One block in eight has a scale whose products reach into the denormals.
    b = static_cast<unsigned char>(bits % 8 == 0 ? bits / 8 % 3 : 112 + bits / 8 % 12);
  }
}

void fill_data(WeightFormat format, std::span<unsigned char> out, Random* random) {
  if (format == WeightFormat::f32) {
    for (std::size_t i = 0; i < out.size(); i += 4) store_float(random->uniform(-1, 1), &out[i]);
    return;
  }
  if (format == WeightFormat::bf16) {
    for (std::size_t i = 0; i < out.size(); i += 2) {
      const auto bits = std::bit_cast<std::uint32_t>(random->uniform(-1, 1));
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(&out[i], &upper, sizeof upper);
    }
    return;
  }
  for (unsigned char& byte : out) byte = static_cast<unsigned char>(random->bits());
}

// In some blocks of 128 columns some values become tiny (the block is raw then), zero, subnormal.
void vary_exponents(const TestMatrix& bf16, Random* random) {
  const auto cols = static_cast<std::size_t>(bf16.view.cols);
  for (std::size_t i = 0; i < bf16.data.size_bytes() / 2; ++i) {
    const std::size_t block = i / cols * 31 + i % cols / 128;
    const std::uint64_t bits = random->bits();
    if (bits % 8 != 0) continue;
    std::uint16_t value = static_cast<std::uint16_t>(bits >> 32 & 0x8000U);
    if (block % 3 == 0) value |= static_cast<std::uint16_t>(bits >> 40 & 0x7FU);
    if (block % 4 == 1) value |= static_cast<std::uint16_t>(bits >> 40 & 0x3FFFU);
    std::memcpy(bf16.data.data() + i * 2, &value, sizeof value);
  }
}

}  // namespace

TestMatrix encoded_bf12(const WeightMatrix& bf16, std::size_t slack_bytes) {
  const auto rows = static_cast<std::size_t>(bf16.rows);
  const auto cols = static_cast<std::size_t>(bf16.cols);
  const std::size_t row_bytes = row_data_bytes(WeightFormat::bf12, bf16.cols);
  TestMatrix m{GuardBuffer(rows * row_bytes + slack_bytes), {}, {}};
  Bf12Pieces pieces;
  std::vector<std::uint16_t> row(cols);
  for (std::size_t r = 0; r < rows; ++r) {
    std::memcpy(row.data(), bf16.data + r * cols * 2, cols * 2);
    EXPECT_EQ(encode_bf12_row(row, m.data.data() + r * row_bytes, pieces), -1);
  }
  m.scales = GuardBuffer(pieces.bytes.size() + slack_bytes);
  std::copy(pieces.bytes.begin(), pieces.bytes.end(), m.scales.data());
  m.view = {m.data.data(), m.scales.data(), bf16.rows, bf16.cols, WeightFormat::bf12};
  m.view.pieces = static_cast<std::uint32_t>(pieces.bytes.size() / kBf12PieceBytes);
  return m;
}

TestMatrix decoded_bf16(const WeightMatrix& bf12) {
  const auto rows = static_cast<std::size_t>(bf12.rows);
  const auto cols = static_cast<std::size_t>(bf12.cols);
  TestMatrix m{GuardBuffer(rows * cols * 2), {}, {}};
  for (std::size_t r = 0; r < rows; ++r) {
    decode_bf12_row(bf12, static_cast<std::int32_t>(r),
                    m.data.as<std::uint16_t>().subspan(r * cols, cols));
  }
  m.view = {m.data.data(), nullptr, bf12.rows, bf12.cols, WeightFormat::bf16};
  return m;
}

TestMatrix random_matrix(WeightFormat format, std::int32_t rows, std::int32_t cols,
                         std::uint64_t seed, std::size_t slack_bytes) {
  if (format == WeightFormat::bf12) {
    const TestMatrix bf16 = random_matrix(WeightFormat::bf16, rows, cols, seed);
    Random random(seed);
    vary_exponents(bf16, &random);
    return encoded_bf12(bf16.view, slack_bytes);
  }
  const auto count = static_cast<std::size_t>(rows);
  const std::size_t data_bytes = count * row_data_bytes(format, cols);
  const std::size_t scale_bytes = count * row_scale_bytes(format, cols);
  TestMatrix m{GuardBuffer(data_bytes + slack_bytes), GuardBuffer(scale_bytes + slack_bytes), {}};
  Random random(seed);
  fill_data(format, {m.data.data(), data_bytes}, &random);
  fill_scales(format, {m.scales.data(), scale_bytes}, &random);
  m.view = {m.data.data(), scale_bytes == 0 ? nullptr : m.scales.data(), rows, cols, format};
  return m;
}

double weight_value(const WeightMatrix& w, std::int32_t r, std::int32_t c) {
  const auto row = static_cast<std::size_t>(r);
  const auto col = static_cast<std::size_t>(c);
  const unsigned char* data = w.data + row * row_data_bytes(w.format, w.cols);
  if (w.format == WeightFormat::f32) {
    float value = 0;
    std::memcpy(&value, data + 4 * col, sizeof value);
    return value;
  }
  if (w.format == WeightFormat::bf16) {
    const unsigned bits =
        static_cast<unsigned>(data[2 * col]) << 16 | static_cast<unsigned>(data[2 * col + 1]) << 24;
    return std::bit_cast<float>(bits);
  }
  if (w.format == WeightFormat::int8_rows) return static_cast<signed char>(data[col]);
  if (w.format == WeightFormat::bf12) {
    WeightMatrix block = w;  // a matrix of one row
    const std::size_t first = col / 128 * 128;
    block.data = data + row_data_bytes(w.format, static_cast<std::int32_t>(first));
    block.cols = std::min(w.cols - static_cast<std::int32_t>(first), 128);
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(block.cols));
    decode_bf12_row(block, 0, bits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits[col - first]) << 16);
  }
  constexpr double kCodes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const unsigned char pair = data[col / 2];
  const double code = kCodes[col % 2 == 0 ? pair % 16 : pair / 16];
  const unsigned char b = w.scales[row * row_scale_bytes(w.format, w.cols) + col / 32];
  return code * std::exp2(static_cast<double>(b) - 127);
}

double row_scale_value(const WeightMatrix& w, std::int32_t r) {
  if (w.format != WeightFormat::int8_rows) return 1.0;
  float scale = 0;
  std::memcpy(&scale, w.scales + sizeof scale * static_cast<std::size_t>(r), sizeof scale);
  return scale;
}

TestMatrix dequantised(const WeightMatrix& w) {
  const auto count = static_cast<std::size_t>(w.rows) * static_cast<std::size_t>(w.cols);
  TestMatrix m{zero_floats(count), GuardBuffer(0), {}};
  m.view = {m.data.data(), nullptr, w.rows, w.cols, WeightFormat::f32};
  float* out = floats(m.data);
  for (std::int32_t r = 0; r < w.rows; ++r) {
    for (std::int32_t c = 0; c < w.cols; ++c) {
      const double value = weight_value(w, r, c);
      *out = static_cast<float>(value);
      EXPECT_EQ(static_cast<double>(*out), value) << "not exact in fp32";
      ++out;
    }
  }
  return m;
}

std::vector<float> multiply(const Kernels& table, const WeightMatrix& w, std::int32_t row_begin,
                            std::int32_t row_end, std::span<const float> x, std::int32_t tokens) {
  const MatmulKernel& kernel = table.matmul[static_cast<int>(w.format)];
  const GuardBuffer prepared(kernel.prepared_bytes(tokens, w.cols));
  kernel.prepare(x.data(), w.cols, w.cols, 0, tokens, prepared.data());
  const auto rows = static_cast<std::size_t>(row_end - row_begin);
  const GuardBuffer y = zero_floats(rows * static_cast<std::size_t>(tokens));
  kernel.run(w, row_begin, row_end, prepared.data(), tokens, floats(y), row_end - row_begin);
  return {y.as<float>().begin(), y.as<float>().end()};
}

testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) {
    return testing::AssertionFailure() << got.size() << " values instead of " << want.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i])) {
      return testing::AssertionFailure()
             << "value " << i << " is " << std::hexfloat << got[i] << " instead of " << want[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace penstock::test

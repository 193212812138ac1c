// SPDX-License-Identifier: Apache-2.0
//
// What all kernel tests share: the lists of tables, formats and shapes, random operands that end at
// a guard page, and their values in float64, decoded without the code under test.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/support/guard_buffer.h"

namespace penstock {

// What GoogleTest prints of a table, in messages and as the name in ctest, instead of the pointer.
// NOLINTNEXTLINE(readability-identifier-naming): the name is GoogleTest's
void PrintTo(const Kernels* table, std::ostream* out);

}  // namespace penstock

namespace penstock::test {

inline constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16,
                                            WeightFormat::int8_rows, WeightFormat::mxfp4,
                                            WeightFormat::bf12};
inline constexpr std::int32_t kCols[] = {1,   31,  32,  33,  48,  64,  96,   100, 128,
                                         192, 256, 288, 480, 512, 544, 1000, 1056};

// Every test runs once per table of this machine:
//   using Subject = TableTest;
//   INSTANTIATE_TEST_SUITE_P(Each, Subject, testing::ValuesIn(all_tables()), table_name);
//   TEST_P(Subject, DoesWhat) {...}
class TableTest : public testing::TestWithParam<const Kernels*> {
 protected:
  static const Kernels& table() { return *GetParam(); }
  static const Kernels& scalar() { return *find_kernels("scalar"); }
};

std::vector<const Kernels*> all_tables();
std::string table_name(const testing::TestParamInfo<const Kernels*>& info);

const char* format_name(WeightFormat format);
bool allows_cols(WeightFormat format, std::int32_t cols);

// splitmix64: the same numbers on every platform, unlike the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  float uniform(float low, float high);

 private:
  std::uint64_t state_;
};

// `count` floats in [low, high), ending at a guard page.
GuardBuffer random_floats(std::size_t count, std::uint64_t seed, float low = -1.0F,
                          float high = 1.0F);
GuardBuffer zero_floats(std::size_t count);
float* floats(const GuardBuffer& buffer);

// A random matrix. `slack_bytes` lie between its data and scales and their guard pages, so that an
// odd number puts both at odd addresses. mxfp4 scales include denormal ones, bf12 has raw
// blocks, zeros and subnormals.
struct TestMatrix {
  GuardBuffer data;
  GuardBuffer scales;
  WeightMatrix view;
};
TestMatrix random_matrix(WeightFormat format, std::int32_t rows, std::int32_t cols,
                         std::uint64_t seed, std::size_t slack_bytes = 0);

// A bf12 matrix in bf16.
TestMatrix decoded_bf16(const WeightMatrix& bf12);
// The same values in bf12; `bf16` is of that format.
TestMatrix encoded_bf12(const WeightMatrix& bf16, std::size_t slack_bytes = 0);

// The exact values, row scales included or (integers of int8_rows) not.
double weight_value(const WeightMatrix& w, std::int32_t r, std::int32_t c);
double row_scale_value(const WeightMatrix& w, std::int32_t r);

// The matrix in f32 without row scales; every value is exact (checked).
TestMatrix dequantised(const WeightMatrix& w);

// W x by one table: y is [tokens][row_end - row_begin].
std::vector<float> multiply(const Kernels& table, const WeightMatrix& w, std::int32_t row_begin,
                            std::int32_t row_end, std::span<const float> x, std::int32_t tokens);

// Equal bits; any two NaNs are equal.
testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want);

}  // namespace penstock::test

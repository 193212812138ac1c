// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

using Vectors = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Vectors, testing::ValuesIn(all_tables()), table_name);

constexpr std::size_t kSizes[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 100, 577};

TEST_P(Vectors, DotHasTheBitsOfScalarAndOfMatmul) {
  for (const std::size_t n : kSizes) {
    SCOPED_TRACE(testing::Message() << "n " << n);
    const GuardBuffer a = random_floats(n, 1);
    const GuardBuffer b = random_floats(n, 2);
    const float got = table().dot(floats(a), floats(b), n);
    const float want = scalar().dot(floats(a), floats(b), n);
    EXPECT_TRUE(same_bits({&got, 1}, {&want, 1}));
    if (n == 0) continue;
    WeightMatrix row{a.data(), nullptr, 1, static_cast<std::int32_t>(n), WeightFormat::f32};
    EXPECT_TRUE(same_bits(multiply(table(), row, 0, 1, b.as<float>(), 1), {&got, 1}));
  }
}

TEST_P(Vectors, DotStaysWithinTheErrorBound) {
  for (const std::size_t n : kSizes) {
    const GuardBuffer a = random_floats(n, 3);
    const GuardBuffer b = random_floats(n, 4);
    double sum = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double term = static_cast<double>(floats(a)[i]) * static_cast<double>(floats(b)[i]);
      sum += term;
      magnitude += std::fabs(term);
    }
    const std::size_t steps = 2 * ((n + 31) / 32) + 4;
    EXPECT_NEAR(table().dot(floats(a), floats(b), n), sum,
                1.01 * static_cast<double>(steps) * 0x1p-24 * magnitude);
  }
}

TEST_P(Vectors, AxpyIsOneFmaPerValue) {
  for (const std::size_t n : kSizes) {
    const GuardBuffer x = random_floats(n, 5);
    const GuardBuffer y = random_floats(n, 6);
    std::vector<float> want;
    for (std::size_t i = 0; i < n; ++i) want.push_back(std::fma(1.7F, floats(x)[i], floats(y)[i]));
    table().axpy(1.7F, floats(x), floats(y), n);
    EXPECT_TRUE(same_bits(y.as<float>(), want)) << "n " << n;
  }
}

std::vector<float> sigmoids(const Kernels& table, const GuardBuffer& x) {
  std::vector<float> s(x.as<float>().size());
  table.sigmoid(floats(x), s.data(), s.size());
  return s;
}

// bound * tanh(x / bound) by the table's own tanh.
std::vector<float> soft_bounds(const Kernels& table, const GuardBuffer& x, float bound) {
  std::vector<float> y;
  for (const float value : x.as<float>()) y.push_back(value / bound);
  table.tanh(y.data(), y.data(), y.size());
  for (float& value : y) value = bound * value;
  return y;
}

TEST_P(Vectors, SigmoidMulIsSigmoidThenProduct) {
  for (const std::size_t n : kSizes) {
    const GuardBuffer gate = random_floats(n, 7, -20, 20);
    const GuardBuffer x = random_floats(n, 8);
    const GuardBuffer y = zero_floats(n);
    std::vector<float> want = sigmoids(table(), gate);
    for (std::size_t i = 0; i < n; ++i) want[i] *= floats(x)[i];
    table().sigmoid_mul(floats(gate), floats(x), floats(y), n);
    EXPECT_TRUE(same_bits(y.as<float>(), want)) << "n " << n;
    table().sigmoid_mul(floats(gate), floats(x), floats(x), n);
    EXPECT_TRUE(same_bits(x.as<float>(), want)) << "in place, n " << n;
  }
}

TEST_P(Vectors, SigmoidMulOfItselfIsSilu) {
  const GuardBuffer x = random_floats(100, 9, -20, 20);
  std::vector<float> want = sigmoids(table(), x);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] *= floats(x)[i];
  table().sigmoid_mul(floats(x), floats(x), floats(x), 100);
  EXPECT_TRUE(same_bits(x.as<float>(), want));
}

TEST_P(Vectors, SiluMulAssociatesToTheLeft) {
  for (const std::size_t n : kSizes) {
    const GuardBuffer gate = random_floats(n, 10, -20, 20);
    const GuardBuffer up = random_floats(n, 11, -5, 5);
    const GuardBuffer y = zero_floats(n);
    std::vector<float> want = sigmoids(table(), gate);
    for (std::size_t i = 0; i < n; ++i) want[i] = floats(gate)[i] * want[i] * floats(up)[i];
    table().silu_mul(floats(gate), floats(up), floats(y), n);
    EXPECT_TRUE(same_bits(y.as<float>(), want)) << "n " << n;
  }
}

TEST_P(Vectors, SituMulAssociatesToTheLeft) {
  for (const float linear_beta : {0.0F, 25.0F}) {
    for (const std::size_t n : kSizes) {
      const GuardBuffer gate = random_floats(n, 12, -20, 20);
      const GuardBuffer up = random_floats(n, 13, -90, 90);
      const GuardBuffer y = zero_floats(n);
      const std::vector<float> bounded = soft_bounds(table(), gate, 4);
      std::vector<float> want = sigmoids(table(), gate);
      std::vector<float> linear(up.as<float>().begin(), up.as<float>().end());
      if (linear_beta != 0) linear = soft_bounds(table(), up, linear_beta);
      for (std::size_t i = 0; i < n; ++i) want[i] = bounded[i] * want[i] * linear[i];
      table().situ_mul(floats(gate), floats(up), 4, linear_beta, floats(y), n);
      EXPECT_TRUE(same_bits(y.as<float>(), want)) << "n " << n << " linear_beta " << linear_beta;
    }
  }
}

}  // namespace
}  // namespace penstock::test

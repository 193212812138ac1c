// SPDX-License-Identifier: Apache-2.0
//
// exp, tanh, sigmoid and softplus against float64. Set PENSTOCK_EXHAUSTIVE=1 for all 2^32 inputs
// (minutes per function).
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kMaxUlp = 2.0;  // the promise of kernels.h

struct Function {
  const char* name;
  void (*Kernels::*slot)(const float* x, float* y, std::size_t n);
  double (*exact)(double x);
};

double exact_sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double exact_softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

constexpr Function kFunctions[] = {
    {"exp", &Kernels::exp, [](double x) { return std::exp(x); }},
    {"tanh", &Kernels::tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", &Kernels::sigmoid, exact_sigmoid},
    {"softplus", &Kernels::softplus, exact_softplus},
};

// Units in the last place of fp32 at `exact`; denormals share one unit, infinity counts as 2^128.
double ulp_error(float got, double exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) == std::isnan(exact) ? 0 : 1e30;
  if (std::isinf(exact)) return static_cast<double>(got) == exact ? 0 : 1e30;
  if (std::isinf(got) && std::fabs(exact) >= 0x1p128) return (got > 0) == (exact > 0) ? 0 : 1e30;
  const double value = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  const int exponent = exact == 0 ? -126 : std::clamp(std::ilogb(exact), -126, 127);
  return std::fabs(value - exact) / std::ldexp(1.0, exponent - 23);
}

struct Worst {
  double ulp = 0;
  std::uint32_t bits = 0;
  bool tables_agree = true;
};

// Inputs first, first + stride, ... below end, as bit patterns, in blocks of a few thousand.
Worst check_patterns(const Function& f, const Kernels& table, std::uint64_t first,
                     std::uint64_t end, std::uint64_t stride) {
  constexpr std::size_t kBlock = 4096;
  std::vector<float> x(kBlock);
  std::vector<float> y(kBlock);
  std::vector<float> plain(kBlock);
  Worst worst;
  for (std::uint64_t next = first; next < end;) {
    std::size_t n = 0;
    for (; n < kBlock && next < end; ++n, next += stride) {
      x[n] = std::bit_cast<float>(static_cast<std::uint32_t>(next));
    }
    (table.*f.slot)(x.data(), y.data(), n);
    (find_kernels("scalar")->*f.slot)(x.data(), plain.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const double ulp = ulp_error(y[i], f.exact(static_cast<double>(x[i])));
      if (ulp > worst.ulp) worst.ulp = ulp, worst.bits = std::bit_cast<std::uint32_t>(x[i]);
      const bool same =
          std::bit_cast<std::uint32_t>(y[i]) == std::bit_cast<std::uint32_t>(plain[i]);
      worst.tables_agree = worst.tables_agree && same;
    }
  }
  return worst;
}

using Math = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Math, testing::ValuesIn(all_tables()), table_name);

TEST_P(Math, IsWithinTwoUlpOnASample) {
  for (const Function& f : kFunctions) {
    // A stride prime to every power of two meets all exponents and mantissa endings.
    const Worst worst = check_patterns(f, table(), 0, std::uint64_t{1} << 32, 1009);
    EXPECT_LE(worst.ulp, kMaxUlp) << f.name << " at bits 0x" << std::hex << worst.bits;
    EXPECT_TRUE(worst.tables_agree) << f.name;
  }
}

TEST_P(Math, IsWithinTwoUlpAroundBoundaries) {
  // Where a result starts to overflow or underflow, a formula changes, or a rounding step turns.
  const float kBoundaries[] = {0.0F,     0x1p-149F,  0x1p-126F,    0x1p-24F,  0.3465735F, 0.5F,
                               0.625F,   0.6931472F, 1.0F,         9.010913F, 16.0F,      17.32868F,
                               20.0F,    87.33655F,  88.376F,      88.72284F, 89.0F,      103.2789F,
                               103.972F, 104.0F,     3.4028235e38F};
  for (const Function& f : kFunctions) {
    for (const float boundary : kBoundaries) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(boundary);
        const std::uint32_t low = bits < 3000 ? 0 : bits - 3000;
        const Worst worst = check_patterns(f, table(), low | sign, (bits + 3000) | sign, 1);
        EXPECT_LE(worst.ulp, kMaxUlp) << f.name << " at bits 0x" << std::hex << worst.bits;
        EXPECT_TRUE(worst.tables_agree) << f.name << " near " << boundary;
      }
    }
  }
}

TEST_P(Math, IsWithinTwoUlpEverywhere) {
  if (const char* wanted = std::getenv("PENSTOCK_EXHAUSTIVE"); !wanted || wanted[0] != '1') {
    GTEST_SKIP() << "all 2^32 inputs take minutes: set PENSTOCK_EXHAUSTIVE=1";
  }
  for (const Function& f : kFunctions) {
    constexpr std::uint64_t kPieces = 256;
    constexpr std::uint64_t kPiece = (std::uint64_t{1} << 32) / kPieces;
    std::vector<Worst> worst(kPieces);
    std::atomic<std::uint64_t> next = 0;
    const auto work = [&] {
      for (std::uint64_t i = next++; i < kPieces; i = next++) {
        worst[i] = check_patterns(f, table(), i * kPiece, (i + 1) * kPiece, 1);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
      threads.emplace_back(work);
    }
    for (std::thread& thread : threads) thread.join();
    const Worst& most = *std::max_element(
        worst.begin(), worst.end(), [](const Worst& a, const Worst& b) { return a.ulp < b.ulp; });
    std::printf("%s: at most %.4f ulp, at %a\n", f.name, most.ulp,
                static_cast<double>(std::bit_cast<float>(most.bits)));
    EXPECT_LE(most.ulp, kMaxUlp) << f.name;
    EXPECT_TRUE(std::all_of(worst.begin(), worst.end(), [](const Worst& w) {
      return w.tables_agree;
    })) << f.name;
  }
}

float one(void (*f)(const float*, float*, std::size_t), float x) {
  float y = 0;
  f(&x, &y, 1);
  return y;
}

TEST_P(Math, HasTheLimits) {
  const Kernels& k = table();
  EXPECT_EQ(one(k.exp, kInfinity), kInfinity);
  EXPECT_EQ(one(k.exp, -kInfinity), 0.0F);
  EXPECT_EQ(one(k.exp, 0.0F), 1.0F);
  EXPECT_EQ(one(k.tanh, kInfinity), 1.0F);
  EXPECT_EQ(one(k.tanh, -kInfinity), -1.0F);
  EXPECT_EQ(one(k.sigmoid, kInfinity), 1.0F);
  EXPECT_EQ(one(k.sigmoid, -kInfinity), 0.0F);
  EXPECT_EQ(one(k.sigmoid, -0.0F), 0.5F);
  EXPECT_EQ(one(k.softplus, kInfinity), kInfinity);
  EXPECT_EQ(one(k.softplus, -kInfinity), 0.0F);
  for (const Function& f : kFunctions) {
    for (const std::uint32_t nan : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
      EXPECT_TRUE(std::isnan(one(k.*f.slot, std::bit_cast<float>(nan)))) << f.name;
    }
  }
}

TEST_P(Math, KeepsTheSignOfZeroInTanh) {
  EXPECT_FALSE(std::signbit(one(table().tanh, 0.0F)));
  EXPECT_TRUE(std::signbit(one(table().tanh, -0.0F)));
  EXPECT_EQ(one(table().tanh, -0x1p-149F), -0x1p-149F);
}

TEST_P(Math, GivesAValueTheSameBitsAtAnyPlace) {
  for (const Function& f : kFunctions) {
    for (std::size_t n = 0; n <= 40; ++n) {
      const GuardBuffer x = random_floats(n, n, -20, 20);
      const GuardBuffer y = zero_floats(n);
      (table().*f.slot)(floats(x), floats(y), n);
      std::vector<float> want;
      for (const float value : x.as<float>()) want.push_back(one(table().*f.slot, value));
      EXPECT_TRUE(same_bits(y.as<float>(), want)) << f.name << " n " << n;
      (table().*f.slot)(floats(x), floats(x), n);
      EXPECT_TRUE(same_bits(x.as<float>(), want)) << f.name << " in place, n " << n;
    }
  }
}

}  // namespace
}  // namespace penstock::test

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

using Kda = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Kda, testing::ValuesIn(all_tables()), table_name);
using Attend = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Attend, testing::ValuesIn(all_tables()), table_name);

struct Dims {
  std::int32_t key;
  std::int32_t value;
};
constexpr Dims kDims[] = {{4, 3}, {1, 1}, {16, 16}, {5, 33}, {64, 40}, {128, 128}};
constexpr int kTokens = 7;

std::size_t product(std::ptrdiff_t a, std::ptrdiff_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

// Operands of one head, with room between the tokens. Keys and queries have about unit length.
struct KdaCase {
  Dims dims;
  std::ptrdiff_t qkv_stride;
  std::ptrdiff_t row_stride;
  GuardBuffer q, k, v, decay, beta, initial;

  explicit KdaCase(Dims d)
      : dims(d), qkv_stride(std::max(d.key, d.value) + 3), row_stride(qkv_stride + 2) {
    const float unit = 1.5F / std::sqrt(static_cast<float>(d.key));
    q = random_floats(product(kTokens, qkv_stride), 1, -unit, unit);
    k = random_floats(product(kTokens, qkv_stride), 2, -unit, unit);
    v = random_floats(product(kTokens, qkv_stride), 3);
    decay = random_floats(product(kTokens, row_stride), 4, 0.2F, 1);
    beta = random_floats(product(kTokens, 2), 5, 0, 1);
    initial = random_floats(product(d.key, d.value), 6);
  }

  // Tokens [begin, end) over `state`, which is read from `from`.
  void run(const Kernels& table, const float* from, float* state, float* out, std::ptrdiff_t begin,
           std::ptrdiff_t end) const {
    KdaHead head{};
    head.initial = from;
    head.state = state;
    head.q = floats(q) + begin * qkv_stride;
    head.k = floats(k) + begin * qkv_stride;
    head.v = floats(v) + begin * qkv_stride;
    head.decay = floats(decay) + begin * row_stride;
    head.beta = floats(beta) + begin * 2;
    head.out = out + begin * row_stride;
    head.qkv_stride = qkv_stride;
    head.row_stride = row_stride;
    head.beta_stride = 2;
    head.tokens = static_cast<std::int32_t>(end - begin);
    head.key_dim = dims.key;
    head.value_dim = dims.value;
    table.kda(head);
  }
};

struct KdaResult {
  std::vector<float> state;
  std::vector<float> out;
};

KdaResult run_all(const KdaCase& c, const Kernels& table) {
  const GuardBuffer state = zero_floats(product(c.dims.key, c.dims.value));
  const std::size_t values =
      product(kTokens - 1, c.row_stride) + static_cast<std::size_t>(c.dims.value);
  const GuardBuffer out = zero_floats(values);
  c.run(table, floats(c.initial), floats(state), floats(out), 0, kTokens);
  return {{state.as<float>().begin(), state.as<float>().end()},
          {out.as<float>().begin(), out.as<float>().end()}};
}

// Column j of the recurrence in float64; fills the outputs and the last state.
void exact_column(const KdaCase& c, std::int32_t j, std::vector<double>* s,
                  std::vector<double>* out) {
  s->clear();
  for (std::int32_t i = 0; i < c.dims.key; ++i) {
    s->push_back(floats(c.initial)[i * c.dims.value + j]);
  }
  for (std::ptrdiff_t t = 0; t < kTokens; ++t) {
    const float* k = floats(c.k) + t * c.qkv_stride;
    const float* q = floats(c.q) + t * c.qkv_stride;
    double u = 0;
    for (std::size_t i = 0; i < s->size(); ++i) {
      (*s)[i] *= floats(c.decay)[static_cast<std::size_t>(t * c.row_stride) + i];
      u += k[i] * (*s)[i];
    }
    const double d = floats(c.beta)[t * 2] * (floats(c.v)[t * c.qkv_stride + j] - u);
    double sum = 0;
    for (std::size_t i = 0; i < s->size(); ++i) {
      (*s)[i] += k[i] * d;
      sum += q[i] * (*s)[i];
    }
    out->push_back(sum);
  }
}

TEST_P(Kda, FollowsTheRecurrence) {
  for (const Dims dims : kDims) {
    SCOPED_TRACE(testing::Message() << "state " << dims.key << " x " << dims.value);
    const KdaCase c(dims);
    const KdaResult got = run_all(c, table());
    // Values stay below 4; a chain of key + 5 roundings per token, over 7 tokens.
    const double tolerance = 4.0 * kTokens * (dims.key + 5) * 0x1p-24;
    for (std::int32_t j = 0; j < dims.value; ++j) {
      std::vector<double> state;
      std::vector<double> out;
      exact_column(c, j, &state, &out);
      for (std::int32_t i = 0; i < dims.key; ++i) {
        EXPECT_NEAR(got.state[static_cast<std::size_t>(i * dims.value + j)],
                    state[static_cast<std::size_t>(i)], tolerance);
      }
      for (std::ptrdiff_t t = 0; t < kTokens; ++t) {
        EXPECT_NEAR(got.out[static_cast<std::size_t>(t * c.row_stride + j)],
                    out[static_cast<std::size_t>(t)], tolerance);
      }
    }
  }
}

TEST_P(Kda, HasTheBitsOfScalar) {
  for (const Dims dims : kDims) {
    SCOPED_TRACE(testing::Message() << "state " << dims.key << " x " << dims.value);
    const KdaCase c(dims);
    const KdaResult got = run_all(c, table());
    const KdaResult want = run_all(c, scalar());
    EXPECT_TRUE(same_bits(got.state, want.state));
    EXPECT_TRUE(same_bits(got.out, want.out));
  }
}

TEST_P(Kda, GoesOnWhereItStoppedInPlace) {
  for (const Dims dims : kDims) {
    const KdaCase c(dims);
    const KdaResult want = run_all(c, table());
    std::vector<float> state(c.initial.as<float>().begin(), c.initial.as<float>().end());
    std::vector<float> out(want.out.size(), 0.0F);
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 5}, std::pair{5, kTokens}}) {
      c.run(table(), state.data(), state.data(), out.data(), begin, end);
    }
    EXPECT_TRUE(same_bits(state, want.state)) << "state " << dims.key << " x " << dims.value;
    EXPECT_TRUE(same_bits(out, want.out)) << "state " << dims.key << " x " << dims.value;
  }
}

TEST_P(Kda, LeavesTheInitialStateAlone) {
  const KdaCase c({16, 16});
  const std::vector<float> before(c.initial.as<float>().begin(), c.initial.as<float>().end());
  run_all(c, table());
  EXPECT_TRUE(same_bits(c.initial.as<float>(), before));
}

struct AttendCase {
  std::int32_t width;
  std::int32_t latent;
  std::int32_t positions;
};

std::vector<AttendCase> attend_cases() {
  std::vector<AttendCase> cases;
  for (const auto& [width, latent] :
       {std::pair{576, 512}, std::pair{20, 13}, std::pair{33, 33}, std::pair{160, 144}}) {
    for (const std::int32_t positions : {1, 5, 8, 15, 16, 17, 100, kAttentionBlock}) {
      cases.push_back({width, latent, positions});
    }
  }
  return cases;
}

struct AttendOperands {
  GuardBuffer query;
  GuardBuffer cache;
  AttentionBlock block;
};

AttendOperands attend_operands(const AttendCase& c) {
  const float unit = 10.0F / std::sqrt(static_cast<float>(c.width));
  AttendOperands o{random_floats(static_cast<std::size_t>(c.width), 7, -unit, unit),
                   random_floats(product(c.positions, c.width), 8, -3, 3),
                   {}};
  o.block = {floats(o.query), floats(o.cache), c.width, c.latent, c.positions, 0.3F};
  return o;
}

struct AttendResult {
  float max;
  float sum;
  std::vector<float> weighted;
};

AttendResult attend(const Kernels& table, const AttentionBlock& block) {
  const GuardBuffer weighted = zero_floats(static_cast<std::size_t>(block.latent));
  AttentionPartial partial{0, 0, floats(weighted)};
  table.attend(block, &partial);
  return {partial.max, partial.sum, {weighted.as<float>().begin(), weighted.as<float>().end()}};
}

TEST_P(Attend, HasTheBitsOfScalar) {
  for (const AttendCase& c : attend_cases()) {
    SCOPED_TRACE(testing::Message() << c.width << " / " << c.latent << " x " << c.positions);
    const AttendOperands o = attend_operands(c);
    const AttendResult got = attend(table(), o.block);
    const AttendResult want = attend(scalar(), o.block);
    EXPECT_TRUE(same_bits({&got.max, 1}, {&want.max, 1}));
    EXPECT_TRUE(same_bits({&got.sum, 1}, {&want.sum, 1}));
    EXPECT_TRUE(same_bits(got.weighted, want.weighted));
  }
}

TEST_P(Attend, ScoresWithDotAndWeighsWithExp) {
  for (const AttendCase& c : attend_cases()) {
    SCOPED_TRACE(testing::Message() << c.width << " / " << c.latent << " x " << c.positions);
    const AttendOperands o = attend_operands(c);
    const AttendResult got = attend(table(), o.block);
    std::vector<float> p;
    p.reserve(static_cast<std::size_t>(c.positions));
    for (std::ptrdiff_t i = 0; i < c.positions; ++i) {
      p.push_back(0.3F * table().dot(floats(o.query), floats(o.cache) + i * c.width,
                                     static_cast<std::size_t>(c.width)));
    }
    EXPECT_EQ(got.max, *std::max_element(p.begin(), p.end()));
    double sum = 0;
    for (float& value : p) {
      value -= got.max;
      table().exp(&value, &value, 1);
      sum += value;
    }
    // Eight additions in a lane and four in the tree, of positive terms.
    EXPECT_NEAR(got.sum, sum, sum * 13 * 0x1p-24);
    for (std::int32_t r = 0; r < c.latent; ++r) {
      float want = 0;
      for (std::int32_t i = 0; i < c.positions; ++i) {
        want = std::fma(p[static_cast<std::size_t>(i)], floats(o.cache)[i * c.width + r], want);
      }
      EXPECT_EQ(got.weighted[static_cast<std::size_t>(r)], want) << "value " << r;
    }
  }
}

TEST_P(Attend, IsASoftmaxOverTheBlock) {
  const AttendCase c{576, 512, 100};
  const AttendOperands o = attend_operands(c);
  const AttendResult got = attend(table(), o.block);
  std::vector<double> score(static_cast<std::size_t>(c.positions));
  for (std::size_t i = 0; i < score.size(); ++i) {
    for (std::size_t r = 0; r < 576; ++r) {
      score[i] += static_cast<double>(floats(o.query)[r]) * floats(o.cache)[i * 576 + r];
    }
    score[i] *= static_cast<double>(0.3F);
  }
  const double highest = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (const double s : score) sum += std::exp(s - highest);
  for (std::size_t r = 0; r < 512; ++r) {
    double weighted = 0;
    for (std::size_t i = 0; i < score.size(); ++i) {
      weighted += std::exp(score[i] - highest) / sum * floats(o.cache)[i * 576 + r];
    }
    // Scores are below 20 with chains of 42 roundings; cached values are below 3.
    EXPECT_NEAR(got.weighted[r] / got.sum, weighted, 3 * 20 * 42 * 0x1p-24);
  }
}

}  // namespace
}  // namespace penstock::test

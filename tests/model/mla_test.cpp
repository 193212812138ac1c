// SPDX-License-Identifier: Apache-2.0
#include "engine/model/mla.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

// A random f32 matrix and its view.
struct Matrix {
  Matrix(std::int32_t rows, std::int32_t cols, float scale, std::mt19937& random)
      : values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols)) {
    std::normal_distribution<float> normal(0, scale);
    for (float& v : values) v = normal(random);
    view = {reinterpret_cast<const unsigned char*>(values.data()), nullptr, rows, cols,
            WeightFormat::f32};
  }
  // y = W x in double.
  std::vector<double> times(const std::vector<double>& x) const {
    std::vector<double> y(static_cast<std::size_t>(view.rows), 0);
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += double{values[r * x.size() + c]} * x[c];
    }
    return y;
  }
  std::vector<float> values;
  WeightMatrix view;
};

std::vector<double> norm(std::vector<double> x, const std::vector<float>& w, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] / root * double{w[i]};
  return x;
}

// Small projections, so that the norms' epsilon of 1e-6 matters.
constexpr float kSmall = 3e-4F;
constexpr std::int32_t kHidden = 24;
constexpr std::int32_t kTokens = 270;  // three latent blocks

struct TinyMla {
  explicit TinyMla(std::mt19937& random, std::int32_t q_lora_rank, bool output_gate)
      : config{.heads = 2,
               .q_lora_rank = q_lora_rank,
               .kv_lora_rank = 10,
               .qk_nope_head_dim = 6,
               .qk_rope_head_dim = 4,
               .v_head_dim = 5,
               .output_gate = output_gate},
        q(20, q_lora_rank > 0 ? q_lora_rank : kHidden, 0.5F, random),
        q_a(7, kHidden, kSmall, random),
        kv_a(14, kHidden, kSmall, random),
        kv_b(22, 10, 0.5F, random),
        g(10, kHidden, 0.3F, random) {
    std::normal_distribution<float> normal;
    for (float& v : vectors.q_a_layernorm) v = normal(random);
    for (float& v : vectors.kv_a_layernorm) v = normal(random);
    matrices.q_proj = matrices.q_b_proj = q.view;
    matrices.q_a_proj = q_a.view;
    matrices.kv_a_proj = kv_a.view;
    matrices.kv_b_proj = kv_b.view;
    matrices.g_proj = g.view;
  }

  MlaConfig config;
  Matrix q, q_a, kv_a, kv_b, g;
  MlaVectors vectors{std::vector<float>(7), std::vector<float>(10)};
  MlaMatrices matrices;
};

// The expanded form of spec/model.md section 8, in double: out [tokens][heads * v].
std::vector<std::vector<double>> reference(const TinyMla& m, const std::vector<float>& x) {
  std::vector<std::vector<double>> k_rot;
  std::vector<std::vector<double>> kv;
  std::vector<std::vector<double>> out;
  for (std::size_t t = 0; t * kHidden < x.size(); ++t) {
    const std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(t) * kHidden,
                                  x.begin() + static_cast<std::ptrdiff_t>(t + 1) * kHidden);
    const auto q = m.config.q_lora_rank > 0
                       ? m.q.times(norm(m.q_a.times(row), m.vectors.q_a_layernorm, 1e-6))
                       : m.q.times(row);
    const auto latent = m.kv_a.times(row);
    k_rot.emplace_back(latent.begin() + 10, latent.end());
    kv.push_back(
        m.kv_b.times(norm({latent.begin(), latent.begin() + 10}, m.vectors.kv_a_layernorm, 1e-6)));
    const auto gate = m.g.times(row);
    out.emplace_back(10, 0.0);
    for (std::size_t h = 0; h < 2; ++h) {
      std::vector<double> p;
      double sum = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < 6; ++i) score += q[h * 10 + i] * kv[s][h * 11 + i];
        for (std::size_t i = 0; i < 4; ++i) score += q[h * 10 + 6 + i] * k_rot[s][i];
        p.push_back(std::exp(score / std::sqrt(10.0)));
        sum += p.back();
      }
      for (std::size_t s = 0; s <= t; ++s) {
        for (std::size_t i = 0; i < 5; ++i) out[t][h * 5 + i] += p[s] / sum * kv[s][h * 11 + 6 + i];
      }
      for (std::size_t i = 0; m.config.output_gate && i < 5; ++i) {
        out[t][h * 5 + i] /= 1 + std::exp(-gate[h * 5 + i]);
      }
    }
  }
  return out;
}

class MlaTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MlaTest, IsTheExpandedForm) {
  std::mt19937 random(11);
  ThreadPool pool(2);
  Scratch scratch(1U << 20U);
  const Ops ops{*find_kernels(GetParam().c_str()), pool, scratch};
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(kTokens) * kHidden);
  for (float& v : x) v = normal(random);
  for (const auto& [q_lora_rank, output_gate] : {std::pair{7, true}, {0, false}}) {
    const TinyMla m(random, q_lora_rank, output_gate);
    ModelConfig config{};
    config.layers = 1;
    config.is_kda = {false};
    config.kda.conv_taps = 4;
    config.mla = m.config;
    LatentCache cache{StateShape(config)};
    cache.reserve(kTokens);
    std::vector<float> out(static_cast<std::size_t>(kTokens) * 10);
    // In two tiles, the second of which begins inside of a latent block.
    for (const auto& [begin, end] : {std::pair{0, 100}, {100, kTokens}}) {
      Rows rows{x.data() + begin * kHidden, kHidden, end - begin, kHidden};
      const MlaSegment segment{0, end - begin, begin, &cache};
      const Scratch::Frame frame(scratch);
      mla(ops, m.config, m.matrices, m.vectors, 0, {&segment, 1}, &rows, out.data() + begin * 10);
    }
    const auto expected = reference(m, x);
    double largest = 0;
    for (const auto& row : expected) {
      for (const double v : row) largest = std::max(largest, std::abs(v));
    }
    for (std::size_t t = 0; t < expected.size(); ++t) {
      for (std::size_t i = 0; i < 10; ++i) {
        ASSERT_NEAR(out[t * 10 + i], expected[t][i], 1e-6 * largest) << "token " << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, MlaTest, ::testing::ValuesIn(isa_names()));

}  // namespace
}  // namespace penstock::testing

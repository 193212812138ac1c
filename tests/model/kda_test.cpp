// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

class KdaTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernels& kernels_ = *find_kernels(GetParam().c_str());
  ThreadPool pool_{2};
  Scratch scratch_{1U << 20U};
  Ops ops_{kernels_, pool_, scratch_};
};

// 1e-6 of the largest magnitude that enters the sum: where terms cancel, fp32 cannot do better.
void expect_near(float found, double expected, const std::string& what, double largest = 0) {
  EXPECT_NEAR(found, expected, 1e-6 * std::max(std::abs(expected), largest) + 1e-12) << what;
}

TEST_P(KdaTest, DecayGateIsTheReferenceCase) {
  const auto all = read_json(golden_path("component_vectors.json"));
  const auto& c = all["decay_gate"];
  const auto a_log = c["A_log"].get<std::vector<float>>();
  const auto raw = c["raw"].get<std::vector<std::vector<float>>>();
  const auto dt_bias = c["dt_bias"].get<std::vector<std::vector<float>>>();
  const struct {
    const char* name;
    std::optional<float> lower_bound;
  } forms[] = {{"log_decay_k3_lower_bound_-5", -5.0F}, {"log_decay_kimi_linear", std::nullopt}};
  for (const auto& form : forms) {
    const auto g = c[form.name].get<std::vector<std::vector<double>>>();
    for (std::size_t h = 0; h < raw.size(); ++h) {
      float scale = a_log[h];
      kernels_.exp(&scale, &scale, 1);
      std::vector<float> f = raw[h];
      decay_gate(kernels_, form.lower_bound, scale, dt_bias[h].data(), f.data(), f.size());
      for (std::size_t i = 0; i < f.size(); ++i) {
        expect_near(f[i], std::exp(g[h][i]), form.name + std::to_string(h * 10 + i));
      }
    }
  }
}

TEST_P(KdaTest, GatedNormIsTheReferenceCase) {
  const auto all = read_json(golden_path("component_vectors.json"));
  const auto& c = all["gated_rmsnorm"];
  auto o = c["x"].get<std::vector<float>>();
  const auto gate = c["gate"].get<std::vector<float>>();
  const auto weight = c["weight"].get<std::vector<float>>();
  const auto expected = c["out"].get<std::vector<double>>();
  gated_rms_norm(kernels_, gate.data(), weight.data(), static_cast<std::int32_t>(o.size()),
                 c["eps"].get<float>(), o.data());
  for (std::size_t i = 0; i < o.size(); ++i) expect_near(o[i], expected[i], std::to_string(i));
}

TEST_P(KdaTest, L2NormHasItsEpsilonInsideTheRoot) {
  std::vector<float> u{1e-3F, -2e-3F, 0.5e-3F};  // squares sum to 5.25e-6: eps 1e-6 matters
  const double root = std::sqrt(1e-6 + 4e-6 + 0.25e-6 + 1e-6);
  const std::vector<float> before = u;
  l2_normalise(kernels_, u.data(), u.size(), 0.25F);
  for (std::size_t i = 0; i < u.size(); ++i) {
    expect_near(u[i], double{before[i]} / root * 0.25, std::to_string(i));
  }
}

TEST_P(KdaTest, RmsNormHasItsEpsilonInsideTheRoot) {
  const std::vector<float> x{1e-3F, -2e-3F, 3e-3F, 0.5e-3F};
  const std::vector<float> w{1.0F, 0.5F, -2.0F, 3.0F};
  std::vector<float> y(4);
  rms_norm(kernels_, x.data(), w.data(), 4, 1e-5F, y.data());
  double squares = 0;
  for (const float v : x) squares += double{v} * double{v};
  const double root = std::sqrt(squares / 4 + 1e-5);
  for (std::size_t i = 0; i < 4; ++i) {
    expect_near(y[i], double{x[i]} / root * double{w[i]}, std::to_string(i));
  }
}

// One head whose v channels show the convolution: v is not normalised.
struct TinyKda {
  KdaConfig config{
      .heads = 1, .head_dim = 2, .conv_taps = 4, .full_rank_gate = true, .gate_lower_bound = -5.0F};
  KdaVectors vectors{.conv = std::vector<float>(4 * 3 * 2, 0.1F),
                     .decay_scale = {1.0F},
                     .dt_bias = {0.1F, -0.2F},
                     .o_norm = {1.0F, 1.0F}};
  std::vector<float> recurrent = std::vector<float>(4, 0.0F);
  std::vector<float> conv = std::vector<float>(3 * 3 * 2, 0.0F);
};

TEST_P(KdaTest, ShortConvolutionIsTheReferenceCaseHoweverItIsCut) {
  const auto all = read_json(golden_path("component_vectors.json"));
  const auto& c = all["short_conv"];
  const auto x = c["x"].get<std::vector<std::vector<float>>>();
  const auto w = c["w"].get<std::vector<std::vector<float>>>();
  const auto expected = c["out"].get<std::vector<std::vector<double>>>();
  for (const std::size_t cut : {0U, 1U, 2U, 3U, 4U}) {
    TinyKda kda;
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t ch = 0; ch < 2; ++ch) kda.vectors.conv[(j * 3 + 2) * 2 + ch] = w[ch][j];
    }
    const auto tokens = static_cast<std::int32_t>(x.size());
    const Scratch::Frame frame(scratch_);
    const KdaTile tile = take_kda_tile(ops_, kda.config, tokens);
    std::fill_n(tile.decay, x.size() * 2, 0.0F);
    std::fill_n(tile.gate, x.size() * 2, 0.0F);
    std::fill_n(tile.beta, x.size(), 0.0F);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t ch = 0; ch < 2; ++ch) {
        tile.qkv[t * 6 + ch] = 1.0F;
        tile.qkv[t * 6 + 2 + ch] = 1.0F;
        tile.qkv[t * 6 + 4 + ch] = x[t][ch];
      }
    }
    const auto advance = [&](std::size_t begin, std::size_t end) {
      if (begin == end) return;
      advance_kda(ops_, kda.config, kda.vectors, 1e-5F,
                  {.begin = static_cast<std::int32_t>(begin),
                   .tokens = static_cast<std::int32_t>(end - begin),
                   .recurrent_from = kda.recurrent.data(),
                   .conv_from = kda.conv.data(),
                   .recurrent_to = kda.recurrent.data(),
                   .conv_to = kda.conv.data()},
                  tile);
    };
    advance(0, cut);
    advance(cut, x.size());
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t ch = 0; ch < 2; ++ch) {
        expect_near(tile.qkv[t * 6 + 4 + ch], expected[t][ch],
                    "cut " + std::to_string(cut) + " token " + std::to_string(t), 0.95);
      }
    }
    for (std::size_t j = 0; j < 3; ++j) {  // the history holds the last three raw rows
      for (std::size_t ch = 0; ch < 2; ++ch) {
        EXPECT_EQ(kda.conv[(j * 3 + 2) * 2 + ch], x[x.size() - 3 + j][ch]);
      }
    }
  }
}

// Steps 3 to 7 for one head against the formulas in double.
TEST_P(KdaTest, AdvancesAsTheFormulasSay) {
  TinyKda kda;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& v : kda.vectors.conv) v = normal(random);
  for (float& v : kda.recurrent) v = normal(random);
  for (float& v : kda.conv) v = normal(random);
  kda.vectors.o_norm = {0.7F, -1.3F};
  const auto start_recurrent = kda.recurrent;
  const auto start_conv = kda.conv;
  const Scratch::Frame frame(scratch_);
  const KdaTile tile = take_kda_tile(ops_, kda.config, 1);
  std::vector<float> raw(6);
  for (float& v : raw) v = normal(random);
  std::copy(raw.begin(), raw.end(), tile.qkv);
  const float decay_raw[2] = {0.4F, -0.9F};
  const float gate[2] = {0.8F, -0.3F};
  const float beta_raw = 0.6F;
  std::copy_n(decay_raw, 2, tile.decay);
  std::copy_n(gate, 2, tile.gate);
  tile.beta[0] = beta_raw;
  advance_kda(ops_, kda.config, kda.vectors, 1e-5F,
              {.begin = 0,
               .tokens = 1,
               .recurrent_from = start_recurrent.data(),
               .conv_from = start_conv.data(),
               .recurrent_to = kda.recurrent.data(),
               .conv_to = kda.conv.data()},
              tile);

  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  double qkv[6];
  for (std::size_t ch = 0; ch < 6; ++ch) {
    double c = double{kda.vectors.conv[3 * 6 + ch]} * double{raw[ch]};
    for (std::size_t j = 0; j < 3; ++j) {
      c += double{kda.vectors.conv[j * 6 + ch]} * double{start_conv[j * 6 + ch]};
    }
    qkv[ch] = c * sigmoid(c);
  }
  const auto normalise = [](double* u, double scale) {
    const double r = scale / std::sqrt(u[0] * u[0] + u[1] * u[1] + 1e-6);
    u[0] *= r;
    u[1] *= r;
  };
  normalise(qkv, 1 / std::sqrt(2.0));
  normalise(qkv + 2, 1);
  double state[2][2];
  for (std::size_t i = 0; i < 2; ++i) {
    const double g = -5.0 * sigmoid(double{decay_raw[i]} + double{kda.vectors.dt_bias[i]});
    for (std::size_t j = 0; j < 2; ++j)
      state[i][j] = double{start_recurrent[i * 2 + j]} * std::exp(g);
  }
  double out[2];
  for (std::size_t j = 0; j < 2; ++j) {
    const double u = qkv[2] * state[0][j] + qkv[3] * state[1][j];
    const double delta = sigmoid(double{beta_raw}) * (qkv[4 + j] - u);
    for (std::size_t i = 0; i < 2; ++i) state[i][j] += qkv[2 + i] * delta;
    out[j] = qkv[0] * state[0][j] + qkv[1] * state[1][j];
  }
  const double root = std::sqrt((out[0] * out[0] + out[1] * out[1]) / 2 + 1e-5);
  for (std::size_t j = 0; j < 2; ++j) {
    EXPECT_NEAR(tile.out[j],
                out[j] / root * double{kda.vectors.o_norm[j]} * sigmoid(double{gate[j]}), 2e-6);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(kda.recurrent[i * 2 + j], state[i][j], 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, KdaTest, ::testing::ValuesIn(isa_names()));

}  // namespace
}  // namespace penstock::testing

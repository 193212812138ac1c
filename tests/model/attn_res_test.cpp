// SPDX-License-Identifier: Apache-2.0
#include "engine/model/attn_res.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

class AttnResTest : public ::testing::TestWithParam<std::string> {
 protected:
  ThreadPool pool_{2};
  Scratch scratch_{1U << 20U};
  Ops ops_{*find_kernels(GetParam().c_str()), pool_, scratch_};
};

TEST_P(AttnResTest, MixesAsTheReferenceCase) {
  const auto all = read_json(golden_path("component_vectors.json"));
  const auto& c = all["attn_res"];
  auto blocks = c["blocks"].get<std::vector<std::vector<float>>>();
  auto prefix = c["prefix"].get<std::vector<float>>();
  auto weight = c["norm_weight"].get<std::vector<float>>();
  const auto proj = c["proj_weight"].get<std::vector<float>>();
  const auto expected = c["out"].get<std::vector<double>>();
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= proj[i];
  Residuals residuals{prefix.data(), {}, static_cast<std::int32_t>(prefix.size())};
  for (auto& block : blocks) residuals.blocks.push_back(block.data());
  std::vector<float> out(prefix.size());
  attn_res(ops_, residuals, weight.data(), c["eps"].get<float>(), 0, 1, out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-7) << i;
  }
}

// Sources so small that the epsilon decides the scores.
TEST_P(AttnResTest, PutsEpsilonInsideTheRoot) {
  std::vector<float> block{3e-3F, 0, 0, 1e-3F};
  std::vector<float> prefix{0, -2e-3F, 1e-3F, 0};
  const std::vector<float> weight{1.0F, -2.0F, 3.0F, 0.5F};
  const Residuals residuals{prefix.data(), {block.data()}, 4};
  std::vector<float> out(4);
  attn_res(ops_, residuals, weight.data(), 1e-5F, 0, 1, out.data());
  double scores[2] = {0, 0};
  const float* const sources[2] = {block.data(), prefix.data()};
  for (int s = 0; s < 2; ++s) {
    double squares = 0;
    double dot = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      squares += double{sources[s][i]} * double{sources[s][i]};
      dot += double{sources[s][i]} * double{weight[i]};
    }
    scores[s] = dot / std::sqrt(squares / 4 + 1e-5);
  }
  const double p = 1 / (1 + std::exp(scores[1] - scores[0]));
  for (std::size_t i = 0; i < 4; ++i) {
    const double expected = p * double{block[i]} + (1 - p) * double{prefix[i]};
    EXPECT_NEAR(out[i], expected, 1e-6 * 3e-3) << i;
  }
}

TEST_P(AttnResTest, TakesRowsOfATile) {
  std::vector<float> block(3 * 4, 1.0F);
  std::vector<float> prefix{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> weight(4, 0.0F);  // equal scores: the mean of block and prefix
  const Residuals residuals{prefix.data(), {block.data()}, 4};
  std::vector<float> out(2 * 4);
  attn_res(ops_, residuals, weight.data(), 1e-5F, 1, 2, out.data());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_FLOAT_EQ(out[i], (1.0F + prefix[4 + i]) / 2) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTables, AttnResTest, ::testing::ValuesIn(isa_names()));

}  // namespace
}  // namespace penstock::testing

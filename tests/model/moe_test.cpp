// SPDX-License-Identifier: Apache-2.0
#include "engine/model/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

class MoeTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernels& kernels_ = *find_kernels(GetParam().c_str());
};

TEST_P(MoeTest, RoutesAsTheReferenceCase) {
  const auto all = read_json(golden_path("component_vectors.json"));
  const auto& c = all["router"];
  const auto bias = c["bias"].get<std::vector<float>>();
  const auto logits = c["logits"].get<std::vector<float>>();
  const auto selected = c["selected"].get<std::vector<std::int32_t>>();
  const struct {
    const char* name;
    float scaling;
  } cases[] = {{"weights_scaling_1", 1.0F}, {"weights_scaling_2.446", 2.446F}};
  for (const auto& scaling : cases) {
    const auto expected = c[scaling.name].get<std::vector<double>>();
    MoeConfig config{};
    config.experts = static_cast<std::int32_t>(logits.size());
    config.top_k = c["top_k"].get<std::int32_t>();
    config.renormalize = true;
    config.routed_scaling = scaling.scaling;
    std::vector<float> scores = logits;
    std::vector<std::int32_t> experts(3);
    std::vector<float> weights(3);
    route_token(kernels_, config, bias.data(), scores.data(), experts.data(), weights.data());
    EXPECT_EQ(experts, selected);
    for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(weights[k], expected[k], 1e-6 * expected[k]);
  }
}

TEST_P(MoeTest, TheLowerExpertWinsATie) {
  MoeConfig config{};
  config.experts = 6;
  config.top_k = 3;
  config.renormalize = true;
  config.routed_scaling = 1.0F;
  std::vector<float> scores{0.5F, 1.0F, 1.0F, 0.5F, 1.0F, 0.5F};
  const std::vector<float> bias(6, 0.0F);
  std::vector<std::int32_t> experts(3);
  std::vector<float> weights(3);
  route_token(kernels_, config, bias.data(), scores.data(), experts.data(), weights.data());
  EXPECT_EQ(experts, (std::vector<std::int32_t>{1, 2, 4}));
  config.top_k = 5;
  experts.resize(5);
  weights.resize(5);
  scores = {0.5F, 1.0F, 1.0F, 0.5F, 1.0F, 0.5F};
  route_token(kernels_, config, bias.data(), scores.data(), experts.data(), weights.data());
  EXPECT_EQ(experts, (std::vector<std::int32_t>{1, 2, 4, 0, 3}));
}

INSTANTIATE_TEST_SUITE_P(AllTables, MoeTest, ::testing::ValuesIn(isa_names()));

TEST(ExpertGroups, AreTheDistinctExpertsInFileOrder) {
  // Two tokens, top 3 of 12; file order is 0 1 10 11 2 3 ...
  const Routing routing{{2, 10, 1, 11, 2, 3}, {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F}};
  const ExpertGroups groups = group_by_expert(routing, 3, string_order_rank(12));
  EXPECT_EQ(groups.experts, (std::vector<std::int32_t>{1, 10, 11, 2, 3}));
  ASSERT_EQ(groups.uses.size(), 5U);
  ASSERT_EQ(groups.uses[3].size(), 2U);
  EXPECT_EQ(groups.uses[3][0].token, 0);
  EXPECT_EQ(groups.uses[3][0].weight, 0.1F);
  EXPECT_EQ(groups.uses[3][1].token, 1);
  EXPECT_EQ(groups.uses[3][1].weight, 0.5F);
}

}  // namespace
}  // namespace penstock::testing

// SPDX-License-Identifier: Apache-2.0
//
// The forward pass against the official code in float64, on every table of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "engine/model/ops.h"
#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

// Bars of tests/golden/oracle/README.md: largest error over the largest magnitude, rms over rms.
struct Bars {
  double logits;
  double layers;
  double rms = 2e-5;
};

Bars bars_of(const std::string& oracle) {
  return oracle.starts_with("k3") ? Bars{1e-4, 3e-5} : Bars{5e-6, 5e-6};
}

void expect_close(std::span<const float> found, std::span<const float> expected, double bar,
                  double rms_bar, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0;
  double worst = 0;
  double error_squares = 0;
  double squares = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(double{found[i]} - double{expected[i]});
    ASSERT_TRUE(std::isfinite(error)) << what << ": value " << i;
    worst = std::max(worst, error);
    largest = std::max(largest, std::abs(double{expected[i]}));
    error_squares += error * error;
    squares += double{expected[i]} * double{expected[i]};
  }
  EXPECT_LE(worst / largest, bar) << what;
  EXPECT_LE(std::sqrt(error_squares / squares), rms_bar) << what;
}

class OracleTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const std::string oracle_ = std::get<0>(GetParam());
  ModelOptions options() const {
    ModelOptions result = oracle_options(oracle_);
    result.isa = std::get<1>(GetParam());
    return result;
  }
};

TEST_P(OracleTest, LogitsAndLayersAreWithinTheBars) {
  const auto model = load_model(options());
  const Oracle oracle = read_oracle(oracle_);
  const auto sequence = model->new_sequence();
  const auto sweep = model->begin(
      {{.sequence = sequence.get(), .tokens = oracle.prompt, .logits_from = 0, .keep_at = {}}},
      {.layer_outputs = true});
  while (sweep->step()) {
  }
  const Bars bars = bars_of(oracle_);
  const std::string dir = oracle_dir(oracle_);
  expect_close(sweep->logits(0), read_floats(dir + "/logits.f32"), bars.logits, bars.rms, "logits");
  const auto layers = read_floats(dir + "/layers.f32");
  const auto hidden = static_cast<std::size_t>(model->info().hidden);
  ASSERT_EQ(sweep->layer_outputs(0).size(), layers.size());
  for (std::size_t l = 0; l * hidden < layers.size(); ++l) {
    expect_close(sweep->layer_outputs(0).subspan(l * hidden, hidden),
                 std::span(layers).subspan(l * hidden, hidden), bars.layers, bars.rms,
                 "layer " + std::to_string(l));
  }
}

TEST_P(OracleTest, GreedyIdsAndFinalLogitsAreTheSame) {
  const auto model = load_model(options());
  const Oracle oracle = read_oracle(oracle_);
  const auto sequence = model->new_sequence();
  const auto vocab = static_cast<std::size_t>(model->info().vocab);
  std::vector<float> logits = run_tokens(*model, *sequence, oracle.prompt, oracle.prompt.size());
  logits.erase(logits.begin(), logits.end() - static_cast<std::ptrdiff_t>(vocab));
  std::vector<Token> greedy;
  for (std::size_t i = 0; i < oracle.greedy.size(); ++i) {
    greedy.push_back(argmax(logits.data(), model->info().vocab));
    logits = run_tokens(*model, *sequence, {&greedy.back(), 1}, 1);
  }
  EXPECT_EQ(greedy, oracle.greedy);
  const Bars bars = bars_of(oracle_);
  expect_close(logits, read_floats(oracle_dir(oracle_) + "/final.f32"), bars.logits, bars.rms,
               "final logits");
}

std::string test_name(const ::testing::TestParamInfo<OracleTest::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(AllTables, OracleTest,
                         ::testing::Combine(::testing::ValuesIn(kOracles),
                                            ::testing::ValuesIn(isa_names())),
                         test_name);

}  // namespace
}  // namespace penstock::testing

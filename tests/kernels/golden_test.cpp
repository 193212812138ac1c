// SPDX-License-Identifier: Apache-2.0
//
// The official code's numbers (tests/golden/component_vectors.json) at 1e-6, on every table.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

using nlohmann::json;

using Golden = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Golden, testing::ValuesIn(all_tables()), table_name);

json component(const char* name) {
  std::ifstream file(PENSTOCK_GOLDEN "/component_vectors.json");
  return json::parse(file).at(name);
}

// Error over the array's largest magnitude, as the accuracy bars of the design count it.
void expect_close(std::span<const float> got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::fabs(value));
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 1e-6 * largest) << "value " << i;
  }
}

TEST_P(Golden, Mxfp4) {
  const json c = component("mxfp4");
  const auto packed = c.at("packed").get<std::vector<unsigned char>>();
  const auto scales = c.at("scales").get<std::vector<unsigned char>>();
  const auto values = c.at("values").get<std::vector<double>>();
  const auto cols = static_cast<std::int32_t>(values.size());
  ASSERT_EQ(packed.size() * 2, values.size());
  ASSERT_EQ(scales.size() * kMxfp4BlockCols, values.size());
  const WeightMatrix w{packed.data(), scales.data(), 1, cols, WeightFormat::mxfp4};
  const float unit = 1.0F;
  std::vector<float> y(values.size());
  table().matmul_t[static_cast<int>(w.format)](w, 0, 1, &unit, 1, 1, y.data(), cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<double>(y[i]), values[i]) << "value " << i;
  }
}

TEST_P(Golden, SituMul) {
  const json c = component("situ");
  const auto gate = c.at("gate").get<std::vector<float>>();
  const auto up = c.at("up").get<std::vector<float>>();
  std::vector<float> y(gate.size());
  table().situ_mul(gate.data(), up.data(), c.at("beta").get<float>(),
                   c.at("linear_beta").get<float>(), y.data(), y.size());
  expect_close(y, c.at("out").get<std::vector<double>>());
}

TEST_P(Golden, SiluMul) {
  const json c = component("silu_mul");
  const auto gate = c.at("gate").get<std::vector<float>>();
  const auto up = c.at("up").get<std::vector<float>>();
  std::vector<float> y(gate.size());
  table().silu_mul(gate.data(), up.data(), y.data(), y.size());
  expect_close(y, c.at("out").get<std::vector<double>>());
}

// [T][H][n] to the tokens of one head, one after the other.
std::vector<float> head_rows(const json& all, std::size_t head) {
  std::vector<float> rows;
  for (const json& token : all) {
    const json& entry = token.at(head);
    if (entry.is_number()) {
      rows.push_back(entry.get<float>());
    } else {
      for (const json& value : entry) rows.push_back(value.get<float>());
    }
  }
  return rows;
}

// u * factor / sqrt(sum(u^2) + 1e-6) per token.
void normalise(std::vector<float>* rows, std::size_t width, double factor) {
  for (std::size_t begin = 0; begin < rows->size(); begin += width) {
    const std::span<float> u(rows->data() + begin, width);
    double squares = 1e-6;
    for (const float value : u) squares += static_cast<double>(value) * value;
    for (float& value : u) value = static_cast<float>(value * factor / std::sqrt(squares));
  }
}

TEST_P(Golden, KdaRecurrence) {
  const json c = component("kda_recurrence");
  const std::size_t heads = c.at("q").at(0).size();
  const std::size_t key = c.at("q").at(0).at(0).size();
  const std::size_t value = c.at("v").at(0).at(0).size();
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<float> q = head_rows(c.at("q"), h);
    std::vector<float> k = head_rows(c.at("k"), h);
    const std::vector<float> v = head_rows(c.at("v"), h);
    std::vector<float> decay = head_rows(c.at("log_decay"), h);
    std::vector<float> beta = head_rows(c.at("beta_raw"), h);
    normalise(&q, key, 1 / std::sqrt(static_cast<double>(key)));
    normalise(&k, key, 1);
    table().exp(decay.data(), decay.data(), decay.size());
    table().sigmoid(beta.data(), beta.data(), beta.size());
    std::vector<float> state(key * value);
    std::vector<float> out;
    for (std::size_t t = 0; t < beta.size(); ++t) {
      std::vector<float> row(value);
      KdaHead head{};
      head.initial = state.data();
      head.state = state.data();
      head.q = &q[t * key];
      head.k = &k[t * key];
      head.v = &v[t * value];
      head.decay = &decay[t * key];
      head.beta = &beta[t];
      head.out = row.data();
      head.tokens = 1;
      head.key_dim = static_cast<std::int32_t>(key);
      head.value_dim = static_cast<std::int32_t>(value);
      table().kda(head);
      out.insert(out.end(), row.begin(), row.end());
    }
    const std::vector<float> want = head_rows(c.at("out"), h);
    expect_close(out, {want.begin(), want.end()});
    std::vector<double> last;
    for (const json& line : c.at("final_state").at(h)) {
      for (const json& number : line) last.push_back(number.get<double>());
    }
    expect_close(state, last);
  }
}

}  // namespace
}  // namespace penstock::test

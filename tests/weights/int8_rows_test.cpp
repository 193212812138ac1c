// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/int8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace penstock::test {
namespace {

TEST(Int8Rows, RoundsToNearestEven) {
  const std::vector<float> row = {127, -127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.49F, -0.0F, 126.5F};
  std::vector<std::int8_t> out(row.size());
  EXPECT_EQ(quantise_int8_row(row, out.data()), 1.0F);
  EXPECT_EQ(out, (std::vector<std::int8_t>{127, -127, 0, 2, 2, 0, -2, 0, 0, 126}));
}

TEST(Int8Rows, FollowsTheFormulaForAnyRow) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const float size : {1e-38F, 1e-3F, 1.0F, 1e30F}) {
    std::vector<float> row(777);
    float largest = 0;
    for (float& value : row) {
      value = uniform(random) * size;
      largest = std::max(largest, std::fabs(value));
    }
    std::vector<std::int8_t> out(row.size());
    const float scale = quantise_int8_row(row, out.data());
    EXPECT_EQ(scale, largest / 127);
    for (std::size_t c = 0; c < row.size(); ++c) {
      const float want = std::min(std::max(std::nearbyint(row[c] / scale), -127.0F), 127.0F);
      EXPECT_EQ(static_cast<float>(out[c]), want) << row[c];
    }
  }
}

TEST(Int8Rows, GivesZerosTheScaleZero) {
  // Of the second row the scale itself is below the smallest number.
  for (const float value : {0.0F, std::numeric_limits<float>::denorm_min()}) {
    const std::vector<float> row(33, value);
    std::vector<std::int8_t> out(row.size(), 7);
    EXPECT_EQ(quantise_int8_row(row, out.data()), 0.0F);
    EXPECT_EQ(out, std::vector<std::int8_t>(33, 0));
  }
}

TEST(Int8Rows, RefusesWhatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kInf, -kInf, std::nanf(""), -std::nanf("")}) {
    std::vector<float> row(40, 1.0F);
    row[17] = bad;
    std::vector<std::int8_t> out(row.size());
    EXPECT_TRUE(std::isnan(quantise_int8_row(row, out.data())));
  }
}

}  // namespace
}  // namespace penstock::test

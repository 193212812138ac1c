// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/pin_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

namespace penstock {
namespace {

std::size_t count(const PinPlan& plan) {
  return static_cast<std::size_t>(std::ranges::count(plan.pinned, true));
}

TEST(PinPlan, PinsEverythingWithoutWindowsWhenItFits) {
  const PinPlan plan = plan_pins({10, 20, 30}, 60);
  EXPECT_EQ(count(plan), 3U);
  EXPECT_EQ(plan.window_bytes, 0U);
  EXPECT_EQ(plan.bytes, 60U);
}

TEST(PinPlan, TakesTwoWindowsOfTheLargestFirst) {
  const PinPlan plan = plan_pins({10, 20, 30, 10, 10, 10}, 75);
  EXPECT_EQ(plan.window_bytes, 30U);
  EXPECT_EQ(count(plan), 1U);
  EXPECT_EQ(plan.bytes, 70U);
  EXPECT_EQ(spine_floor({10, 20, 30, 10, 10, 10}), 60U);
  EXPECT_EQ(spine_floor({10, 20}), 30U);
  EXPECT_EQ(spine_floor({}), 0U);
  EXPECT_EQ(count(plan_pins({10, 20, 30, 10, 10, 10}, 60)), 0U);
  EXPECT_EQ(plan_pins({10, 20, 30}, 1).bytes, 60U);  // below the floor
}

TEST(PinPlan, ASmallerBudgetPinsSomeOfThoseThatALargerOnePins) {
  const std::vector<std::uint64_t> segments(190, 7);
  PinPlan before = plan_pins(segments, 14);
  for (std::uint64_t budget = 15; budget <= 190 * 7; ++budget) {
    const PinPlan plan = plan_pins(segments, budget);
    EXPECT_LE(plan.bytes, budget);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      EXPECT_LE(before.pinned[i], plan.pinned[i]) << budget << " " << i;
    }
    before = plan;
  }
  EXPECT_EQ(count(before), 190U);
}

// However many are pinned, every stretch of the depth has its share, give or take two.
TEST(PinPlan, SpreadsPinsEvenly) {
  const std::size_t n = 190;
  const std::vector<std::uint64_t> segments(n, 1);
  for (std::uint64_t budget = 3; budget < n; ++budget) {
    const PinPlan plan = plan_pins(segments, budget);
    const auto pinned = static_cast<double>(count(plan));
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += plan.pinned[i] ? 1 : 0;
      const double share = pinned * static_cast<double>(i + 1) / static_cast<double>(n);
      EXPECT_NEAR(sum, share, 4) << budget << " pins, to segment " << i;
    }
  }
}

}  // namespace
}  // namespace penstock

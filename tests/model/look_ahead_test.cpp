// SPDX-License-Identifier: Apache-2.0
#include "engine/model/look_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(LookAhead, WantsNothingWhenItIsOff) {
  LookAhead ahead(3, false);
  for (int i = 0; i < 50; ++i) {
    ahead.begin_token();
    EXPECT_FALSE(ahead.wants(1));
  }
}

TEST(LookAhead, ReadsTheBestOfAGoodPrediction) {
  LookAhead ahead(3, true);
  EXPECT_EQ(Ids(ahead.predict(1, Ids{4, 2, 9}).begin(), ahead.predict(1, Ids{4, 2, 9}).end()),
            (Ids{4, 2, 9}));
  EXPECT_EQ(ahead.predict(1, Ids{1, 2, 3, 4, 5, 6, 7, 8}).size(), 6U);
}

TEST(LookAhead, ReadsAllOfAPredictionThatIsMostlyRight) {
  LookAhead ahead(3, true);
  const Ids all{1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < 60; ++i) {
    ahead.predict(1, all);
    ahead.settle(1, all);
  }
  EXPECT_EQ(ahead.predict(1, all).size(), all.size());
}

TEST(LookAhead, MeasuresEachLayerByItself) {
  LookAhead ahead(3, true);
  for (int i = 0; i < 60; ++i) {
    ahead.predict(1, Ids{4, 2});
    ahead.settle(1, Ids{2, 4, 5});
    ahead.predict(2, Ids{4, 2});
    ahead.settle(2, Ids{1, 7, 5});
  }
  EXPECT_GT(ahead.recall(1), 0.9);
  EXPECT_LT(ahead.recall(2), 0.1);
  EXPECT_EQ(ahead.predict(1, Ids{4, 2}).size(), 2U);
  EXPECT_TRUE(ahead.predict(2, Ids{4, 2}).empty());
}

TEST(LookAhead, TriesABadLayerFromTimeToTime) {
  LookAhead ahead(3, true);
  for (int i = 0; i < 60; ++i) {
    ahead.predict(2, Ids{4, 2});
    ahead.settle(2, Ids{1, 7});
  }
  int tries = 0;
  for (int i = 0; i < 160; ++i) {
    ahead.begin_token();
    tries += ahead.wants(2) ? 1 : 0;
  }
  EXPECT_EQ(tries, 10);
  for (int i = 0; i < 60; ++i) {
    ahead.predict(2, Ids{4, 2});
    ahead.settle(2, Ids{4, 2});
  }
  EXPECT_TRUE(ahead.wants(2));
}

TEST(LookAhead, NothingPredictedIsNothingMeasured) {
  LookAhead ahead(3, true);
  const double before = ahead.recall(1);
  ahead.settle(1, Ids{1, 2, 3});
  EXPECT_EQ(ahead.recall(1), before);
}

}  // namespace
}  // namespace penstock

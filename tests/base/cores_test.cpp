// SPDX-License-Identifier: Apache-2.0
#include "engine/base/cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace penstock {
namespace {

TEST(Cores, AreAtLeastOne) {
  EXPECT_GE(available_cores(), 1);
}

TEST(Cores, AThreadAndThoseItStartsStayWhereTheyAreBound) {
  const std::vector<int> all = bindable_cores();
  if (all.empty()) GTEST_SKIP() << "this system does not bind threads to cores";
  EXPECT_TRUE(std::ranges::is_sorted(all));
  EXPECT_EQ(available_cores(), static_cast<int>(all.size()));
  for (const int core : all) {
    std::vector<int> own;
    std::vector<int> of_child;
    std::thread([&] {
      bind_to_cores({core});
      own = bindable_cores();
      std::thread([&] { of_child = bindable_cores(); }).join();
    }).join();
    EXPECT_EQ(own, std::vector<int>{core});
    EXPECT_EQ(of_child, std::vector<int>{core});
  }
  EXPECT_EQ(bindable_cores(), all);
}

}  // namespace
}  // namespace penstock

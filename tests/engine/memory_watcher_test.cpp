// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_watcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30U;

// A machine on which our process holds `held` and others leave `available`.
MemoryUse use(std::uint64_t held, std::uint64_t available, double stalled = 0) {
  return {.available_bytes = available, .held_bytes = held, .stalled_share = stalled};
}

struct Watched {
  std::uint64_t after(int seconds, const MemoryUse& memory) {
    std::uint64_t allowed = 0;
    for (int i = 0; i < seconds; ++i) {
      now += std::chrono::seconds(1);
      allowed = budget.update(memory, now);
    }
    return allowed;
  }
  MemoryBudget budget{16 * kGiB, 20 * kGiB};
  MemoryBudget::Clock::time_point now{};
};

TEST(MemoryBudget, StaysWhileTheMachineHasWhatItHad) {
  Watched watched;
  for (std::uint64_t held = 0; held <= 16; ++held) {
    EXPECT_EQ(watched.after(5, use(held * kGiB, (17 - held) * kGiB)), 16 * kGiB);
  }
}

TEST(MemoryBudget, ShrinksAtOnceWhenOthersTakeMemory) {
  Watched watched;
  EXPECT_EQ(watched.after(1, use(16 * kGiB, kGiB / 2)), 16 * kGiB - kGiB / 2);
  EXPECT_EQ(watched.after(1, use(14 * kGiB, 0)), 13 * kGiB);
  EXPECT_EQ(watched.after(1, use(kGiB / 2, 0)), 0U);
}

TEST(MemoryBudget, GrowsOnlyWhenMemoryHasBeenFreeForHalfAMinute) {
  Watched watched;
  EXPECT_EQ(watched.after(1, use(8 * kGiB, kGiB)), 8 * kGiB);
  EXPECT_EQ(watched.after(29, use(8 * kGiB, 9 * kGiB)), 8 * kGiB);
  EXPECT_EQ(watched.after(1, use(8 * kGiB, 2 * kGiB)), 8 * kGiB);  // a dip, still a surplus
  EXPECT_EQ(watched.after(2, use(8 * kGiB, 9 * kGiB)), 9 * kGiB);  // the least of the while
  EXPECT_EQ(watched.after(20, use(8 * kGiB, 9 * kGiB)), 9 * kGiB);
  EXPECT_EQ(watched.after(1, use(8 * kGiB, 2 * kGiB)), 9 * kGiB);  // no surplus: it begins anew
  EXPECT_EQ(watched.after(29, use(8 * kGiB, 9 * kGiB)), 9 * kGiB);
  EXPECT_EQ(watched.after(5, use(8 * kGiB, 9 * kGiB)), 16 * kGiB);
}

TEST(MemoryBudget, NeverPassesTheCeiling) {
  Watched watched;
  EXPECT_EQ(watched.after(100, use(4 * kGiB, 100 * kGiB)), 20 * kGiB);
}

TEST(MemoryBudget, IgnoresSmallChanges) {
  Watched watched;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t noise = static_cast<std::uint64_t>(i * 37 % 200) << 20U;
    EXPECT_EQ(watched.after(1, use(10 * kGiB, 7 * kGiB - noise)), 16 * kGiB);
  }
}

TEST(MemoryBudget, ShrinksWhileProcessesWaitForMemory) {
  Watched watched;
  EXPECT_EQ(watched.after(1, use(10 * kGiB, 7 * kGiB, 0.05)), 16 * kGiB);
  EXPECT_EQ(watched.after(1, use(10 * kGiB, 7 * kGiB, 0.2)), 9 * kGiB);
  EXPECT_EQ(watched.after(1, use(9 * kGiB, 7 * kGiB, 0.2)), 9 * kGiB / 10 * 9);
}

TEST(MemoryWatcher, TellsWhatItFindsAndEndsAtOnce) {
  std::atomic<int> calls{0};
  MemoryWatcher watcher(8 * kGiB, 8 * kGiB, [&]() -> MemoryUse {
    if (++calls == 1) throw Error(ErrorCode::memory, "not now");
    return use(4 * kGiB, kGiB);
  });
  EXPECT_EQ(watcher.allowed(), 8 * kGiB);
  while (watcher.allowed() == 8 * kGiB) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(watcher.allowed(), 4 * kGiB);
}

}  // namespace
}  // namespace penstock

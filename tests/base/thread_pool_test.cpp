// SPDX-License-Identifier: Apache-2.0
#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "engine/base/cores.h"
#include "tests/support/expect_error.h"

namespace penstock {
namespace {

void expect_each_index_once(ThreadPool& pool, std::int64_t n, std::int64_t grain) {
  std::vector<int> visits(static_cast<std::size_t>(n));
  std::vector<std::atomic<int>> running(static_cast<std::size_t>(pool.threads()));
  std::atomic<int> violations{0};
  const bool all =
      pool.parallel_for(n, grain, nullptr, [&](std::int64_t begin, std::int64_t end, int worker) {
        const bool sound = begin >= 0 && begin < end && end <= n && end - begin <= grain &&
                           worker >= 0 && worker < pool.threads();
        if (!sound || running[static_cast<std::size_t>(worker)]++ != 0) ++violations;
        // Plain ints: the ranges must be disjoint and visible to the caller afterwards.
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        --running[static_cast<std::size_t>(worker)];
      });
  EXPECT_TRUE(all);
  EXPECT_EQ(violations, 0);
  EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(n), 1));
}

TEST(ThreadPool, CoversEachIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 64, 5000}) expect_each_index_once(pool, n, grain);
    }
  }
}

TEST(ThreadPool, RunsManyJobsInARow) {
  ThreadPool pool(3);
  std::int64_t total = 0;
  constexpr int kJobs = 20000;
  for (int job = 0; job < kJobs; ++job) {
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(4, 1, nullptr, [&](std::int64_t begin, std::int64_t, int) { sum += begin; });
    total += sum;
  }
  EXPECT_EQ(total, kJobs * 6);
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than workers spin
    std::atomic<int> arrived{0};
    // Two ranges that wait for each other: this ends only when the worker takes one.
    pool.parallel_for(2, 1, nullptr, [&](std::int64_t, std::int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  }
}

TEST(ThreadPool, WaitsForASlowWorker) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  bool worker_done = false;
  pool.parallel_for(2, 1, nullptr, [&](std::int64_t, std::int64_t, int worker) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    if (worker == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    worker_done = true;
  });
  EXPECT_TRUE(worker_done);
}

TEST(ThreadPool, RunsASingleRangeOnTheCaller) {
  ThreadPool pool(4);
  std::thread::id ran_on;
  int ran_as = -1;
  pool.parallel_for(10, 10, nullptr, [&](std::int64_t, std::int64_t, int worker) {
    ran_on = std::this_thread::get_id();
    ran_as = worker;
  });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(ran_as, 0);
}

TEST(ThreadPool, StartsNothingOnceStopped) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    StopFlag stop;
    stop.request_stop();
    std::atomic<int> calls{0};
    const auto count = [&](std::int64_t, std::int64_t, int) { ++calls; };
    EXPECT_FALSE(pool.parallel_for(100, 1, &stop, count));
    EXPECT_FALSE(pool.parallel_for(1, 1, &stop, count));
    EXPECT_EQ(calls, 0);
    EXPECT_TRUE(pool.parallel_for(0, 1, &stop, count));
    EXPECT_TRUE(pool.parallel_for(100, 1, nullptr, count));
    EXPECT_EQ(calls, 100);
  }
}

TEST(ThreadPool, StopsBetweenRanges) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    StopFlag stop;
    std::atomic<int> calls{0};
    EXPECT_FALSE(pool.parallel_for(1000, 1, &stop, [&](std::int64_t, std::int64_t, int) {
      ++calls;
      stop.request_stop();
    }));
    EXPECT_GE(calls, 1);
    EXPECT_LE(calls, threads);
  }
}

TEST(ThreadPool, SaysAllIsDoneWhenStoppedInTheLastRange) {
  ThreadPool pool(1);
  StopFlag stop;
  EXPECT_TRUE(pool.parallel_for(3, 1, &stop, [&](std::int64_t begin, std::int64_t, int) {
    if (begin == 2) stop.request_stop();
  }));
}

TEST(ThreadPool, GivesEveryThreadTheDefaultRounding) {
  std::fesetround(FE_UPWARD);
  ThreadPool pool(2);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  std::fesetround(FE_UPWARD);
  ThreadPool inherits(2);  // its worker is started by a thread that rounds upward
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
  inherits.parallel_for(2, 1, nullptr, [&](std::int64_t, std::int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    if (std::fegetround() != FE_TONEAREST) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

// The cores that each thread of a job may run on, by worker.
std::vector<std::vector<int>> cores_of_threads(ThreadPool& pool) {
  std::vector<std::vector<int>> cores(static_cast<std::size_t>(pool.threads()));
  std::atomic<int> arrived{0};
  pool.parallel_for(pool.threads(), 1, nullptr, [&](std::int64_t, std::int64_t, int worker) {
    cores[static_cast<std::size_t>(worker)] = bindable_cores();
    ++arrived;
    while (arrived < pool.threads()) std::this_thread::yield();
  });
  return cores;
}

TEST(ThreadPool, GivesEachThreadACoreWhenItHasAsMany) {
  const std::vector<int> all = bindable_cores();
  if (all.size() < 2) GTEST_SKIP() << "there is only one core to bind threads to";
  ThreadPool pool(static_cast<int>(all.size()));
  {
    const ThreadPool::Seat seat(pool);
    const std::vector<std::vector<int>> cores = cores_of_threads(pool);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(cores[i], std::vector<int>{all[i]});
  }
  EXPECT_EQ(bindable_cores(), all);
  EXPECT_EQ(cores_of_threads(pool).front(), all);
}

TEST(ThreadPool, LeavesThreadsWhereTheyAreWhenItHasFewerOrMore) {
  const std::vector<int> all = bindable_cores();
  for (const int threads : {1, static_cast<int>(all.size()) + 1}) {
    ThreadPool pool(threads);
    const ThreadPool::Seat seat(pool);
    for (const std::vector<int>& cores : cores_of_threads(pool)) EXPECT_EQ(cores, all);
  }
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  for (const int threads : {-1, 0, 100000}) {
    EXPECT_EQ(error_of([&] { ThreadPool pool(threads); }).code(), ErrorCode::usage);
  }
}

}  // namespace
}  // namespace penstock

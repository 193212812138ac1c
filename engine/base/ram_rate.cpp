// SPDX-License-Identifier: Apache-2.0
#include "engine/base/ram_rate.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "engine/base/buffer.h"
#include "engine/base/cores.h"
#include "engine/base/thread_pool.h"

namespace penstock {
namespace {

constexpr std::size_t kPasses = 9;
constexpr std::int64_t kPartWords = 1L << 19U;  // 4 MiB, that one thread reads at a time

// Several sums, which do not wait for one another.
std::uint64_t sum(const std::uint64_t* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  std::uint64_t sums[kLanes] = {};
  for (std::int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += values[i + lane];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t lane : sums) all += lane;
  return all;
}

}  // namespace

double ram_read_gb_per_s(std::size_t bytes) {
  ThreadPool pool(available_cores());
  const ThreadPool::Seat seat(pool);
  const Buffer memory(bytes, "memory to read");
  std::memset(memory.data(), 1, bytes);
  const auto* const values = memory.as<const std::uint64_t>();
  std::atomic<std::uint64_t> sink{0};  // or the compiler would leave the reads out
  std::array<double, kPasses> seconds{};
  for (double& pass : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    pool.parallel_for(static_cast<std::int64_t>(bytes / sizeof *values), kPartWords, nullptr,
                      [&](std::int64_t first, std::int64_t end, int) {
                        sink += sum(values + first, end - first);
                      });
    pass = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::nth_element(seconds, seconds.begin() + kPasses / 2);
  return static_cast<double>(bytes) / seconds[kPasses / 2] / 1e9;
}

}  // namespace penstock

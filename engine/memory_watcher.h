// SPDX-License-Identifier: Apache-2.0
//
// How much memory the engine may take, as the machine's other users come and go: down at once when
// memory is short, up when it has been free for a while, never past the ceiling.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/base/system_memory.h"

namespace penstock {

// The rule, without a clock or a machine. One thread at a time.
class MemoryBudget {
 public:
  using Clock = std::chrono::steady_clock;

  MemoryBudget(std::uint64_t start_bytes, std::uint64_t ceiling_bytes)
      : allowed_(start_bytes), ceiling_(ceiling_bytes) {}

  // The budget by what the machine says now.
  std::uint64_t update(const MemoryUse& use, Clock::time_point now);

 private:
  std::uint64_t allowed_;
  std::uint64_t ceiling_;
  std::optional<Clock::time_point> surplus_since_;
  std::uint64_t least_surplus_limit_ = 0;  // since then
};

// Asks the system every second on a thread of its own. allowed() from any thread.
class MemoryWatcher {
 public:
  MemoryWatcher(std::uint64_t start_bytes, std::uint64_t ceiling_bytes,
                std::function<MemoryUse()> measure = memory_use);
  ~MemoryWatcher();
  MemoryWatcher(const MemoryWatcher&) = delete;
  MemoryWatcher& operator=(const MemoryWatcher&) = delete;

  std::uint64_t allowed() const { return allowed_.load(std::memory_order_relaxed); }

 private:
  void watch();

  std::function<MemoryUse()> measure_;
  MemoryBudget budget_;  // of the thread
  std::atomic<std::uint64_t> allowed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace penstock

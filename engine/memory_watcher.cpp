// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_watcher.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kReserveBytes = 1ULL << 30U;  // left to others, as at the start
constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::seconds kGrowAfter{30};
constexpr double kPressedStall = 0.10;  // share of the time in which somebody waits for memory

// Smaller changes come and go: they are not worth reading a segment again.
std::uint64_t tolerance(std::uint64_t bytes) {
  return std::max<std::uint64_t>(bytes / 50, 64U << 20U);
}

}  // namespace

std::uint64_t MemoryBudget::update(const MemoryUse& use, Clock::time_point now) {
  // What we could hold if others kept what they have.
  const std::uint64_t with_ours = use.held_bytes + use.available_bytes;
  std::uint64_t limit = with_ours > kReserveBytes ? with_ours - kReserveBytes : 0;
  if (use.stalled_share >= kPressedStall) {
    limit = std::min(limit, std::min(allowed_, use.held_bytes) / 10 * 9);
  }
  limit = std::min(limit, ceiling_);
  if (limit + tolerance(allowed_) < allowed_) {
    allowed_ = limit;
    surplus_since_.reset();
  } else if (limit <= allowed_ + tolerance(allowed_) && limit < ceiling_) {
    surplus_since_.reset();
  } else if (limit > allowed_) {
    if (!surplus_since_) {
      surplus_since_ = now;
      least_surplus_limit_ = limit;
    }
    least_surplus_limit_ = std::min(least_surplus_limit_, limit);
    if (now - *surplus_since_ >= kGrowAfter) {
      allowed_ = least_surplus_limit_;
      surplus_since_.reset();
    }
  }
  return allowed_;
}

MemoryWatcher::MemoryWatcher(std::uint64_t start_bytes, std::uint64_t ceiling_bytes,
                             std::function<MemoryUse()> measure)
    : measure_(std::move(measure)),
      budget_(start_bytes, ceiling_bytes),
      allowed_(start_bytes),
      thread_([this] { watch(); }) {}

MemoryWatcher::~MemoryWatcher() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MemoryWatcher::watch() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return quit_; })) {
    try {
      allowed_.store(budget_.update(measure_(), MemoryBudget::Clock::now()),
                     std::memory_order_relaxed);
    } catch (const Error&) {
      // The system does not say this time: the budget stays.
    }
  }
}

}  // namespace penstock

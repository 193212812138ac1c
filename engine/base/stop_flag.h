// SPDX-License-Identifier: Apache-2.0
//
// A flag that asks work to stop. Set once by any thread, polled by those that work. Thread-safe.
#pragma once

#include <atomic>

namespace penstock {

class StopFlag {
 public:
  void request_stop() noexcept { flag_.store(true, std::memory_order_relaxed); }
  bool stop_requested() const noexcept { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
};

}  // namespace penstock

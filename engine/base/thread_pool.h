// SPDX-License-Identifier: Apache-2.0
//
// The compute threads. parallel_for hands out ranges of at most `grain` items; waiting threads spin
// for some microseconds, then sleep. Every thread runs with the default floating-point environment.
// One owner thread: parallel_for is called by the engine thread alone, and never from a body.
//
// When there are as many threads as cores that the process may use, each stays on one of them, the
// owner as long as it has taken its seat. Left alone, schedulers wake threads that work together on
// the same core and take milliseconds to part them (Kimi-Linear streamed, two cores: attention took
// 1.5 times as long). Ranges are taken by whoever is free: a core that others use as well does
// less.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/stop_flag.h"

namespace penstock {

class ThreadPool {
 public:
  // `threads` counts the caller: threads - 1 workers are started. Throws Error(usage) unless
  // 1 <= threads <= 65535, Error(memory) when the system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  // While it lives, the thread that has taken it stays on the first core. The owner alone takes it,
  // and starts no threads meanwhile: they would stay there too.
  class Seat {
   public:
    explicit Seat(const ThreadPool& pool);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    const std::vector<int>& cores_;
  };

  // Calls body(begin, end, worker) on disjoint ranges that cover [0, n), from several threads;
  // worker < threads(), and no two calls with the same worker run at once. The body must not throw.
  // Once `stop` (may be null) is set no further range is started: returns false if any was left
  // out.
  template <typename Body>
  bool parallel_for(std::int64_t n, std::int64_t grain, const StopFlag* stop, const Body& body) {
    const auto call = [](const void* context, std::int64_t begin, std::int64_t end,
                         int worker) noexcept {
      (*static_cast<const Body*>(context))(begin, end, worker);
    };
    return run(n, grain, stop, call, &body);
  }

 private:
  using Call = void (*)(const void* context, std::int64_t begin, std::int64_t end,
                        int worker) noexcept;
  bool run(std::int64_t n, std::int64_t grain, const StopFlag* stop, Call call,
           const void* context);

  struct Shared;
  std::vector<int> cores_;  // one for each thread; empty: they go where the system puts them
  std::unique_ptr<Shared> shared_;
};

}  // namespace penstock

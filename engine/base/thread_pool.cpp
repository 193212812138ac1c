// SPDX-License-Identifier: Apache-2.0
#include "engine/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/cores.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

// Layers follow each other within a few microseconds; a longer spin only takes the core from
// others.
constexpr std::chrono::microseconds kSpin{20};
constexpr int kPausesPerClockRead = 8;
constexpr std::size_t kCacheLineBytes = 64;

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as `ready()` holds, false when it did not for kSpin.
template <typename Ready>
bool spin_until(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (ready()) return true;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

struct Job {
  void (*call)(const void*, std::int64_t, std::int64_t, int) noexcept = nullptr;
  const void* context = nullptr;
  const StopFlag* stop = nullptr;
  std::int64_t n = 0;
  std::int64_t grain = 1;
  std::int64_t ranges = 0;
};

// Bits of the state word: the job's number, whether it may still be joined, how many workers have.
// A worker that wakes late finds the job closed and is not waited for: a preempted worker costs
// its share of the work, never a stall.
constexpr std::uint64_t kJoinedMask = 0xFFFF;
constexpr std::uint64_t kOpen = 1U << 16U;
constexpr std::uint64_t kNextJob = 1U << 17U;
constexpr int kMaxThreads = 0xFFFF;

// A core for each of so many threads, if that takes all that there are.
std::vector<int> cores_for(int threads) {
  std::vector<int> cores = bindable_cores();
  if (threads < 2 || cores.size() != static_cast<std::size_t>(threads)) cores.clear();
  return cores;
}

}  // namespace

// What the caller, joining workers and range takers write lies on cache lines of their own.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct ThreadPool::Shared {
  Job job;  // written by the caller while no worker can have joined
  alignas(kCacheLineBytes) std::atomic<std::int64_t> next_range{0};
  std::atomic<bool> left_out{false};
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> state{0};

  alignas(kCacheLineBytes) std::mutex mutex;
  std::condition_variable work_cv;  // workers: a job is open, or quit
  std::condition_variable done_cv;  // the caller: the last worker has left
  std::atomic<int> sleeping_workers{0};
  std::atomic<bool> sleeping_caller{false};
  std::atomic<bool> quit{false};
  std::vector<std::thread> workers;

  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared();
  void work(int worker);
  bool joinable(std::uint64_t seen) const;
  bool join(std::uint64_t& seen);
  void leave();
  void run_ranges(int worker);
  void open_job();
  void close_job();
};

ThreadPool::Shared::~Shared() {
  {
    const std::lock_guard lock(mutex);
    quit = true;
  }
  work_cv.notify_all();
  for (std::thread& thread : workers) thread.join();
}

// A job that this worker, whose last look at the state was `seen`, has not been part of.
bool ThreadPool::Shared::joinable(std::uint64_t seen) const {
  const std::uint64_t now = state.load();
  return (now & kOpen) != 0 && now / kNextJob != seen / kNextJob;
}

bool ThreadPool::Shared::join(std::uint64_t& seen) {
  std::uint64_t now = state.load();
  while ((now & kOpen) != 0) {
    if (state.compare_exchange_weak(now, now + 1)) {
      seen = now;
      return true;
    }
  }
  return false;
}

void ThreadPool::Shared::leave() {
  const std::uint64_t before = state.fetch_sub(1);
  const bool last = (before & kJoinedMask) == 1;
  if (!last || !sleeping_caller.load()) return;
  { const std::lock_guard lock(mutex); }  // the caller is either not yet testing or truly waiting
  done_cv.notify_one();
}

void ThreadPool::Shared::run_ranges(int worker) {
  for (;;) {
    const std::int64_t range = next_range.fetch_add(1, std::memory_order_relaxed);
    if (range >= job.ranges) return;
    if (job.stop != nullptr && job.stop->stop_requested()) {
      left_out.store(true, std::memory_order_relaxed);
      return;
    }
    const std::int64_t begin = range * job.grain;
    job.call(job.context, begin, begin + std::min(job.grain, job.n - begin), worker);
  }
}

void ThreadPool::Shared::work(int worker) {
  std::fesetenv(FE_DFL_ENV);
  std::uint64_t seen = 0;
  const auto ready = [&] { return joinable(seen) || quit.load(); };
  while (!quit.load()) {
    if (!spin_until(ready)) {
      std::unique_lock lock(mutex);
      ++sleeping_workers;
      work_cv.wait(lock, ready);
      --sleeping_workers;
    }
    if (!joinable(seen) || !join(seen)) continue;
    run_ranges(worker);
    leave();
  }
}

void ThreadPool::Shared::open_job() {
  next_range.store(0, std::memory_order_relaxed);
  left_out.store(false, std::memory_order_relaxed);
  // Sequentially consistent on both sides: either a worker that goes to sleep sees the open job, or
  // we see the sleeper.
  state.store((state.load() / kNextJob + 1) * kNextJob + kOpen);
  const std::int64_t sleepers = sleeping_workers.load();
  if (sleepers == 0) return;
  { const std::lock_guard lock(mutex); }
  for (std::int64_t i = std::min(sleepers, job.ranges - 1); i > 0; --i) work_cv.notify_one();
}

void ThreadPool::Shared::close_job() {
  state.fetch_and(~kOpen);
  const auto ready = [&] { return (state.load() & kJoinedMask) == 0; };
  if (spin_until(ready)) return;
  std::unique_lock lock(mutex);
  sleeping_caller = true;
  done_cv.wait(lock, ready);
  sleeping_caller = false;
}

ThreadPool::ThreadPool(int threads) : shared_(std::make_unique<Shared>()) {
  if (threads < 1 || threads > kMaxThreads) {
    throw Error(ErrorCode::usage, "threads is " + std::to_string(threads) + ", expected 1 to " +
                                      std::to_string(kMaxThreads));
  }
  std::fesetenv(FE_DFL_ENV);
  cores_ = cores_for(threads);
  shared_->workers.reserve(static_cast<std::size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    try {
      shared_->workers.emplace_back([this, shared = shared_.get(), worker] {
        if (!cores_.empty()) bind_to_cores({cores_[static_cast<std::size_t>(worker)]});
        shared->work(worker);
      });
    } catch (const std::system_error& e) {
      throw Error(ErrorCode::memory, "compute thread " + std::to_string(worker + 1) + " of " +
                                         std::to_string(threads) +
                                         " cannot start: " + e.code().message());
    }
  }
}

ThreadPool::~ThreadPool() = default;

ThreadPool::Seat::Seat(const ThreadPool& pool) : cores_(pool.cores_) {
  if (!cores_.empty()) bind_to_cores({cores_.front()});
}

ThreadPool::Seat::~Seat() {
  if (!cores_.empty()) bind_to_cores(cores_);
}

int ThreadPool::threads() const noexcept {
  return static_cast<int>(shared_->workers.size()) + 1;
}

bool ThreadPool::run(std::int64_t n, std::int64_t grain, const StopFlag* stop, Call call,
                     const void* context) {
  assert(grain >= 1);
  if (n <= 0) return true;
  shared_->job = {.call = call,
                  .context = context,
                  .stop = stop,
                  .n = n,
                  .grain = grain,
                  .ranges = n / grain + (n % grain != 0 ? 1 : 0)};
  if (shared_->workers.empty() || shared_->job.ranges == 1) {
    shared_->next_range.store(0, std::memory_order_relaxed);
    shared_->left_out.store(false, std::memory_order_relaxed);
    shared_->run_ranges(0);
  } else {
    shared_->open_job();
    shared_->run_ranges(0);
    shared_->close_job();
  }
  return !shared_->left_out.load(std::memory_order_relaxed);
}

}  // namespace penstock

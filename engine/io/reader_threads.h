// SPDX-License-Identifier: Apache-2.0
//
// Threads that carry out pieces by blocking reads, for the back ends. One owner thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/io/read_backend.h"

namespace penstock {

class ReaderThreads {
 public:
  // `count` threads, for as many pieces in flight. A thread calls `completed`, which
  // must not throw, once a piece of it can be collected. Throws Error(memory) when the system
  // gives no more threads.
  ReaderThreads(int count, std::function<void()> completed);
  ~ReaderThreads();  // carries out what was started
  ReaderThreads(const ReaderThreads&) = delete;
  ReaderThreads& operator=(const ReaderThreads&) = delete;

  // At least `count` threads, or as many as the system gives.
  void make_room(int count) noexcept;
  void start(const ReadPiece& piece) noexcept;
  // Appends the pieces that have completed to `done`; does not wait.
  void collect(std::vector<ReadCompletion>& done) noexcept;

 private:
  void grow(int count);
  void read_pieces() noexcept;
  void stop() noexcept;

  const std::function<void()> completed_;
  std::mutex mutex_;
  std::condition_variable started_cv_;  // readers: a piece waits, or quit
  // At most as long as pieces are in flight, and reserved: nothing is allocated per piece.
  std::vector<ReadPiece> started_;
  std::vector<ReadCompletion> done_;
  bool quit_ = false;
  std::vector<std::thread> readers_;
};

}  // namespace penstock

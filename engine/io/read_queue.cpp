// SPDX-License-Identifier: Apache-2.0
#include "engine/io/read_queue.h"

#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_backend.h"
#include "engine/io/read_schedule.h"

namespace penstock {
namespace {

// A stop flag has nobody to notify us: how often wait() looks at it.
constexpr std::chrono::milliseconds kStopPoll{20};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Read : ScheduledRead {
  bool cancelled = false;  // by the owner: no error is reported
  std::string error;       // of the first piece that failed for good
};

void check(const ReadQueueOptions& options) {
  const auto fail = [](const std::string& message) { throw Error(ErrorCode::usage, message); };
  if (options.depth < 1) {
    fail("read queue depth is " + std::to_string(options.depth) + ", expected at least 1");
  }
  if (options.piece_bytes == 0 || options.piece_bytes % kPageBytes != 0) {
    fail("read piece has " + std::to_string(options.piece_bytes) +
         " bytes, expected a multiple of " + std::to_string(kPageBytes));
  }
  if (options.retries < 0) {
    fail("read retries is " + std::to_string(options.retries) + ", expected at least 0");
  }
}

struct ChosenBackend {
  std::unique_ptr<ReadBackend> backend;
  std::string note;  // see ReadQueue::backend_note
};

ChosenBackend choose_backend(const ReadQueueOptions& options) {
  if (options.backend == ReadBackendChoice::pread) return {make_pread_backend(options.depth), {}};
  std::string refused;
  if (auto uring = make_uring_backend(options.depth, refused)) return {std::move(uring), {}};
  if (options.backend == ReadBackendChoice::uring) {
    throw Error(ErrorCode::usage, "io_uring cannot be used: " + refused);
  }
  return {make_pread_backend(options.depth),
          "io_uring cannot be used (" + refused + "): reading with " +
              std::to_string(options.depth) + " threads instead"};
}

}  // namespace

std::size_t widened_bytes(std::uint64_t offset, std::size_t bytes) {
  if (bytes == 0) return 0;
  const auto lead = static_cast<std::size_t>(offset % kPageBytes);
  return round_up(lead + bytes, kPageBytes);
}

struct ReadQueue::Shared {
  explicit Shared(const ReadQueueOptions& queue_options)
      : Shared(queue_options, choose_backend(queue_options)) {}
  Shared(const ReadQueueOptions& queue_options, ChosenBackend chosen)
      : retries(queue_options.retries),
        backend(std::move(chosen.backend)),
        backend_note(std::move(chosen.note)),
        schedule(queue_options.depth, queue_options.piece_bytes) {}

  const int retries;
  const std::unique_ptr<ReadBackend> backend;
  const std::string backend_note;

  mutable std::mutex mutex;
  std::condition_variable ended_cv;  // the owner: a read has ended
  // All below under the mutex. Reads are owned by `reads`; one that is waited for is never erased
  // before it has ended, and a read that has ended is pointed to by nobody else.
  std::unordered_map<ReadId, std::unique_ptr<Read>> reads;
  ReadSchedule schedule;
  ReadQueueStats stats;
  Clock::time_point busy_since;  // valid while pieces are in flight; what lies before is in stats
  bool quit = false;
  ReadId last_id = 0;

  std::thread io_thread;  // last: runs on all of the above

  void run_io() noexcept;
  void settle(std::vector<ReadCompletion>& done);
  void pick(std::vector<ReadPiece>& to_start);
  Read& find(ReadId id) const;
};

// The I/O thread: settles what has come, picks what goes next, waits; the lock is not held while
// the back end works.
void ReadQueue::Shared::run_io() noexcept {
  std::vector<ReadPiece> to_start;
  std::vector<ReadCompletion> done;
  int room = 0;
  for (;;) {
    int wanted_room = 0;
    {
      const std::lock_guard lock(mutex);
      const bool was_busy = schedule.in_flight() > 0;
      settle(done);
      pick(to_start);
      const bool busy = schedule.in_flight() > 0;
      if (was_busy && !busy) stats.busy_s += seconds_since(busy_since);
      if (!was_busy && busy) busy_since = Clock::now();
      if (quit && !busy) return;
      wanted_room = schedule.room();
    }
    if (wanted_room > room) {
      room = wanted_room;
      backend->make_room(room);
      to_start.reserve(static_cast<std::size_t>(room));
      done.reserve(static_cast<std::size_t>(room));
    }
    for (const ReadPiece& piece : to_start) backend->start(piece);
    to_start.clear();
    done.clear();
    backend->reap(done);
  }
}

void ReadQueue::Shared::settle(std::vector<ReadCompletion>& done) {
  bool any_ended = false;
  for (ReadCompletion& completion : done) {
    Read& read = static_cast<Read&>(*completion.piece.tag.read);
    const bool failed = !completion.error.empty() && !read.dropped;
    if (failed && completion.piece.tag.failures < retries) {
      schedule.retry(completion.piece);
      continue;
    }
    schedule.end(completion.piece);
    if (failed) {
      read.error = std::move(completion.error);
      schedule.drop(read);
    }
    any_ended = any_ended || read.ended();
  }
  if (any_ended) ended_cv.notify_all();
}

void ReadQueue::Shared::pick(std::vector<ReadPiece>& to_start) {
  while (const std::optional<ReadPiece> piece = schedule.next()) {
    to_start.push_back(*piece);
    const auto priority = static_cast<std::size_t>(piece->tag.read->priority);
    stats.drive_bytes += piece->bytes;
    stats.priority_bytes[priority] += piece->bytes;
    ++stats.pieces;
    if (piece->tag.failures > 0) ++stats.retries;
  }
}

Read& ReadQueue::Shared::find(ReadId id) const {
  const auto it = reads.find(id);
  assert(it != reads.end() && "a read is used after its wait()");
  return *it->second;
}

ReadQueue::ReadQueue(const ReadQueueOptions& options) {
  check(options);
  shared_ = std::make_unique<Shared>(options);
  try {
    shared_->io_thread = std::thread([shared = shared_.get()] { shared->run_io(); });
  } catch (const std::system_error& e) {
    throw Error(ErrorCode::memory, "I/O thread cannot start: " + e.code().message());
  }
}

ReadQueue::~ReadQueue() {
  {
    const std::lock_guard lock(shared_->mutex);
    for (auto& [id, read] : shared_->reads) shared_->schedule.drop(*read);
    shared_->quit = true;
  }
  shared_->backend->wake();
  shared_->io_thread.join();
}

void ReadQueue::set_pieces(int depth, std::size_t piece_bytes) {
  check({.depth = depth, .piece_bytes = piece_bytes});
  const std::lock_guard lock(shared_->mutex);
  assert(shared_->reads.empty() && "the options change while a read is live");
  shared_->schedule.set_pieces(depth, piece_bytes);
}

ReadId ReadQueue::submit(std::span<const ReadOp> ops, ReadPriority priority) {
  assert(!ops.empty());
  auto read = std::make_unique<Read>();
  read->priority = priority;
  ReadId id = 0;
  {
    const std::lock_guard lock(shared_->mutex);
    id = ++shared_->last_id;
    shared_->schedule.add(*read, ops);
    shared_->reads.emplace(id, std::move(read));
  }
  shared_->backend->wake();
  return id;
}

bool ReadQueue::finished(ReadId id) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->find(id).ended();
}

void ReadQueue::wait(ReadId id, const StopFlag* stop) {
  std::unique_lock lock(shared_->mutex);
  const Read& read = shared_->find(id);
  while (!read.ended()) {
    if (stop == nullptr) {
      shared_->ended_cv.wait(lock);
      continue;
    }
    if (stop->stop_requested()) throw Error(ErrorCode::cancelled, "the read was stopped");
    shared_->ended_cv.wait_for(lock, kStopPoll);
  }
  const std::string error = read.cancelled ? std::string() : read.error;
  shared_->reads.erase(id);
  if (!error.empty()) throw Error(ErrorCode::io, error);
}

void ReadQueue::promote(ReadId id, ReadPriority priority) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->schedule.promote(shared_->find(id), priority);
  }
  shared_->backend->wake();  // more of it may start now
}

void ReadQueue::cancel(ReadId id) {
  {
    const std::lock_guard lock(shared_->mutex);
    Read& read = shared_->find(id);
    shared_->schedule.drop(read);
    read.cancelled = true;
  }
  shared_->backend->wake();  // others may start now
}

const char* ReadQueue::backend_name() const {
  return shared_->backend->name();
}

const std::string& ReadQueue::backend_note() const {
  return shared_->backend_note;
}

ReadQueueStats ReadQueue::stats() const {
  const std::lock_guard lock(shared_->mutex);
  ReadQueueStats stats = shared_->stats;
  if (shared_->schedule.in_flight() > 0) stats.busy_s += seconds_since(shared_->busy_since);
  return stats;
}

}  // namespace penstock

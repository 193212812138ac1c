// SPDX-License-Identifier: Apache-2.0
#include "engine/io/read_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_backend.h"

namespace penstock {
namespace {

// A stop flag has nobody to notify us: how often wait() looks at it.
constexpr std::chrono::milliseconds kStopPoll{20};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Read {
  std::vector<ReadOp> ops;
  ReadPriority priority = ReadPriority::demand;
  // The next piece to start: in which op, and how many of its widened bytes were started.
  std::size_t op = 0;
  std::size_t begun_bytes = 0;
  int in_flight = 0;
  bool dropped = false;    // cancelled or failed: what has not started will not
  bool cancelled = false;  // by the owner: no error is reported
  std::string error;       // of the first piece that failed for good

  bool started() const { return dropped || op == ops.size(); }
  bool ended() const { return in_flight == 0 && started(); }
};

std::uint64_t first_page(const ReadOp& op) {
  return op.offset / kPageBytes * kPageBytes;
}

void skip_empty_ops(Read& read) {
  while (read.op < read.ops.size() && read.ops[read.op].bytes == 0) ++read.op;
}

// Cuts the next piece off a read that has not started all of its own. Direct or not, cuts lie on
// page borders.
ReadPiece next_piece(Read& read, std::size_t piece_bytes) {
  const ReadOp& op = read.ops[read.op];
  const std::size_t widened = widened_bytes(op.offset, op.bytes);
  const std::size_t begin = read.begun_bytes;
  const std::size_t bytes = std::min(piece_bytes, widened - begin);

  const std::uint64_t page = first_page(op);
  const std::uint64_t payload_begin = std::max(op.offset, page + begin);
  const std::uint64_t payload_end = std::min(op.offset + op.bytes, page + begin + bytes);

  ReadPiece piece{.source = op.source, .direct = op.direct, .owner = &read};
  // A direct piece is widened to the source's units, not to whole pages.
  const std::uint64_t unit = op.direct ? op.source->direct_unit() : 1;
  piece.offset = payload_begin / unit * unit;
  piece.memory = op.memory + (piece.offset - page);
  piece.needed = static_cast<std::size_t>(payload_end - piece.offset);
  piece.bytes = round_up(piece.needed, unit);

  read.begun_bytes += bytes;
  if (read.begun_bytes == widened) {
    read.begun_bytes = 0;
    ++read.op;
    skip_empty_ops(read);
  }
  return piece;
}

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
      : options(queue_options),
        backend(std::move(chosen.backend)),
        backend_note(std::move(chosen.note)) {}

  const ReadQueueOptions options;
  const std::unique_ptr<ReadBackend> backend;
  const std::string backend_note;

  mutable std::mutex mutex;
  std::condition_variable ended_cv;  // the owner: a read has ended
  // All below under the mutex. Reads are owned by `reads`; one that is waited for is never erased
  // before it has ended, and a read that has ended is pointed to by nobody else.
  std::unordered_map<ReadId, std::unique_ptr<Read>> reads;
  std::array<std::deque<Read*>, kReadPriorities> pending;  // with pieces to start, oldest first
  int in_flight = 0;
  ReadQueueStats stats;
  Clock::time_point busy_since;  // valid while in_flight > 0; what lies before is in the stats
  bool quit = false;
  ReadId last_id = 0;

  std::thread io_thread;  // last: runs on all of the above

  void run_io() noexcept;
  void settle(std::vector<ReadCompletion>& done, std::vector<ReadPiece>& to_start);
  void pick(std::vector<ReadPiece>& to_start);
  void count(const std::vector<ReadPiece>& started, bool was_busy);
  std::deque<Read*>& queue_of(const Read& read);
  void drop(Read& read);
  Read& find(ReadId id) const;
};

// The I/O thread: settles what has come, picks what goes next, waits; the lock is not held while
// the back end works.
void ReadQueue::Shared::run_io() noexcept {
  std::vector<ReadPiece> to_start;
  std::vector<ReadCompletion> done;
  to_start.reserve(static_cast<std::size_t>(options.depth));
  done.reserve(static_cast<std::size_t>(options.depth));
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      const bool was_busy = in_flight > 0;
      settle(done, to_start);
      pick(to_start);
      count(to_start, was_busy);
      if (quit && in_flight == 0) return;
    }
    for (const ReadPiece& piece : to_start) backend->start(piece);
    to_start.clear();
    done.clear();
    backend->reap(done);
  }
}

// A failed piece is started again in its own place in flight.
void ReadQueue::Shared::settle(std::vector<ReadCompletion>& done,
                               std::vector<ReadPiece>& to_start) {
  bool any_ended = false;
  for (ReadCompletion& completion : done) {
    Read& read = *static_cast<Read*>(completion.piece.owner);
    const bool failed = !completion.error.empty();
    if (failed && !read.dropped && completion.piece.failures < options.retries) {
      ++completion.piece.failures;
      to_start.push_back(completion.piece);
      continue;
    }
    --in_flight;
    --read.in_flight;
    if (failed && !read.dropped) {
      read.error = std::move(completion.error);
      drop(read);
    }
    any_ended = any_ended || read.ended();
  }
  if (any_ended) ended_cv.notify_all();
}

void ReadQueue::Shared::pick(std::vector<ReadPiece>& to_start) {
  for (std::deque<Read*>& queue : pending) {
    while (!queue.empty() && in_flight < options.depth) {
      Read& read = *queue.front();
      to_start.push_back(next_piece(read, options.piece_bytes));
      ++in_flight;
      ++read.in_flight;
      if (read.started()) queue.pop_front();
    }
  }
}

// `was_busy`: before the round that picked `started`.
void ReadQueue::Shared::count(const std::vector<ReadPiece>& started, bool was_busy) {
  for (const ReadPiece& piece : started) {
    const auto priority = static_cast<std::size_t>(static_cast<Read*>(piece.owner)->priority);
    stats.drive_bytes += piece.bytes;
    stats.priority_bytes[priority] += piece.bytes;
    stats.retries += piece.failures > 0 ? 1 : 0;
  }
  stats.pieces += started.size();
  if (was_busy && in_flight == 0) stats.busy_s += seconds_since(busy_since);
  if (!was_busy && in_flight > 0) busy_since = Clock::now();
}

std::deque<Read*>& ReadQueue::Shared::queue_of(const Read& read) {
  return pending[static_cast<std::size_t>(read.priority)];
}

void ReadQueue::Shared::drop(Read& read) {
  if (!read.started()) {
    std::deque<Read*>& queue = queue_of(read);
    queue.erase(std::find(queue.begin(), queue.end(), &read));
  }
  read.dropped = true;
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
    for (auto& [id, read] : shared_->reads) shared_->drop(*read);
    shared_->quit = true;
  }
  shared_->backend->wake();
  shared_->io_thread.join();
}

ReadId ReadQueue::submit(std::span<const ReadOp> ops, ReadPriority priority) {
  assert(!ops.empty());
  auto read = std::make_unique<Read>();
  read->ops.assign(ops.begin(), ops.end());
  read->priority = priority;
  for (ReadOp& op : read->ops) {
    op.direct = op.direct && op.source->direct_fd() >= 0;
  }
  skip_empty_ops(*read);

  ReadId id = 0;
  {
    const std::lock_guard lock(shared_->mutex);
    id = ++shared_->last_id;
    if (!read->started()) shared_->queue_of(*read).push_back(read.get());
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

void ReadQueue::cancel(ReadId id) {
  const std::lock_guard lock(shared_->mutex);
  Read& read = shared_->find(id);
  shared_->drop(read);
  read.cancelled = true;
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
  if (shared_->in_flight > 0) stats.busy_s += seconds_since(shared_->busy_since);
  return stats;
}

}  // namespace penstock

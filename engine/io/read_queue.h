// SPDX-License-Identifier: Apache-2.0
//
// The one way to the drives. Reads are cut into pieces and started by priority, oldest first, at
// most `depth` at a time on each drive, by one I/O thread that never waits for the engine. Of a
// mirrored source, each piece goes to the drive with the fewest bytes in flight. Failed pieces are
// retried, elsewhere if there is a copy. One owner thread: submit, wait, cancel, set_pieces and the
// destructor belong to the engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/stop_flag.h"
#include "engine/io/byte_source.h"

namespace penstock {

enum class ReadPriority : std::uint8_t { demand, spine, look_ahead };  // most urgent first
inline constexpr int kReadPriorities = 3;

using ReadId = std::uint64_t;

// One extent of a source. Its first byte lands at memory + offset % kPageBytes, whether the read is
// direct or not; memory is page aligned and holds widened_bytes(offset, bytes).
struct ReadOp {
  const ByteSource* source;
  std::uint64_t offset;
  std::size_t bytes;
  std::byte* memory;
  bool direct = true;  // false: through the page cache and not widened (small, popular reads)
};

// Bytes of the whole pages that [offset, offset + bytes) touches: the memory that a read needs.
// What is asked of the drive is less where the source's direct_unit() is finer.
std::size_t widened_bytes(std::uint64_t offset, std::size_t bytes);

enum class ReadBackendChoice : std::uint8_t {
  automatic,  // uring, or pread where that is refused
  uring,      // io_uring for direct reads, threads for the rest
  pread,      // threads for all
};

struct ReadQueueOptions {
  int depth = 4;                         // pieces in flight on one drive
  std::size_t piece_bytes = 4UL << 20U;  // a multiple of kPageBytes
  int retries = 2;                       // of a failed piece, before its read fails
  ReadBackendChoice backend = ReadBackendChoice::automatic;
};

// Sums since the queue was made.
struct ReadQueueStats {
  std::uint64_t drive_bytes = 0;  // asked of the drives, widening and retries included
  std::array<std::uint64_t, kReadPriorities> priority_bytes{};  // of drive_bytes, by priority
  std::uint64_t pieces = 0;                                     // started, retries included
  std::uint64_t retries = 0;
  double busy_s = 0;  // while at least one piece was in flight
};

class ReadQueue {
 public:
  // Throws Error(usage) for options out of range or io_uring that was asked for and is refused,
  // Error(memory) when no thread can be started.
  explicit ReadQueue(const ReadQueueOptions& options = {});
  ~ReadQueue();  // cancels what is left and waits for the pieces that were started
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  // Other options, while no read is live. Throws Error(usage) when they are out of range.
  void set_pieces(int depth, std::size_t piece_bytes);

  // Starts reading all of `ops` (at least one) as one read. Every id is retired by one wait().
  ReadId submit(std::span<const ReadOp> ops, ReadPriority priority);

  // The read has ended, well or not: nothing of it writes to memory any more, wait() will not
  // block.
  bool finished(ReadId id) const;

  // Blocks until the read has ended, then retires it. Throws Error(io) with the reason when it
  // failed and was not cancelled. Throws Error(cancelled) as soon as `stop` (may be null) is set:
  // the id stays live then.
  void wait(ReadId id, const StopFlag* stop);

  // What has not started waits with that priority from now on, behind others of it.
  void promote(ReadId id, ReadPriority priority);

  // Drops what has not started and does not block: memory belongs to the read until finished(id).
  void cancel(ReadId id);

  const char* backend_name() const;  // "io_uring" or "pread"
  // One line to tell the user when io_uring would have been taken but is refused, else empty.
  const std::string& backend_note() const;

  ReadQueueStats stats() const;  // any thread
  std::uint64_t drive_bytes() const { return stats().drive_bytes; }

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Which piece goes to which drive next: the most urgent priority first, the oldest within it, at
// most `depth` in flight on each drive, so that a slow drive holds up no other. A drive shares its
// rate among all that is in flight: beside more urgent pieces a piece starts only when they are so
// few that the drive would soon run dry. Not thread-safe: the queue's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/read_backend.h"
#include "engine/io/read_queue.h"

namespace penstock {

// One submitted read, as far as the schedule is concerned.
struct ScheduledRead {
  ReadPriority priority = ReadPriority::demand;
  std::size_t waiting_ops = 0;  // with pieces that were not started
  int in_flight = 0;            // pieces that were started and have not ended
  bool dropped = false;         // what has not started will not

  bool ended() const { return in_flight == 0 && waiting_ops == 0; }
};

class ReadSchedule {
 public:
  ReadSchedule(int depth, std::size_t piece_bytes) : depth_(depth), piece_bytes_(piece_bytes) {}

  // Takes effect with the next piece.
  void set_pieces(int depth, std::size_t piece_bytes);

  void add(ScheduledRead& read, std::span<const ReadOp> ops);
  // What of the read has not started waits behind others of that priority from now on.
  void promote(ScheduledRead& read, ReadPriority priority);
  // Starts no more of the read. It has ended once its pieces in flight have.
  void drop(ScheduledRead& read);

  // The next piece to start, none when no drive that has something to do has room.
  std::optional<ReadPiece> next();
  // A piece has completed: it has ended, or is to be tried again before all that waits, on
  // another drive if there is a copy of its source.
  void end(const ReadPiece& piece);
  void retry(const ReadPiece& piece);

  int in_flight() const { return in_flight_; }  // on the drives
  // As many as may ever be in flight, with the drives seen so far.
  int room() const { return depth_ * static_cast<int>(drives_.size()); }

 private:
  struct Drive {
    std::uint64_t id;
    std::vector<const ScheduledRead*> in_flight;  // one entry per piece
    std::uint64_t bytes_in_flight = 0;
  };
  struct Extent {  // an op of which `begun_bytes` (widened) were started
    ScheduledRead* read;
    ReadOp op;
    std::uint64_t age;
    std::size_t begun_bytes = 0;
  };
  struct Lane {                       // what waits for the same drives
    std::vector<std::size_t> drives;  // index by replica
    std::array<std::deque<Extent>, kReadPriorities> waiting;
  };

  std::size_t drive_of(const ByteSource& source);
  std::size_t lane_of(const ByteSource& source);
  std::optional<std::size_t> free_replica(const Lane& lane, ReadPriority priority) const;
  bool has_room(const Drive& drive, ReadPriority priority) const;
  ReadPiece cut(std::size_t lane, std::deque<Extent>& waiting, std::size_t replica);
  ReadPiece begin(ReadPiece piece);
  void leave_drive(const ReadPiece& piece);

  int depth_;
  std::size_t piece_bytes_;
  std::vector<Drive> drives_;
  std::vector<Lane> lanes_;
  std::vector<ReadPiece> retries_;  // oldest first
  int in_flight_ = 0;
  std::uint64_t last_age_ = 0;
};

}  // namespace penstock

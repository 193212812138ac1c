// SPDX-License-Identifier: Apache-2.0
#include "engine/io/read_schedule.h"

#include <algorithm>
#include <utility>

#include "engine/base/buffer.h"

namespace penstock {
namespace {

// Less urgent pieces join while less than this part of `depth` is in flight. With Kimi-Linear's
// spine in memory and two cores, reads ahead that filled all of it made a token 20 % slower.
constexpr int kShareOfLessUrgent = 4;

// Directs a piece that covers [offset, offset + needed) to `source`. A direct one is widened to
// the source's units, not to whole pages; what another source's units have added stays.
void aim(ReadPiece& piece, const ByteSource& source) {
  piece.source = &source;
  piece.direct = piece.tag.wants_direct && source.direct_fd() >= 0;
  const std::uint64_t unit = piece.direct ? source.direct_unit() : 1;
  const auto lead = static_cast<std::size_t>(piece.offset % unit);
  piece.offset -= lead;
  piece.memory -= lead;
  piece.needed += lead;
  piece.bytes = round_up(piece.needed, unit);
}

}  // namespace

void ReadSchedule::set_pieces(int depth, std::size_t piece_bytes) {
  depth_ = depth;
  piece_bytes_ = piece_bytes;
}

void ReadSchedule::add(ScheduledRead& read, std::span<const ReadOp> ops) {
  for (const ReadOp& op : ops) {
    if (op.bytes == 0) continue;
    Lane& lane = lanes_[lane_of(*op.source)];
    lane.waiting[static_cast<std::size_t>(read.priority)].push_back(
        {.read = &read, .op = op, .age = ++last_age_});
    ++read.waiting_ops;
  }
}

void ReadSchedule::promote(ScheduledRead& read, ReadPriority priority) {
  if (priority == read.priority) return;
  for (Lane& lane : lanes_) {
    std::deque<Extent>& from = lane.waiting[static_cast<std::size_t>(read.priority)];
    std::deque<Extent>& to = lane.waiting[static_cast<std::size_t>(priority)];
    for (Extent& extent : from) {
      if (extent.read != &read) continue;
      to.push_back(extent);
      to.back().age = ++last_age_;
    }
    std::erase_if(from, [&](const Extent& extent) { return extent.read == &read; });
  }
  read.priority = priority;
}

void ReadSchedule::drop(ScheduledRead& read) {
  read.dropped = true;
  for (Lane& lane : lanes_) {
    if (read.waiting_ops == 0) break;
    std::erase_if(lane.waiting[static_cast<std::size_t>(read.priority)], [&](const Extent& extent) {
      if (extent.read == &read) --read.waiting_ops;
      return extent.read == &read;
    });
  }
  std::erase_if(retries_, [&](const ReadPiece& piece) {
    if (piece.tag.read == &read) --read.in_flight;
    return piece.tag.read == &read;
  });
}

std::optional<ReadPiece> ReadSchedule::next() {
  for (auto it = retries_.begin(); it != retries_.end(); ++it) {
    const Drive& drive = drives_[lanes_[it->tag.lane].drives[it->tag.replica]];
    if (!has_room(drive, it->tag.read->priority)) continue;
    const ReadPiece piece = *it;
    retries_.erase(it);
    return begin(piece);
  }
  for (std::size_t priority = 0; priority < kReadPriorities; ++priority) {
    std::optional<std::pair<std::size_t, std::size_t>> oldest;  // lane, replica
    std::uint64_t age = 0;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const std::deque<Extent>& waiting = lanes_[i].waiting[priority];
      if (waiting.empty() || (oldest && age < waiting.front().age)) continue;
      const std::optional<std::size_t> replica =
          free_replica(lanes_[i], static_cast<ReadPriority>(priority));
      if (!replica) continue;
      oldest = {i, *replica};
      age = waiting.front().age;
    }
    if (!oldest) continue;
    const auto [lane, replica] = *oldest;
    ReadPiece piece = cut(lane, lanes_[lane].waiting[priority], replica);
    ++piece.tag.read->in_flight;
    return begin(piece);
  }
  return std::nullopt;
}

void ReadSchedule::end(const ReadPiece& piece) {
  leave_drive(piece);
  --piece.tag.read->in_flight;
}

void ReadSchedule::retry(const ReadPiece& piece) {
  leave_drive(piece);
  ReadPiece again = piece;
  ++again.tag.failures;
  again.tag.replica = (piece.tag.replica + 1) % lanes_[piece.tag.lane].drives.size();
  aim(again, again.tag.whole->replica(again.tag.replica));
  retries_.push_back(again);
}

std::size_t ReadSchedule::drive_of(const ByteSource& source) {
  const std::uint64_t id = source.drive();
  for (std::size_t i = 0; i < drives_.size(); ++i) {
    if (drives_[i].id == id) return i;
  }
  drives_.push_back({.id = id, .in_flight = {}});
  return drives_.size() - 1;
}

std::size_t ReadSchedule::lane_of(const ByteSource& source) {
  const auto serves = [&](const Lane& lane) {
    if (lane.drives.size() != source.replica_count()) return false;
    for (std::size_t i = 0; i < lane.drives.size(); ++i) {
      if (drives_[lane.drives[i]].id != source.replica(i).drive()) return false;
    }
    return true;
  };
  const auto it = std::find_if(lanes_.begin(), lanes_.end(), serves);
  if (it != lanes_.end()) return static_cast<std::size_t>(it - lanes_.begin());
  Lane lane;
  for (std::size_t i = 0; i < source.replica_count(); ++i) {
    lane.drives.push_back(drive_of(source.replica(i)));
  }
  lanes_.push_back(std::move(lane));
  return lanes_.size() - 1;
}

bool ReadSchedule::has_room(const Drive& drive, ReadPriority priority) const {
  const bool beside_more_urgent =
      std::ranges::any_of(drive.in_flight, [priority](const ScheduledRead* read) {
        return !read->dropped && read->priority < priority;
      });
  const int most = beside_more_urgent ? depth_ / kShareOfLessUrgent : depth_;
  return drive.in_flight.size() < static_cast<std::size_t>(most);
}

// The replica whose drive has the fewest bytes in flight, none when no drive has room.
std::optional<std::size_t> ReadSchedule::free_replica(const Lane& lane,
                                                      ReadPriority priority) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < lane.drives.size(); ++i) {
    if (!has_room(drives_[lane.drives[i]], priority)) continue;
    if (!best ||
        drives_[lane.drives[i]].bytes_in_flight < drives_[lane.drives[*best]].bytes_in_flight) {
      best = i;
    }
  }
  return best;
}

// Cuts the next piece off the first extent that waits. Direct or not, cuts lie on page borders.
ReadPiece ReadSchedule::cut(std::size_t lane, std::deque<Extent>& waiting, std::size_t replica) {
  Extent& extent = waiting.front();
  const ReadOp& op = extent.op;
  const std::size_t widened = widened_bytes(op.offset, op.bytes);
  const std::size_t begin = extent.begun_bytes;
  const std::size_t end = std::min(begin + piece_bytes_, widened);

  const std::uint64_t page = op.offset / kPageBytes * kPageBytes;
  const std::uint64_t payload_begin = std::max(op.offset, page + begin);
  const std::uint64_t payload_end = std::min(op.offset + op.bytes, page + end);
  ReadPiece piece{.offset = payload_begin,
                  .needed = static_cast<std::size_t>(payload_end - payload_begin),
                  .memory = op.memory + (payload_begin - page),
                  .tag = {.read = extent.read,
                          .whole = op.source,
                          .lane = lane,
                          .replica = replica,
                          .wants_direct = op.direct}};
  aim(piece, op.source->replica(replica));

  extent.begun_bytes = end;
  if (end == widened) {
    --extent.read->waiting_ops;
    waiting.pop_front();
  }
  return piece;
}

ReadPiece ReadSchedule::begin(ReadPiece piece) {
  Drive& drive = drives_[lanes_[piece.tag.lane].drives[piece.tag.replica]];
  drive.in_flight.push_back(piece.tag.read);
  drive.bytes_in_flight += piece.bytes;
  ++in_flight_;
  return piece;
}

void ReadSchedule::leave_drive(const ReadPiece& piece) {
  Drive& drive = drives_[lanes_[piece.tag.lane].drives[piece.tag.replica]];
  drive.in_flight.erase(std::ranges::find(drive.in_flight, piece.tag.read));
  drive.bytes_in_flight -= piece.bytes;
  --in_flight_;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// What a drive delivers: a short look at start that sets the read queue's depth and pieces, and a
// thorough measurement. Both read the files that they are given and nothing else.
// One owner thread, that of the queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"

namespace penstock {

struct PieceSetting {
  int depth;
  std::size_t piece_bytes;
  double gb_per_s;  // measured; not very precise
};

struct ProbeLimits {
  std::uint64_t min_file_bytes = 1'000'000'000;  // with less to read it does not pay
  std::uint64_t read_bytes = 256'000'000;        // in all
  double seconds = 0.3;                          // in all, but for reads that are in flight then
};

// Tries depths 1, 2, 4, 8 with pieces of 1 and 4 MiB by random direct reads of `sources` and leaves
// the queue, no read of which is live, with the best of them. Returns it; nullopt, and the queue as
// it was, when there is too little on the drive to read. Throws Error(io) when a read fails,
// Error(cancelled) when `stop` (may be null) is set.
std::optional<PieceSetting> choose_depth(ReadQueue& queue,
                                         std::span<const ByteSource* const> sources,
                                         const StopFlag* stop, const ProbeLimits& limits = {});

// The setting with the fewest bytes in flight, and the smaller pieces, of those within 5 % of the
// fastest. `measured` is not empty.
PieceSetting smallest_of_the_best(std::span<const PieceSetting> measured);

struct DriveBenchOptions {
  std::size_t record_bytes = 17'547'264;  // an expert of Kimi K3
  double seconds = 3;                     // for each depth, all rounds together
  int rounds = 3;                         // the rate of a depth is the median of them
  std::vector<int> depths{1, 2, 4, 8, 16};
  const StopFlag* stop = nullptr;
};

// Fewer records than that cannot be measured: every round wants as many as it has in flight.
std::uint64_t least_records(const DriveBenchOptions& options);

struct DepthRate {
  int depth;
  double gb_per_s;
};

struct DriveRate {
  std::size_t record_bytes;
  std::string file_system;  // of the first file
  std::string drive;        // the block devices, "" when the system names none
  std::vector<DepthRate> depths;
  DepthRate best;
};

// The rate of whole records at random offsets that are never repeated, by direct reads, `depth` of
// them in flight on each drive. Takes memory for two records more than that. With few files a round
// is shorter than its time. Throws Error(io) when a read fails, and when the files cannot be
// measured: no direct reads, holes, too few records, or when the system's own count of what was
// read from drives falls short of what was asked for; Error(usage) for options out of range.
DriveRate measure_drive(std::span<const ByteSource* const> sources,
                        const DriveBenchOptions& options);

}  // namespace penstock

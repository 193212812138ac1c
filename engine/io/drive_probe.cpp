// SPDX-License-Identifier: Apache-2.0
#include "engine/io/drive_probe.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/drive_counters.h"
#include "engine/io/local_file.h"
#include "engine/io/random_reads.h"

namespace penstock {
namespace {

constexpr std::size_t kMiB = 1UL << 20U;
constexpr std::size_t kLargePiece = 4 * kMiB;
constexpr std::array<std::size_t, 2> kPieces{kMiB, kLargePiece};
constexpr std::array<std::size_t, 4> kDepths{1, 2, 4, 8};
constexpr std::uint64_t kLeastBlocks = 2;  // of the large size, for each setting
constexpr double kGoodEnough = 0.95;       // of the fastest

// A drive waits for nobody while the oldest of its reads is the slowest: so many more are queued.
constexpr std::size_t kSpare = 2;

// The system's count may miss, and include, a little that is not ours.
constexpr double kCovered = 0.97;

// Memory that has been touched: the first touch of a page can cost more than reading it.
Buffer touched_memory(std::size_t bytes) {
  Buffer memory(bytes, "drive measurement");
  std::memset(memory.data(), 1, bytes);
  return memory;
}

std::set<std::uint64_t> drives_of(const std::vector<const ByteSource*>& sources) {
  std::set<std::uint64_t> drives;
  for (const ByteSource* source : sources) drives.insert(source->drive());
  return drives;
}

std::uint64_t sum_of_sizes(const std::vector<const ByteSource*>& sources) {
  std::uint64_t sum = 0;
  for (const ByteSource* source : sources) sum += source->size();
  return sum;
}

std::uint64_t in_flight_bytes(const PieceSetting& setting) {
  return static_cast<std::uint64_t>(setting.depth) * setting.piece_bytes;
}

// All settings, the fewest bytes in flight first.
std::vector<PieceSetting> probe_settings() {
  std::vector<PieceSetting> settings;
  for (const std::size_t piece : kPieces) {
    for (const std::size_t depth : kDepths) {
      settings.push_back({.depth = static_cast<int>(depth), .piece_bytes = piece, .gb_per_s = 0});
    }
  }
  std::ranges::stable_sort(settings, {}, in_flight_bytes);
  return settings;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void check(const DriveBenchOptions& options) {
  const auto fail = [](const std::string& message) { throw Error(ErrorCode::usage, message); };
  if (options.record_bytes == 0) fail("record bytes is 0, expected at least 1");
  if (!(options.seconds > 0)) fail("seconds per depth must be above 0");
  if (options.rounds < 1) fail("rounds must be at least 1");
  if (options.depths.empty() || std::ranges::min(options.depths) < 1) {
    fail("depths must be at least 1");
  }
}

// What the system counts, of the drives together and of this process.
struct Counts {
  std::optional<std::uint64_t> drives;  // when it lists all of them
  std::optional<std::uint64_t> process;
};

Counts count_reads(const std::set<std::uint64_t>& drives) {
  Counts counts{.drives = 0, .process = process_read_bytes()};
  for (const std::uint64_t drive : drives) {
    const std::optional<DriveCounter> counter = drive_counter(drive);
    if (!counter) return {.drives = std::nullopt, .process = counts.process};
    *counts.drives += counter->read_bytes;
  }
  return counts;
}

// Throws unless the drives have delivered what was asked of them.
void prove_reads(const Counts& before, const Counts& after, std::uint64_t asked) {
  const auto check_counter = [&](const char* who, std::uint64_t read) {
    if (static_cast<double>(read) >= kCovered * static_cast<double>(asked)) return;
    throw Error(ErrorCode::io, "asked for " + std::to_string(asked) + " bytes, but " + who +
                                   " counts " + std::to_string(read) +
                                   " read from the drive: a cache delivered the rest");
  };
  // Some drivers keep no statistics: then theirs stand still.
  const bool drives_count = before.drives && after.drives && *after.drives != *before.drives;
  if (!drives_count && !(before.process && after.process)) {
    throw Error(ErrorCode::io,
                "the system does not say what was read from the drive: the rate would not be sure");
  }
  if (before.process && after.process) {
    check_counter("the system", *after.process - *before.process);
  }
  if (drives_count) check_counter("the block device", *after.drives - *before.drives);
}

std::string names_of(const std::set<std::uint64_t>& drives) {
  std::string names;
  for (const std::uint64_t drive : drives) {
    const std::optional<DriveCounter> counter = drive_counter(drive);
    if (counter) names += (names.empty() ? "" : ", ") + counter->name;
  }
  return names;
}

// Of the sources, what can be measured. Throws with the reason of the first that cannot, when there
// is none, or too little.
std::vector<const ByteSource*> sources_to_measure(std::span<const ByteSource* const> sources,
                                                  std::size_t block_bytes,
                                                  std::uint64_t min_blocks) {
  std::vector<const ByteSource*> replicas = measurable_replicas(sources);
  if (replicas.empty()) {
    throw Error(ErrorCode::io,
                sources.empty() ? "no file to measure" : why_not_measurable(*sources.front()));
  }
  const std::uint64_t blocks = FreshBlocks(replicas, block_bytes).left();
  if (blocks < min_blocks) {
    throw Error(ErrorCode::io, "the files have " + std::to_string(sum_of_sizes(replicas)) +
                                   " bytes on the drive, enough for " + std::to_string(blocks) +
                                   " records of " + std::to_string(block_bytes) +
                                   " bytes at fresh offsets, expected at least " +
                                   std::to_string(min_blocks));
  }
  return replicas;
}

}  // namespace

std::uint64_t least_records(const DriveBenchOptions& options) {
  check(options);
  return options.depths.size() * static_cast<std::uint64_t>(options.rounds) *
         static_cast<std::uint64_t>(std::ranges::max(options.depths));
}

PieceSetting smallest_of_the_best(std::span<const PieceSetting> measured) {
  std::vector<PieceSetting> settings(measured.begin(), measured.end());
  std::ranges::stable_sort(settings, {}, &PieceSetting::piece_bytes);
  std::ranges::stable_sort(settings, {}, in_flight_bytes);
  const double fastest = std::ranges::max(settings, {}, &PieceSetting::gb_per_s).gb_per_s;
  return *std::ranges::find_if(settings, [&](const PieceSetting& setting) {
    return setting.gb_per_s >= kGoodEnough * fastest;
  });
}

std::optional<PieceSetting> choose_depth(ReadQueue& queue,
                                         std::span<const ByteSource* const> sources,
                                         const StopFlag* stop, const ProbeLimits& limits) {
  std::vector<const ByteSource*> replicas = measurable_replicas(sources);
  if (replicas.empty() || sum_of_sizes(replicas) < limits.min_file_bytes) return std::nullopt;
  const std::size_t drives = drives_of(replicas).size();
  const Buffer memory = touched_memory((kDepths.back() * drives + kSpare) * kLargePiece);
  // Blocks of the large size hold a small piece as well: no part of a file is read twice.
  FreshBlocks blocks(std::move(replicas), kLargePiece);

  std::vector<PieceSetting> settings = probe_settings();
  std::uint64_t in_flight_sum = 0;
  for (const PieceSetting& setting : settings) in_flight_sum += in_flight_bytes(setting);
  const std::uint64_t all_blocks = limits.read_bytes / kLargePiece;
  const std::uint64_t spare_blocks =
      all_blocks - std::min(all_blocks, settings.size() * kLeastBlocks);
  std::vector<PieceSetting> measured;
  double seconds_left = limits.seconds;
  for (PieceSetting& setting : settings) {
    if (seconds_left <= 0) break;
    queue.set_pieces(setting.depth, setting.piece_bytes);
    // More for those that have more in flight, so that all see some rounds of their own depth.
    const std::uint64_t share = spare_blocks * in_flight_bytes(setting) / in_flight_sum;
    const ReadLimits reads{.seconds = seconds_left, .blocks = kLeastBlocks + share};
    const MeasuredReads sum = read_blocks(queue, blocks, kLargePiece, memory, reads, stop);
    seconds_left -= sum.seconds;
    if (sum.bytes == 0) break;
    setting.gb_per_s = sum.gb_per_s();
    measured.push_back(setting);
  }
  if (measured.empty()) return std::nullopt;
  const PieceSetting best = smallest_of_the_best(measured);
  queue.set_pieces(best.depth, best.piece_bytes);
  return best;
}

DriveRate measure_drive(std::span<const ByteSource* const> sources,
                        const DriveBenchOptions& options) {
  check(options);
  const std::size_t block_bytes = round_up(options.record_bytes, kPageBytes);
  const auto depths = static_cast<std::uint64_t>(options.depths.size());
  const auto rounds = static_cast<std::uint64_t>(options.rounds);
  const auto deepest = static_cast<std::size_t>(std::ranges::max(options.depths));
  std::vector<const ByteSource*> replicas =
      sources_to_measure(sources, block_bytes, least_records(options));
  const std::set<std::uint64_t> drives = drives_of(replicas);
  const Buffer memory = touched_memory((deepest * drives.size() + kSpare) * block_bytes);

  DriveRate rate{.record_bytes = options.record_bytes,
                 .file_system = file_system_of(replicas.front()->direct_fd()),
                 .drive = names_of(drives),
                 .depths = {},
                 .best = {}};
  FreshBlocks blocks(std::move(replicas), block_bytes);
  const ReadLimits limits{.seconds = options.seconds / static_cast<double>(rounds),
                          .blocks = blocks.left() / (depths * rounds)};
  ReadQueue queue({.piece_bytes = block_bytes});
  const Counts before = count_reads(drives);
  std::uint64_t asked = 0;
  // Depths in turn within a round: what disturbs the drive for a while disturbs all of them.
  std::vector<std::vector<double>> rates(options.depths.size());
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < options.depths.size(); ++i) {
      queue.set_pieces(options.depths[i], block_bytes);
      const MeasuredReads sum =
          read_blocks(queue, blocks, block_bytes, memory, limits, options.stop);
      asked += sum.bytes;
      rates[i].push_back(sum.gb_per_s());
    }
  }
  prove_reads(before, count_reads(drives), asked);
  for (std::size_t i = 0; i < options.depths.size(); ++i) {
    rate.depths.push_back({.depth = options.depths[i], .gb_per_s = median(rates[i])});
  }
  rate.best = std::ranges::max(rate.depths, {}, &DepthRate::gb_per_s);
  return rate;
}

}  // namespace penstock

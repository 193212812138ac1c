// SPDX-License-Identifier: Apache-2.0
//
// Random direct reads of files for measuring their drives: every block at most once, so that no
// cache below us has it either. One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"

namespace penstock {

// Why reads of the file say nothing of its drive: no direct reads, or holes, which read as zeros
// and cost no drive. Empty when they do.
std::string why_not_measurable(const ByteSource& source);

// The copies on all drives of those files that can be measured.
std::vector<const ByteSource*> measurable_replicas(std::span<const ByteSource* const> sources);

struct Block {
  const ByteSource* source;
  std::uint64_t offset;  // a multiple of kPageBytes
};

// Draws blocks of one size from files, all equally likely, none twice. The files outlive it.
class FreshBlocks {
 public:
  FreshBlocks(std::vector<const ByteSource*> sources, std::size_t block_bytes);

  std::optional<Block> draw();                  // none when all were drawn
  std::uint64_t left() const { return left_; }  // not yet drawn

 private:
  std::vector<const ByteSource*> sources_;
  std::vector<std::uint64_t> first_;  // index of each source's first block, then their sum
  std::uint64_t block_bytes_;
  std::uint64_t random_;  // seeded anew each time: a host may remember what was read last time
  // A shuffle of all indices of which only the places that differ from their index are kept: the
  // first `left_` places hold what was not drawn.
  std::uint64_t left_;
  std::unordered_map<std::uint64_t, std::uint64_t> moved_;
};

struct ReadLimits {
  double seconds;
  std::uint64_t blocks;
};

struct MeasuredReads {
  std::uint64_t bytes = 0;
  double seconds = 0;  // until the last byte was there
  double gb_per_s() const { return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0; }
};

// Reads blocks of `block_bytes` (a multiple of kPageBytes) into `memory`, which holds at least two
// of them, with as many waiting as it holds, until a limit is reached or no block is left. Throws
// Error(io) when a read fails, Error(cancelled) when `stop` (may be null) is set.
MeasuredReads read_blocks(ReadQueue& queue, FreshBlocks& blocks, std::size_t block_bytes,
                          const Buffer& memory, const ReadLimits& limits, const StopFlag* stop);

}  // namespace penstock

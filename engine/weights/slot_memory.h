// SPDX-License-Identifier: Apache-2.0
//
// Memory for numbered slots of one size, in chunks. The first chunk is there at once; others are
// touched in the background when they are going to be needed, one after the other, and dropped from
// the end. One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/buffer_warmer.h"

namespace penstock {

inline constexpr std::size_t kSlotChunkBytes = 256UL << 20U;

class SlotMemory {
 public:
  // slot_bytes >= 1; a chunk has `chunk_bytes`, or one slot. The warmer outlives the memory.
  SlotMemory(BufferWarmer& warmer, std::size_t slot_bytes, std::size_t chunk_bytes);

  std::byte* at(std::int32_t slot) const;        // of a slot that is there
  std::int32_t there() const { return there_; }  // slots [0, there) have memory

  // The slots that there should be, by whole chunks but for the last. Those that are there already
  // stay until drop_last_chunk(). Throws Error(memory) when the first chunk cannot be had.
  void want(std::int32_t slots);
  std::int32_t wanted() const { return wanted_; }

  // Takes in memory that has become ready, and asks for more when fewer slots than two chunks have
  // are `unused`: touching memory costs the cores that compute. A refusal of the system ends
  // growth.
  void settle(std::size_t unused);

  // The first slot of the chunk that would go next; 0 when only the first is left.
  std::int32_t last_chunk() const;
  void drop_last_chunk();  // nobody uses its slots

 private:
  struct Chunk {
    std::int32_t first;
    Buffer memory;
  };
  std::int32_t next_chunk_slots() const;

  BufferWarmer& warmer_;
  std::size_t slot_bytes_;
  std::int32_t chunk_slots_;
  std::int32_t wanted_ = 0;
  std::int32_t there_ = 0;
  std::vector<Chunk> chunks_;  // ascending
  std::future<Buffer> coming_;
  std::int32_t coming_slots_ = 0;
};

// Slots of `slot_bytes` in `bytes`, at least one.
std::int32_t slots_in(std::size_t bytes, std::size_t slot_bytes);

}  // namespace penstock

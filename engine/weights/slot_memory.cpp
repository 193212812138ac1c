// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/slot_memory.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr const char* kPurpose = "expert slots";

std::size_t checked_bytes(std::int32_t slots, std::size_t slot_bytes) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(slot_bytes, static_cast<std::size_t>(slots), &bytes)) {
    throw Error(ErrorCode::memory, std::to_string(slots) + " expert slots of " +
                                       std::to_string(slot_bytes) +
                                       " bytes are more than 64 bits can count");
  }
  return bytes;
}

}  // namespace

std::int32_t slots_in(std::size_t bytes, std::size_t slot_bytes) {
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(std::clamp<std::size_t>(bytes / slot_bytes, 1, kMost));
}

SlotMemory::SlotMemory(BufferWarmer& warmer, std::size_t slot_bytes, std::size_t chunk_bytes)
    : warmer_(warmer), slot_bytes_(slot_bytes), chunk_slots_(slots_in(chunk_bytes, slot_bytes)) {}

std::byte* SlotMemory::at(std::int32_t slot) const {
  assert(slot < there_);
  const auto next = std::upper_bound(
      chunks_.begin(), chunks_.end(), slot,
      [](std::int32_t number, const Chunk& chunk) { return number < chunk.first; });
  const Chunk& chunk = *std::prev(next);
  return chunk.memory.data() + static_cast<std::size_t>(slot - chunk.first) * slot_bytes_;
}

std::int32_t SlotMemory::next_chunk_slots() const {
  return std::min(chunk_slots_, wanted_ - there_);
}

void SlotMemory::want(std::int32_t slots) {
  wanted_ = slots;
  if (there_ > 0) return;
  const std::int32_t first = next_chunk_slots();
  chunks_.push_back({0, Buffer(checked_bytes(first, slot_bytes_), kPurpose)});
  there_ = first;
}

void SlotMemory::settle(std::size_t unused) {
  if (coming_.valid() && is_ready(coming_)) {
    try {
      Buffer memory = coming_.get();
      if (there_ + coming_slots_ <= wanted_) {
        chunks_.push_back({there_, std::move(memory)});
        there_ += coming_slots_;
        unused += static_cast<std::size_t>(coming_slots_);
      }
    } catch (const Error&) {
      wanted_ = there_;
    }
  }
  const auto enough = 2 * static_cast<std::size_t>(chunk_slots_);
  if (coming_.valid() || there_ >= wanted_ || unused >= enough) return;
  coming_slots_ = next_chunk_slots();
  coming_ = warmer_.prepare(checked_bytes(coming_slots_, slot_bytes_), kPurpose);
}

std::int32_t SlotMemory::last_chunk() const {
  return chunks_.size() < 2 ? 0 : chunks_.back().first;
}

void SlotMemory::drop_last_chunk() {
  assert(chunks_.size() > 1);
  there_ = chunks_.back().first;
  chunks_.pop_back();
}

}  // namespace penstock

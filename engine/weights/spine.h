// SPDX-License-Identifier: Apache-2.0
//
// The spine in memory: each segment is pinned, or streamed through one of two window buffers, the
// next streamed ones being read while the present one is used. A window has room for the largest
// segment, or for several small ones. Segments are used in order, again and again: sweep after
// sweep. Bits do not depend on what is pinned. One owner thread; matrices may be
// read by any thread while their lease lives.
//
// What is pinned is the plan's choice (pin_plan.h). Pins fill as segments pass, or by upkeep()
// between requests, into memory that was touched in the background.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/buffer_warmer.h"
#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"
#include "engine/weights/pin_plan.h"
#include "engine/weights/spine_segments.h"
#include "kernels/formats.h"

namespace penstock {

class SpineStore;

// Keeps a segment's matrices in memory. Move-only.
class SpineLease {
 public:
  SpineLease(SpineLease&& other) noexcept;
  SpineLease& operator=(SpineLease&& other) noexcept;
  SpineLease(const SpineLease&) = delete;
  SpineLease& operator=(const SpineLease&) = delete;
  ~SpineLease();
  // Matrix i of the unit, in order of use.
  const WeightMatrix& matrix(std::size_t i) const { return matrices_[i]; }

 private:
  friend class SpineStore;
  SpineLease(SpineStore* store, std::int32_t segment, std::vector<WeightMatrix> matrices);
  SpineStore* store_;
  std::int32_t segment_;
  std::vector<WeightMatrix> matrices_;
};

class SpineStore {
 public:
  // Reads nothing yet. Queue and warmer outlive the store. Two windows are taken even where the
  // budget is below spine_floor().
  // With `lock_pins` pinned memory is locked into RAM, as far as the system lets us.
  SpineStore(std::vector<SpineSegment> segments, ReadQueue& queue, BufferWarmer& warmer,
             std::uint64_t budget_bytes, bool lock_pins = false);
  ~SpineStore();  // no lease lives
  SpineStore(const SpineStore&) = delete;
  SpineStore& operator=(const SpineStore&) = delete;

  // Waits for the segment and starts to read those that follow. At most two leases live, of
  // segments that follow one another. Throws Error(io) naming segment and file, Error(memory);
  // Error(cancelled) as soon as `stop` (may be null) is set. After a throw it may be called again.
  SpineLease acquire(std::int32_t segment, const StopFlag* stop);

  // The segment if it is pinned and in memory, else nothing; reads nothing.
  std::optional<SpineLease> find(std::int32_t segment);

  // Between requests: reads what should be pinned and is not, without waiting. Returns whether
  // there is more to do soon.
  bool upkeep();

  // Takes effect at once but for leased segments and reads in flight, which go when they end.
  void set_budget(std::uint64_t budget_bytes);

  // All that is in memory and not leased is read anew when it is needed.
  void forget();

  std::uint64_t bytes_read() const;      // payload that has landed, so far
  std::uint64_t resident_bytes() const;  // payload that is pinned and landed
  std::uint64_t memory_bytes() const;    // taken: pins and windows

 private:
  friend class SpineLease;
  void release(std::int32_t segment) noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Routed experts in memory: a bounded number of slots, least recently used goes first. A batch
// walks through the experts that a layer needs; while one is computed the next ones are read, as
// far as slots allow. Works with any number of slots from one up; the output of a model does not
// depend on it. One owner thread; the matrices of a lease may be read by any thread while it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"
#include "engine/weights/expert_store.h"

namespace penstock {

struct ExpertCacheStats {
  std::uint64_t reads = 0;  // experts read from the drive, whole
  std::uint64_t hits = 0;   // experts that were in memory already when a batch asked
  std::uint64_t bytes = 0;  // payload of the reads
};

class ExpertCache;

// Keeps an expert in its slot. Move-only; the destructor gives the slot back.
class ExpertLease {
 public:
  ExpertLease(ExpertLease&& other) noexcept;
  ExpertLease& operator=(ExpertLease&& other) noexcept;
  ExpertLease(const ExpertLease&) = delete;
  ExpertLease& operator=(const ExpertLease&) = delete;
  ~ExpertLease();
  const ExpertView& view() const { return view_; }

 private:
  friend class ExpertCache;
  ExpertLease(ExpertCache* cache, std::int32_t slot, const ExpertView& view);
  ExpertCache* cache_;
  std::int32_t slot_;
  ExpertView view_;
};

class ExpertCache {
 public:
  // Takes slots * store.slot_bytes() of memory. slots >= 1. Store and queue outlive the cache.
  ExpertCache(const ExpertStore& store, ReadQueue& queue, std::int32_t slots);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  // Starts a batch: the distinct experts of one layer in the order in which next() will give them.
  // Reads begin at once. A batch that was not finished is dropped: its reads are cancelled.
  void begin_batch(std::int32_t layer, std::span<const std::int32_t> experts);

  // The next expert of the batch, read if need be. Fewer leases than slots may live when it is
  // called: with one slot the lease before must be gone. Throws Error(io) or Error(model) naming
  // file, layer and expert; Error(cancelled) as soon as `stop` is set. After a throw begin a new
  // batch.
  ExpertLease next(const StopFlag* stop);

  const ExpertCacheStats& stats() const;
  std::int32_t slots() const;

 private:
  friend class ExpertLease;
  void release(std::int32_t slot) noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock

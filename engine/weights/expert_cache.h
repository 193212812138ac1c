// SPDX-License-Identifier: Apache-2.0
//
// Routed experts in memory: a bounded number of slots, least recently used goes first. A batch
// walks through the experts that a layer needs; while one is computed the next ones are read, as
// far as slots allow. Works with any number of slots from one up; the output of a model does not
// depend on it. One owner thread; the matrices of a lease may be read by any thread while it lives.
//
// Slots come in chunks of memory. The first is there at once, each other is touched in the
// background when few slots are empty, and joins as it is ready; when slots are taken away the last
// chunks go first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/buffer_warmer.h"
#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/slot_memory.h"

namespace penstock {

struct ExpertCacheStats {
  std::uint64_t reads = 0;       // experts read from the drive, whole
  std::uint64_t hits = 0;        // experts that were in memory already when a batch asked
  std::uint64_t bytes = 0;       // payload of the reads
  std::uint64_t ahead = 0;       // reads that look_ahead() began ...
  std::uint64_t ahead_used = 0;  // ... and a batch wanted
};

// How a batch uses the slots.
enum class CacheUse : std::uint8_t {
  keep,    // what is read stays as long as what is used
  bypass,  // what is read passes through a few slots: a long prompt leaves the cache as it was
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
  std::size_t index() const { return index_; }  // place in the batch

 private:
  friend class ExpertCache;
  ExpertLease(ExpertCache* cache, std::int32_t slot, std::size_t index, const ExpertView& view);
  ExpertCache* cache_;
  std::int32_t slot_;
  std::size_t index_;
  ExpertView view_;
};

class ExpertCache {
 public:
  // Takes slots * store.slot_bytes() of memory, in the end. slots >= 1. Store, queue and warmer
  // outlive the cache.
  ExpertCache(const ExpertStore& store, ReadQueue& queue, BufferWarmer& warmer, std::int32_t slots,
              std::size_t chunk_bytes = kSlotChunkBytes);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  // Starts a batch: the distinct experts of one layer in the order in which next() will give them,
  // but for those that next_ready() has given.
  // Reads begin at once. A batch that was not finished is dropped: its reads are cancelled.
  void begin_batch(std::int32_t layer, std::span<const std::int32_t> experts, CacheUse use);

  // The next expert of the batch, read if need be. Fewer leases than slots may live when it is
  // called: with one slot the lease before must be gone. Throws Error(io) or Error(model) naming
  // file, layer and expert; Error(cancelled) as soon as `stop` is set. After a throw begin a new
  // batch.
  ExpertLease next(const StopFlag* stop);

  // All experts of the batch that are in memory and not yet given, at least one: where none is, the
  // next one is waited for. At the end of the batch there are none to ask for. Otherwise like
  // next(), which may be mixed with it.
  std::vector<ExpertLease> next_ready(const StopFlag* stop);

  // Starts to read experts that a coming batch may want, at the lowest priority, into slots that
  // the running batch leaves; as many as there is room for. The next batch cancels those that it
  // does not want.
  void look_ahead(std::int32_t layer, std::span<const std::int32_t> experts);

  // Between batches: more slots, or fewer (whole chunks, the first one stays).
  void set_slots(std::int32_t slots);

  // Drops the batch. All that is in memory and not leased is read anew when it is needed.
  void forget();

  const ExpertCacheStats& stats() const;
  std::int32_t slots() const;  // those whose memory is there

 private:
  friend class ExpertLease;
  ExpertLease lease(std::size_t index);
  void release(std::int32_t slot) noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_cache.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::chrono::milliseconds kDrainPoll{1};

using SlotList = std::list<std::int32_t>;

struct Slot {
  enum class Status : std::uint8_t { empty, reading, ready, draining };
  Status status = Status::empty;
  std::int32_t leases = 0;
  std::int32_t wanted = kNone;  // place in the running batch of an expert still to be given
  std::int32_t layer = 0;
  std::int32_t expert = 0;
  ReadId read = 0;             // while reading or draining
  SlotList::iterator place{};  // in the list of its status
};

// "layer 3 expert 17: model-00004-of-000096.safetensors: ..."
Error about_expert(const Slot& slot, const Error& error) {
  return {error.code(), "layer " + std::to_string(slot.layer) + " expert " +
                            std::to_string(slot.expert) + ": " + error.what()};
}

std::size_t memory_bytes(const ExpertStore& store, std::int32_t slots) {
  assert(slots >= 1);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(store.slot_bytes(), static_cast<std::size_t>(slots), &bytes)) {
    throw Error(ErrorCode::memory, std::to_string(slots) + " expert slots of " +
                                       std::to_string(store.slot_bytes()) +
                                       " bytes are more than 64 bits can count");
  }
  return bytes;
}

[[maybe_unused]] bool is_distinct(std::span<const std::int32_t> experts) {
  return std::unordered_set<std::int32_t>(experts.begin(), experts.end()).size() == experts.size();
}

}  // namespace

struct ExpertCache::State {
  State(const ExpertStore& the_store, ReadQueue& the_queue, std::int32_t count);

  Slot& slot(std::int32_t i) { return slots[static_cast<std::size_t>(i)]; }
  std::byte* memory_of(std::int32_t i) const {
    return memory.data() + static_cast<std::size_t>(i) * store.slot_bytes();
  }
  // The slot that holds or reads an expert, or kNone.
  std::int32_t& slot_of(std::int32_t of_layer, std::int32_t expert) {
    return slot_by_expert[static_cast<std::size_t>(of_layer) *
                              static_cast<std::size_t>(store.shape().experts) +
                          static_cast<std::size_t>(expert)];
  }

  SlotList& list_of(Slot::Status status) { return lists[static_cast<std::size_t>(status)]; }
  void set_status(Slot& slot, Slot::Status status);
  void forget(Slot& slot, Slot::Status status);
  void reap();
  std::int32_t take_slot(bool demanded);
  void start_read(std::int32_t i, std::int32_t index);
  void fill(bool demanded);
  void wait_for_slot(const StopFlag* stop);
  void land(std::int32_t i, const StopFlag* stop);
  void count_and_check(std::int32_t i);
  void drop_read(std::int32_t i);
  void drop_batch();
  [[noreturn]] void cancel_batch();
  void drain();

  const ExpertStore& store;
  ReadQueue& queue;
  Buffer memory;
  std::vector<Slot> slots;
  std::vector<std::int32_t> slot_by_expert;  // [layers][experts]
  // By status; the ready ones in order of use, oldest first. A slot changes its list by splicing,
  // which neither allocates nor throws.
  SlotList lists[4];

  std::int32_t layer = 0;
  std::vector<std::int32_t> batch;
  std::size_t position = 0;  // in the batch, of the next expert to give
  std::size_t frontier = 0;  // in the batch: those before are given, in memory or being read
  ExpertCacheStats stats;
};

ExpertCache::State::State(const ExpertStore& the_store, ReadQueue& the_queue, std::int32_t count)
    : store(the_store),
      queue(the_queue),
      memory(memory_bytes(the_store, count), "expert slots"),
      slots(static_cast<std::size_t>(count)),
      slot_by_expert(static_cast<std::size_t>(the_store.shape().layers) *
                         static_cast<std::size_t>(the_store.shape().experts),
                     kNone) {
  SlotList& empty = list_of(Slot::Status::empty);
  for (std::int32_t i = 0; i < count; ++i) slot(i).place = empty.insert(empty.end(), i);
}

void ExpertCache::State::set_status(Slot& slot, Slot::Status status) {
  SlotList& to = list_of(status);
  to.splice(to.end(), list_of(slot.status), slot.place);
  slot.status = status;
}

// The slot's expert is no longer to be found.
void ExpertCache::State::forget(Slot& slot, Slot::Status status) {
  slot_of(slot.layer, slot.expert) = kNone;
  slot.wanted = kNone;
  set_status(slot, status);
}

// Takes back the slots whose cancelled reads have ended.
void ExpertCache::State::reap() {
  SlotList& draining = list_of(Slot::Status::draining);
  for (auto it = draining.begin(); it != draining.end();) {
    Slot& drained = slot(*it++);
    if (!queue.finished(drained.read)) continue;
    queue.wait(drained.read, nullptr);
    set_status(drained, Slot::Status::empty);
  }
}

// An empty slot, if need be by forgetting an expert: the least recently used one that is neither
// leased nor wanted; when the next expert is `demanded`, else the wanted one that is needed last.
// kNone when there is none to be had.
std::int32_t ExpertCache::State::take_slot(bool demanded) {
  const SlotList& empty = list_of(Slot::Status::empty);
  if (!empty.empty()) return empty.front();
  std::int32_t victim = kNone;
  for (const std::int32_t i : list_of(Slot::Status::ready)) {
    const Slot& candidate = slot(i);
    if (candidate.leases > 0) continue;
    if (candidate.wanted == kNone) {
      victim = i;
      break;
    }
    const bool later = victim == kNone || candidate.wanted > slot(victim).wanted;
    if (demanded && later) victim = i;
  }
  if (victim != kNone) forget(slot(victim), Slot::Status::empty);
  return victim;
}

void ExpertCache::State::start_read(std::int32_t i, std::int32_t index) {
  const std::int32_t expert = batch[static_cast<std::size_t>(index)];
  std::vector<ReadOp> ops;
  std::byte* to = memory_of(i);
  for (const Extent& extent : store.extents(layer, expert)) {
    const auto bytes = static_cast<std::size_t>(extent.bytes);
    ops.push_back({.source = &store.index().source(extent.source),
                   .offset = extent.offset,
                   .bytes = bytes,
                   .memory = to});
    to += widened_bytes(extent.offset, bytes);
  }
  Slot& target = slot(i);
  target.read = queue.submit(ops, ReadPriority::demand);
  target.layer = layer;
  target.expert = expert;
  target.wanted = index;
  slot_of(layer, expert) = i;
  set_status(target, Slot::Status::reading);
}

// Starts the reads that come next, as far as slots allow. Only for the very next expert, and only
// when it is `demanded` now, another wanted one has to go.
void ExpertCache::State::fill(bool demanded) {
  reap();
  for (; frontier < batch.size(); ++frontier) {
    if (slot_of(layer, batch[frontier]) != kNone) continue;
    const std::int32_t i = take_slot(demanded && frontier == position);
    if (i == kNone) return;
    start_read(i, static_cast<std::int32_t>(frontier));
  }
}

// Polls, as any of several reads may be the first to end and others may hang.
void ExpertCache::State::wait_for_slot(const StopFlag* stop) {
  if (list_of(Slot::Status::draining).empty()) {
    throw Error(ErrorCode::memory,
                "all " + std::to_string(slots.size()) + " expert slots are leased");
  }
  if (stop != nullptr && stop->stop_requested()) cancel_batch();
  std::this_thread::sleep_for(kDrainPoll);
}

void ExpertCache::State::land(std::int32_t i, const StopFlag* stop) {
  Slot& landing = slot(i);
  try {
    queue.wait(landing.read, stop);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) cancel_batch();
    forget(landing, Slot::Status::empty);
    drop_batch();
    throw about_expert(landing, error);
  }
  try {
    count_and_check(i);
  } catch (const Error& error) {
    drop_batch();
    throw about_expert(landing, error);
  }
}

// The read of the slot has ended well. Throws when the expert cannot be used, and forgets it then.
void ExpertCache::State::count_and_check(std::int32_t i) {
  Slot& landed = slot(i);
  ++stats.reads;
  stats.bytes += store.expert_bytes();
  try {
    store.check_scales(landed.layer, landed.expert, memory_of(i));
  } catch (...) {
    forget(landed, Slot::Status::empty);
    throw;
  }
  set_status(landed, Slot::Status::ready);
}

// Ends a read of the batch that nobody waits for any more. What it has brought is kept.
void ExpertCache::State::drop_read(std::int32_t i) {
  Slot& dropped = slot(i);
  if (!queue.finished(dropped.read)) {
    queue.cancel(dropped.read);
    forget(dropped, Slot::Status::draining);
    return;
  }
  bool whole = false;
  try {
    queue.wait(dropped.read, nullptr);
    whole = true;
    count_and_check(i);
  } catch (const Error&) {
    // Whoever wants this expert will read it again and be told.
    if (!whole) forget(dropped, Slot::Status::empty);
  }
}

void ExpertCache::State::drop_batch() {
  for (std::size_t i = position; i < batch.size(); ++i) {
    const std::int32_t holder = slot_of(layer, batch[i]);
    if (holder == kNone) continue;
    if (slot(holder).status == Slot::Status::reading) drop_read(holder);
    slot(holder).wanted = kNone;
  }
  batch.clear();
  position = 0;
  frontier = 0;
}

void ExpertCache::State::cancel_batch() {
  drop_batch();
  throw Error(ErrorCode::cancelled, "stopped while reading experts");
}

// Nothing may write to the slots after this.
void ExpertCache::State::drain() {
  drop_batch();
  for (const std::int32_t i : list_of(Slot::Status::draining)) queue.wait(slot(i).read, nullptr);
}

ExpertCache::ExpertCache(const ExpertStore& store, ReadQueue& queue, std::int32_t slots)
    : state_(std::make_unique<State>(store, queue, slots)) {}

ExpertCache::~ExpertCache() {
  state_->drain();
}

void ExpertCache::begin_batch(std::int32_t layer, std::span<const std::int32_t> experts) {
  assert(is_distinct(experts));
  State& state = *state_;
  state.drop_batch();
  state.layer = layer;
  state.batch.assign(experts.begin(), experts.end());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::int32_t holder = state.slot_of(layer, experts[i]);
    if (holder != kNone) state.slot(holder).wanted = static_cast<std::int32_t>(i);
  }
  state.fill(true);
}

ExpertLease ExpertCache::next(const StopFlag* stop) {
  State& state = *state_;
  assert(state.position < state.batch.size());
  if (stop != nullptr && stop->stop_requested()) state.cancel_batch();
  const std::int32_t expert = state.batch[state.position];
  state.fill(true);
  while (state.slot_of(state.layer, expert) == kNone) {
    state.wait_for_slot(stop);
    state.fill(true);
  }
  const std::int32_t i = state.slot_of(state.layer, expert);
  Slot& given = state.slot(i);
  if (given.status == Slot::Status::reading) {
    state.land(i, stop);
  } else {
    ++state.stats.hits;
  }
  given.wanted = kNone;
  ++given.leases;
  state.set_status(given, Slot::Status::ready);  // now the most recently used
  ++state.position;
  return {this, i, state.store.view(state.layer, expert, state.memory_of(i))};
}

const ExpertCacheStats& ExpertCache::stats() const {
  return state_->stats;
}

std::int32_t ExpertCache::slots() const {
  return static_cast<std::int32_t>(state_->slots.size());
}

void ExpertCache::release(std::int32_t slot) noexcept {
  assert(state_->slot(slot).leases > 0);
  --state_->slot(slot).leases;
  try {
    state_->fill(false);  // the reads go on while the caller computes
  } catch (...) {
    // next() meets the same trouble and reports it.
  }
}

ExpertLease::ExpertLease(ExpertCache* cache, std::int32_t slot, const ExpertView& view)
    : cache_(cache), slot_(slot), view_(view) {}

ExpertLease::ExpertLease(ExpertLease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), slot_(other.slot_), view_(other.view_) {}

ExpertLease& ExpertLease::operator=(ExpertLease&& other) noexcept {
  if (this == &other) return *this;
  if (cache_ != nullptr) cache_->release(slot_);
  cache_ = std::exchange(other.cache_, nullptr);
  slot_ = other.slot_;
  view_ = other.view_;
  return *this;
}

ExpertLease::~ExpertLease() {
  if (cache_ != nullptr) cache_->release(slot_);
}

}  // namespace penstock

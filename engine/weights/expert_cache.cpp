// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_cache.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/weights/slot_memory.h"

namespace penstock {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::chrono::milliseconds kDrainPoll{1};
// On their way in a batch that bypasses: enough to keep any drive busy.
constexpr std::size_t kBypassBytes = 128UL << 20U;
constexpr std::int32_t kLeastArena = 4;

using SlotList = std::list<std::int32_t>;

struct Slot {
  enum class Status : std::uint8_t { empty, reading, ready, draining };
  Status status = Status::empty;
  bool demanded = false;  // read for a batch, not ahead of it
  bool passing = false;   // read for a batch that bypasses
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

[[maybe_unused]] bool is_distinct(std::span<const std::int32_t> experts) {
  return std::unordered_set<std::int32_t>(experts.begin(), experts.end()).size() == experts.size();
}

}  // namespace

struct ExpertCache::State {
  State(const ExpertStore& the_store, ReadQueue& the_queue, BufferWarmer& warmer,
        std::size_t chunk_bytes);

  Slot& slot(std::int32_t i) { return slots[static_cast<std::size_t>(i)]; }
  // The slot that holds or reads an expert, or kNone.
  std::int32_t& slot_of(std::int32_t of_layer, std::int32_t expert) {
    return slot_by_expert[static_cast<std::size_t>(of_layer) *
                              static_cast<std::size_t>(store.shape().experts) +
                          static_cast<std::size_t>(expert)];
  }

  SlotList& list_of(Slot::Status status) { return lists[static_cast<std::size_t>(status)]; }
  void set_status(Slot& slot, Slot::Status status);
  void forget(Slot& slot, Slot::Status status);
  void vacate(Slot& slot);
  void reap();
  void settle_memory();
  std::int32_t take_slot(bool demanded);
  void start_read(std::int32_t i, std::int32_t of_layer, std::int32_t expert,
                  ReadPriority priority);
  std::int32_t arena() const;
  bool may_start(bool demanded) const;
  void fill(bool demanded);
  void want(std::int32_t i, std::int32_t index);
  void drop_ahead();
  void wait_for_slot(const StopFlag* stop);
  void take_in(std::int32_t i, const StopFlag* stop);
  void land(std::int32_t i, const StopFlag* stop);
  bool bring_in(std::int32_t i, const StopFlag* stop);
  std::int32_t give(std::size_t index);
  void drop_read(std::int32_t i);
  void drop_batch();
  [[noreturn]] void cancel_batch();
  void drain();

  const ExpertStore& store;
  ReadQueue& queue;
  SlotMemory memory;
  std::vector<Slot> slots;                   // [memory.there()]
  std::vector<std::int32_t> slot_by_expert;  // [layers][experts]
  // By status; the ready ones in order of use, oldest first. A slot changes its list by splicing,
  // which neither allocates nor throws.
  SlotList lists[4];

  std::int32_t layer = 0;
  std::vector<std::int32_t> batch;
  std::vector<bool> given;   // [batch.size()]
  std::size_t position = 0;  // in the batch, of the first expert that is not given
  std::size_t frontier = 0;  // in the batch: those before are given, in memory or being read
  CacheUse use = CacheUse::keep;
  std::int32_t under_way = 0;  // wanted slots: reading, or ready and not given
  std::int32_t passing = 0;    // slots that are
  ExpertCacheStats stats;
};

ExpertCache::State::State(const ExpertStore& the_store, ReadQueue& the_queue, BufferWarmer& warmer,
                          std::size_t chunk_bytes)
    : store(the_store),
      queue(the_queue),
      memory(warmer, the_store.slot_bytes(), chunk_bytes),
      slot_by_expert(static_cast<std::size_t>(the_store.shape().layers) *
                         static_cast<std::size_t>(the_store.shape().experts),
                     kNone) {}

// Takes in slots whose memory has come, asks for more when few are empty, and gives back the last
// chunks when there are more slots than wanted and none of theirs is in use.
void ExpertCache::State::settle_memory() {
  while (memory.there() > memory.wanted() && memory.last_chunk() > 0) {
    const auto leaving = std::span(slots).subspan(static_cast<std::size_t>(memory.last_chunk()));
    bool in_use = false;
    for (Slot& slot : leaving) {
      vacate(slot);
      in_use = in_use || slot.status != Slot::Status::empty;
    }
    if (in_use) break;
    for (const Slot& slot : leaving) list_of(Slot::Status::empty).erase(slot.place);
    slots.resize(slots.size() - leaving.size());
    memory.drop_last_chunk();
  }
  SlotList& empty = list_of(Slot::Status::empty);
  memory.settle(empty.size());
  while (slots.size() < static_cast<std::size_t>(memory.there())) {
    const auto i = static_cast<std::int32_t>(slots.size());
    slots.emplace_back().place = empty.insert(empty.end(), i);
  }
}

void ExpertCache::State::set_status(Slot& slot, Slot::Status status) {
  SlotList& to = list_of(status);
  to.splice(to.end(), list_of(slot.status), slot.place);
  slot.status = status;
}

// The slot's expert is no longer to be found.
void ExpertCache::State::forget(Slot& slot, Slot::Status status) {
  slot_of(slot.layer, slot.expert) = kNone;
  if (slot.wanted != kNone) --under_way;
  slot.wanted = kNone;
  if (slot.passing) --passing;
  slot.passing = false;
  set_status(slot, status);
}

// Ends what the slot holds or reads, unless that is in use.
void ExpertCache::State::vacate(Slot& slot) {
  if (slot.wanted != kNone || slot.leases > 0) return;
  if (slot.status == Slot::Status::reading) {
    queue.cancel(slot.read);
    forget(slot, Slot::Status::draining);
  } else if (slot.status == Slot::Status::ready) {
    forget(slot, Slot::Status::empty);
  }
}

// The slot's expert is to be given as number `index` of the batch.
void ExpertCache::State::want(std::int32_t i, std::int32_t index) {
  slot(i).wanted = index;
  ++under_way;
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
// A batch that bypasses takes no more than its arena from the others. kNone when there is none to
// be had.
std::int32_t ExpertCache::State::take_slot(bool demanded) {
  const SlotList& empty = list_of(Slot::Status::empty);
  if (!empty.empty()) return empty.front();
  const bool only_passing = use == CacheUse::bypass && passing >= arena();
  std::int32_t victim = kNone;
  for (const std::int32_t i : list_of(Slot::Status::ready)) {
    const Slot& candidate = slot(i);
    if (candidate.leases > 0 || (only_passing && !candidate.passing)) continue;
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

void ExpertCache::State::start_read(std::int32_t i, std::int32_t of_layer, std::int32_t expert,
                                    ReadPriority priority) {
  std::vector<ReadOp> ops;
  std::byte* to = memory.at(i);
  for (const Extent& extent : store.extents(of_layer, expert)) {
    const auto bytes = static_cast<std::size_t>(extent.bytes);
    ops.push_back({.source = &store.index().source(extent.source),
                   .offset = extent.offset,
                   .bytes = bytes,
                   .memory = to});
    to += widened_bytes(extent.offset, bytes);
  }
  Slot& target = slot(i);
  target.read = queue.submit(ops, priority);
  target.layer = of_layer;
  target.expert = expert;
  target.demanded = priority == ReadPriority::demand;
  target.passing = target.demanded && use == CacheUse::bypass;
  if (target.passing) ++passing;
  slot_of(of_layer, expert) = i;
  set_status(target, Slot::Status::reading);
}

// Slots on their way in a batch that bypasses.
std::int32_t ExpertCache::State::arena() const {
  const std::int32_t most = std::max(slots_in(kBypassBytes, store.slot_bytes()), kLeastArena);
  return std::clamp(memory.there() / 4, kLeastArena, most);
}

// Whether the next read may start now: the very next expert always, others of a batch that
// bypasses only as long as few are on their way.
bool ExpertCache::State::may_start(bool demanded) const {
  return use == CacheUse::keep || under_way < arena() || (demanded && frontier == position);
}

// Starts the reads that come next, as far as slots allow. Only for the very next expert, and only
// when it is `demanded` now, another wanted one has to go.
void ExpertCache::State::fill(bool demanded) {
  reap();
  for (; frontier < batch.size(); ++frontier) {
    if (given[frontier] || slot_of(layer, batch[frontier]) != kNone) continue;
    if (!may_start(demanded)) return;
    const std::int32_t i = take_slot(demanded && frontier == position);
    if (i == kNone) return;
    start_read(i, layer, batch[frontier], ReadPriority::demand);
    want(i, static_cast<std::int32_t>(frontier));
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

// Waits for the read of a slot, counts it and checks what it has brought. Throws what is wrong.
void ExpertCache::State::take_in(std::int32_t i, const StopFlag* stop) {
  Slot& landed = slot(i);
  queue.wait(landed.read, stop);
  ++stats.reads;
  stats.bytes += store.expert_bytes();
  store.check_scales(landed.layer, landed.expert, memory.at(i));
  set_status(landed, Slot::Status::ready);
}

// Takes in what the batch wants. A read that was not demanded may have failed: the slot is empty
// then.
void ExpertCache::State::land(std::int32_t i, const StopFlag* stop) {
  Slot& landing = slot(i);
  try {
    take_in(i, stop);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) cancel_batch();
    const bool demanded = landing.demanded;
    forget(landing, Slot::Status::empty);
    if (!demanded) return;  // what went wrong ahead of time may go well now
    drop_batch();
    throw about_expert(landing, error);
  }
}

// Takes in the wanted expert of a slot, which is there or on its way. False when that was a read
// ahead and has failed: the expert is to be read anew.
bool ExpertCache::State::bring_in(std::int32_t i, const StopFlag* stop) {
  if (slot(i).status == Slot::Status::ready) {
    ++stats.hits;
    return true;
  }
  land(i, stop);
  if (slot(i).status == Slot::Status::ready) return true;
  frontier = position;
  return false;
}

// The slot of number `index` of the batch, which is in memory and now leased.
std::int32_t ExpertCache::State::give(std::size_t index) {
  const std::int32_t i = slot_of(layer, batch[index]);
  Slot& leased = slot(i);
  leased.wanted = kNone;
  if (leased.passing && use == CacheUse::keep) {
    leased.passing = false;
    --passing;
  }
  --under_way;
  ++leased.leases;
  // Now the most recently used, unless the batch passes through.
  if (use == CacheUse::keep) set_status(leased, Slot::Status::ready);
  given[index] = true;
  while (position < batch.size() && given[position]) ++position;
  return i;
}

// Ends a read of the batch that nobody waits for any more. What it has brought is kept.
void ExpertCache::State::drop_read(std::int32_t i) {
  Slot& dropped = slot(i);
  if (!queue.finished(dropped.read)) {
    queue.cancel(dropped.read);
    forget(dropped, Slot::Status::draining);
    return;
  }
  try {
    take_in(i, nullptr);
  } catch (const Error&) {
    forget(dropped, Slot::Status::empty);  // whoever wants it will read it again and be told
  }
}

void ExpertCache::State::drop_batch() {
  for (std::size_t i = position; i < batch.size(); ++i) {
    if (given[i]) continue;
    const std::int32_t holder = slot_of(layer, batch[i]);
    if (holder == kNone) continue;
    if (slot(holder).status == Slot::Status::reading) drop_read(holder);
    slot(holder).wanted = kNone;
  }
  under_way = 0;
  batch.clear();
  given.clear();
  position = 0;
  frontier = 0;
}

void ExpertCache::State::cancel_batch() {
  drop_batch();
  throw Error(ErrorCode::cancelled, "stopped while reading experts");
}

// Ends the reads ahead that the batch does not want; what they have brought is kept.
void ExpertCache::State::drop_ahead() {
  SlotList& reading = list_of(Slot::Status::reading);
  for (auto it = reading.begin(); it != reading.end();) {
    const std::int32_t i = *it++;
    if (slot(i).wanted == kNone) drop_read(i);
  }
}

// Nothing may write to the slots after this.
void ExpertCache::State::drain() {
  drop_batch();
  drop_ahead();
  for (const std::int32_t i : list_of(Slot::Status::draining)) queue.wait(slot(i).read, nullptr);
}

ExpertCache::ExpertCache(const ExpertStore& store, ReadQueue& queue, BufferWarmer& warmer,
                         std::int32_t slots, std::size_t chunk_bytes)
    : state_(std::make_unique<State>(store, queue, warmer, chunk_bytes)) {
  set_slots(slots);
}

ExpertCache::~ExpertCache() {
  state_->drain();
}

void ExpertCache::begin_batch(std::int32_t layer, std::span<const std::int32_t> experts,
                              CacheUse use) {
  assert(is_distinct(experts));
  State& state = *state_;
  state.drop_batch();
  state.settle_memory();
  state.layer = layer;
  state.use = use;
  state.batch.assign(experts.begin(), experts.end());
  state.given.assign(experts.size(), false);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::int32_t holder = state.slot_of(layer, experts[i]);
    if (holder == kNone) continue;
    state.want(holder, static_cast<std::int32_t>(i));
    if (state.slot(holder).status != Slot::Status::reading) continue;
    ++state.stats.ahead_used;
    state.queue.promote(state.slot(holder).read, ReadPriority::demand);
  }
  state.drop_ahead();
  state.fill(true);
}

void ExpertCache::look_ahead(std::int32_t layer, std::span<const std::int32_t> experts) {
  State& state = *state_;
  for (const std::int32_t expert : experts) {
    if (state.slot_of(layer, expert) != kNone) continue;
    if (state.frontier < state.batch.size()) return;  // slots are short already
    const std::int32_t i = state.take_slot(false);
    if (i == kNone) return;
    state.start_read(i, layer, expert, ReadPriority::look_ahead);
    ++state.stats.ahead;
  }
}

void ExpertCache::set_slots(std::int32_t slots) {
  assert(slots >= 1);
  state_->memory.want(slots);
  state_->settle_memory();
}

void ExpertCache::forget() {
  state_->drop_batch();
  for (Slot& slot : state_->slots) state_->vacate(slot);
}

ExpertLease ExpertCache::next(const StopFlag* stop) {
  State& state = *state_;
  assert(state.position < state.batch.size());
  const std::size_t index = state.position;
  std::int32_t holder = kNone;
  do {
    if (stop != nullptr && stop->stop_requested()) state.cancel_batch();
    state.fill(true);
    while ((holder = state.slot_of(state.layer, state.batch[index])) == kNone) {
      state.wait_for_slot(stop);
      state.fill(true);
    }
  } while (!state.bring_in(holder, stop));
  return lease(index);
}

std::vector<ExpertLease> ExpertCache::next_ready(const StopFlag* stop) {
  State& state = *state_;
  std::vector<ExpertLease> leases;
  const auto take = [&] {
    if (stop != nullptr && stop->stop_requested()) state.cancel_batch();
    for (std::size_t index = state.position; index < state.batch.size(); ++index) {
      if (state.given[index]) continue;
      const std::int32_t holder = state.slot_of(state.layer, state.batch[index]);
      if (holder == kNone) continue;
      const Slot& slot = state.slot(holder);
      if (slot.status == Slot::Status::reading && !state.queue.finished(slot.read)) continue;
      if (state.bring_in(holder, stop)) leases.push_back(lease(index));
    }
  };
  take();
  if (!leases.empty()) return leases;
  leases.push_back(next(stop));
  take();
  return leases;
}

ExpertLease ExpertCache::lease(std::size_t index) {
  const std::int32_t slot = state_->give(index);
  return {this, slot, index,
          state_->store.view(state_->layer, state_->batch[index], state_->memory.at(slot))};
}

const ExpertCacheStats& ExpertCache::stats() const {
  return state_->stats;
}

std::int32_t ExpertCache::slots() const {
  return state_->memory.there();
}

void ExpertCache::release(std::int32_t slot) noexcept {
  Slot& released = state_->slot(slot);
  assert(released.leases > 0);
  --released.leases;
  if (released.passing) {  // the next to go
    SlotList& ready = state_->list_of(Slot::Status::ready);
    ready.splice(ready.begin(), ready, released.place);
  }
  try {
    state_->fill(false);  // the reads go on while the caller computes
  } catch (...) {
    // next() meets the same trouble and reports it.
  }
}

}  // namespace penstock

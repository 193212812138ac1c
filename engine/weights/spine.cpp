// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <future>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::int32_t kReadAhead = 4;   // segments on their way to memory or in a window
constexpr std::int32_t kTouchAhead = 3;  // pins whose memory is made ready
constexpr std::chrono::milliseconds kDrainPoll{1};

// Memory that holds one segment at a time: the pin of one, or a part of a window.
struct Place {
  enum class Status : std::uint8_t {
    empty,
    reading,
    ready,
    draining,  // of a read that nobody wants any more and that still writes
  };
  Status status = Status::empty;
  std::int32_t segment = kNone;  // while reading or ready
  std::int32_t leases = 0;
  ReadId read = 0;        // while reading or draining
  bool demanded = false;  // by an acquire that waits for it
  std::byte* memory = nullptr;
};

struct Pin : Place {
  Buffer buffer;
};

// Segments follow one another in a window; it is used anew when all of them have served.
struct Window {
  Buffer buffer;
  std::uint64_t used_bytes = 0;
  std::list<Place> places;
};

}  // namespace

struct SpineStore::State {
  State(std::vector<SpineSegment> all, ReadQueue& the_queue, BufferWarmer& the_warmer)
      : segments(std::move(all)),
        memory_bytes(segment_memory(segments)),
        queue(the_queue),
        warmer(the_warmer),
        pins(segments.size()),
        warming(segments.size()) {}

  std::int32_t count() const { return static_cast<std::int32_t>(segments.size()); }
  const SpineSegment& at(std::int32_t segment) const {
    return segments[static_cast<std::size_t>(segment)];
  }
  Pin& pin(std::int32_t segment) { return pins[static_cast<std::size_t>(segment)]; }
  bool wants_pin(std::int32_t segment) const {
    return plan.pinned[static_cast<std::size_t>(segment)];
  }
  // Steps until a segment is used; that of the present one is a whole round.
  std::int32_t distance(std::int32_t segment) const {
    const std::int32_t steps = (segment - position + count()) % count();
    return steps == 0 ? count() : steps;
  }

  Place* place_of(std::int32_t segment);
  void settle();
  void settle(Place& place, bool keep);
  void settle(Window& window);
  void drop(Place& place);
  bool get_pin_memory(std::int32_t segment, bool wait);
  bool serves_before(const Place& place, std::int32_t segment) const;
  Window* choose_window(std::int32_t segment);
  Place* take_window(std::int32_t segment);
  Place* take_place(std::int32_t segment, bool wait);
  void start_read(Place& place, std::int32_t segment, ReadPriority priority);
  void read_ahead();
  Place& demand(std::int32_t segment, const StopFlag* stop);
  void land(Place& place, const StopFlag* stop);

  const std::vector<SpineSegment> segments;
  const std::vector<std::uint64_t> memory_bytes;  // [segments]
  ReadQueue& queue;
  BufferWarmer& warmer;
  PinPlan plan;
  std::array<Window, 2> windows;
  std::vector<Pin> pins;                     // [segments]
  std::vector<std::future<Buffer>> warming;  // [segments]: memory of pins to come
  std::int32_t position = 0;                 // the segment acquired last
  bool lock_pins = false;
  bool upkeep_failed = false;  // until the next acquire
  std::uint64_t bytes_read = 0;
};

// Where the segment is or will be, or null.
Place* SpineStore::State::place_of(std::int32_t segment) {
  const auto holds = [segment](const Place& place) {
    return place.segment == segment &&
           (place.status == Place::Status::reading || place.status == Place::Status::ready);
  };
  if (holds(pin(segment))) return &pin(segment);
  for (Window& window : windows) {
    const auto it = std::ranges::find_if(window.places, holds);
    if (it != window.places.end()) return &*it;
  }
  return nullptr;
}

// Ends the use of a place whose segment is not wanted there any more.
void SpineStore::State::drop(Place& place) {
  if (place.status == Place::Status::reading) {
    queue.cancel(place.read);
    place.status = Place::Status::draining;
  } else if (place.status == Place::Status::ready) {
    place.status = Place::Status::empty;
  }
  place.segment = kNone;
}

// Takes back a place whose cancelled read has ended.
void SpineStore::State::settle(Place& place, bool keep) {
  if (!keep && place.leases == 0) drop(place);
  if (place.status != Place::Status::draining || !queue.finished(place.read)) return;
  queue.wait(place.read, nullptr);
  place.status = Place::Status::empty;
}

void SpineStore::State::settle(Window& window) {
  for (Place& place : window.places) settle(place, plan.window_bytes > 0);
  std::erase_if(window.places, [](const Place& place) {
    return place.status == Place::Status::empty && place.leases == 0;
  });
  if (!window.places.empty()) return;
  window.used_bytes = 0;
  if (plan.window_bytes == 0) window.buffer = Buffer();
}

// Gives back memory that the plan no longer grants.
void SpineStore::State::settle() {
  for (std::int32_t i = 0; i < count(); ++i) {
    Pin& place = pin(i);
    settle(place, wants_pin(i));
    std::future<Buffer>& coming = warming[static_cast<std::size_t>(i)];
    if (wants_pin(i)) continue;
    if (place.status == Place::Status::empty) place.buffer = Buffer();
    if (coming.valid() && is_ready(coming)) coming = {};
  }
  for (Window& window : windows) settle(window);
}

// Whether the memory of the segment's pin is there. It is made in the background; with `wait` it is
// waited for.
bool SpineStore::State::get_pin_memory(std::int32_t segment, bool wait) {
  Pin& place = pin(segment);
  if (place.buffer.size() > 0) return true;
  std::future<Buffer>& coming = warming[static_cast<std::size_t>(segment)];
  if (!coming.valid()) {
    coming = warmer.prepare(static_cast<std::size_t>(at(segment).memory_bytes), "the spine");
  }
  if (!wait && !is_ready(coming)) return false;
  try {
    place.buffer = coming.get();
    if (lock_pins) place.buffer.lock();
  } catch (const Error&) {
    if (plan.window_bytes == 0) throw;
    plan.pinned[static_cast<std::size_t>(segment)] = false;  // it can be streamed all the same
    return false;
  }
  place.memory = place.buffer.data();
  return true;
}

// Whether what is in the place is wanted, or still written, when memory for `segment` is looked
// for.
bool SpineStore::State::serves_before(const Place& place, std::int32_t segment) const {
  if (place.leases > 0 || place.status == Place::Status::draining) return true;
  return segment != position && distance(place.segment) <= distance(segment);
}

// The window for a segment: behind what serves before it, else an empty one, else the one whose
// segments are all used later, and latest. Null when there is none.
Window* SpineStore::State::choose_window(std::int32_t segment) {
  const auto serves = [&](const Place& place) { return serves_before(place, segment); };
  Window* best = nullptr;
  std::int32_t latest = 0;
  for (Window& window : windows) {
    if (std::ranges::any_of(window.places, serves)) {
      const std::uint64_t bytes = memory_bytes[static_cast<std::size_t>(segment)];
      if (window.used_bytes + bytes <= plan.window_bytes) return &window;
      continue;
    }
    std::int32_t first_use = count() + 1;  // an empty one
    for (const Place& place : window.places) {
      first_use = std::min(first_use, distance(place.segment));
    }
    if (first_use <= latest) continue;
    best = &window;
    latest = first_use;
  }
  return best;
}

// A place in a window for the segment; null when there is none yet.
Place* SpineStore::State::take_window(std::int32_t segment) {
  Window* const window = choose_window(segment);
  if (window == nullptr) return nullptr;
  const auto serves = [&](const Place& place) { return serves_before(place, segment); };
  if (std::ranges::none_of(window->places, serves)) {
    for (Place& place : window->places) drop(place);
    settle(*window);
    if (!window->places.empty()) return nullptr;  // drains
  }
  if (window->buffer.size() == 0) {
    window->buffer = Buffer(static_cast<std::size_t>(plan.window_bytes), "the spine's windows");
  }
  Place& place = window->places.emplace_back();
  place.memory = window->buffer.data() + window->used_bytes;
  window->used_bytes += memory_bytes[static_cast<std::size_t>(segment)];
  return &place;
}

// Memory for a segment that has none; null when there is none yet. Pins whose memory is not ready
// pass through a window as long as there are windows.
Place* SpineStore::State::take_place(std::int32_t segment, bool wait) {
  Pin& own = pin(segment);
  const bool own_is_free = own.status == Place::Status::empty;
  if (wants_pin(segment) && own_is_free &&
      get_pin_memory(segment, wait && plan.window_bytes == 0)) {
    return &own;
  }
  return plan.window_bytes > 0 ? take_window(segment) : nullptr;
}

void SpineStore::State::start_read(Place& place, std::int32_t segment, ReadPriority priority) {
  std::vector<ReadOp> ops;
  for (const SegmentRead& read : at(segment).reads) {
    ops.push_back({.source = read.source,
                   .offset = read.offset,
                   .bytes = static_cast<std::size_t>(read.bytes),
                   .memory = place.memory + read.base});
  }
  place.read = queue.submit(ops, priority);
  place.segment = segment;
  place.demanded = priority == ReadPriority::demand;
  place.status = Place::Status::reading;
}

// Starts the reads of what is used next and not in memory, and makes ready the memory of pins to
// come.
void SpineStore::State::read_ahead() {
  std::int32_t reading = 0;
  std::int32_t touching = 0;
  for (std::int32_t step = 1; step < count() && reading < kReadAhead; ++step) {
    const std::int32_t segment = (position + step) % count();
    const Place* place = place_of(segment);
    if (place == nullptr) {
      Place* const to = take_place(segment, false);
      if (to == nullptr) break;
      start_read(*to, segment, ReadPriority::spine);
      ++reading;
    } else if (place->status == Place::Status::reading || place != &pin(segment)) {
      ++reading;
    }
  }
  for (std::int32_t step = 1; step < count() && touching < kTouchAhead; ++step) {
    const std::int32_t segment = (position + step) % count();
    if (!wants_pin(segment) || pin(segment).buffer.size() > 0) continue;
    get_pin_memory(segment, false);
    ++touching;
  }
}

// The place of a segment, where its read has been started at the latest now.
Place& SpineStore::State::demand(std::int32_t segment, const StopFlag* stop) {
  for (;;) {
    settle();
    if (Place* const place = place_of(segment)) return *place;
    if (Place* const place = take_place(segment, true)) {
      start_read(*place, segment, ReadPriority::demand);
      return *place;
    }
    // Cancelled reads are on their way out; they may hang.
    if (stop != nullptr && stop->stop_requested()) {
      throw Error(ErrorCode::cancelled, "stopped while waiting for spine memory");
    }
    std::this_thread::sleep_for(kDrainPoll);
  }
}

// Takes in what was read. A read that was not demanded may have failed: the place is empty then.
void SpineStore::State::land(Place& place, const StopFlag* stop) {
  const SpineSegment& segment = at(place.segment);
  try {
    queue.wait(place.read, stop);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) throw;  // the read goes on
    place.status = Place::Status::empty;
    place.segment = kNone;
    if (place.demanded) throw Error(error.code(), segment.name + ": " + error.what());
    return;  // what went wrong ahead of time may go well now
  }
  place.status = Place::Status::ready;
  bytes_read += segment.payload_bytes;
}

SpineStore::SpineStore(std::vector<SpineSegment> segments, ReadQueue& queue, BufferWarmer& warmer,
                       std::uint64_t budget_bytes, bool lock_pins)
    : state_(std::make_unique<State>(std::move(segments), queue, warmer)) {
  state_->lock_pins = lock_pins;
  set_budget(budget_bytes);
}

SpineStore::~SpineStore() {
  const auto end = [this](Place& place) {
    assert(place.leases == 0);
    state_->drop(place);
    if (place.status == Place::Status::draining) state_->queue.wait(place.read, nullptr);
  };
  for (Pin& pin : state_->pins) end(pin);
  for (Window& window : state_->windows) std::ranges::for_each(window.places, end);
}

SpineLease SpineStore::acquire(std::int32_t segment, const StopFlag* stop) {
  State& state = *state_;
  state.position = segment;
  state.upkeep_failed = false;
  for (;;) {
    Place& place = state.demand(segment, stop);
    ++place.leases;
    try {
      state.read_ahead();  // goes on while this one is waited for
      if (place.status == Place::Status::reading) state.land(place, stop);
      if (place.status == Place::Status::ready) {
        state.read_ahead();
        return {this, segment, segment_views(state.at(segment), place.memory)};
      }
    } catch (...) {
      --place.leases;
      throw;
    }
    --place.leases;
  }
}

std::optional<SpineLease> SpineStore::find(std::int32_t segment) {
  Pin& pin = state_->pin(segment);
  if (pin.status != Place::Status::ready) return std::nullopt;
  ++pin.leases;
  return SpineLease(this, segment, segment_views(state_->at(segment), pin.memory));
}

void SpineStore::release(std::int32_t segment) noexcept {
  Place* const place = state_->place_of(segment);
  assert(place != nullptr && place->leases > 0);
  --place->leases;
  try {
    state_->settle();
    state_->read_ahead();
  } catch (...) {
    // acquire() meets the same trouble and reports it.
  }
}

bool SpineStore::upkeep() {
  State& state = *state_;
  if (state.upkeep_failed) return false;  // the request that needs the segment meets it again
  state.settle();
  std::int32_t busy = 0;
  for (std::int32_t step = 1; step <= state.count() && busy < kReadAhead; ++step) {
    const std::int32_t segment = (state.position + step) % state.count();
    Pin& pin = state.pin(segment);
    if (!state.wants_pin(segment) || pin.status == Place::Status::ready) continue;
    ++busy;
    try {
      if (pin.status == Place::Status::reading && state.queue.finished(pin.read)) {
        state.land(pin, nullptr);
        if (pin.status == Place::Status::empty) state.upkeep_failed = true;
      } else if (pin.status == Place::Status::empty && state.get_pin_memory(segment, false)) {
        state.start_read(pin, segment, ReadPriority::spine);
      }
    } catch (const Error&) {
      state.upkeep_failed = true;
    }
  }
  return busy > 0 && !state.upkeep_failed;
}

void SpineStore::set_budget(std::uint64_t budget_bytes) {
  state_->plan = plan_pins(state_->memory_bytes, budget_bytes);
  state_->settle();
}

void SpineStore::forget() {
  const auto leave = [this](Place& place) {
    if (place.leases == 0) state_->drop(place);
  };
  std::ranges::for_each(state_->pins, leave);
  for (Window& window : state_->windows) std::ranges::for_each(window.places, leave);
  state_->settle();
}

std::uint64_t SpineStore::bytes_read() const {
  return state_->bytes_read;
}

std::uint64_t SpineStore::resident_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < state_->pins.size(); ++i) {
    if (state_->pins[i].status == Place::Status::ready) bytes += state_->segments[i].payload_bytes;
  }
  return bytes;
}

std::uint64_t SpineStore::memory_bytes() const {
  std::uint64_t bytes = 0;
  for (const Pin& pin : state_->pins) bytes += pin.buffer.size();
  for (const Window& window : state_->windows) bytes += window.buffer.size();
  return bytes;
}

SpineLease::SpineLease(SpineStore* store, std::int32_t segment, std::vector<WeightMatrix> matrices)
    : store_(store), segment_(segment), matrices_(std::move(matrices)) {}

SpineLease::SpineLease(SpineLease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      segment_(other.segment_),
      matrices_(std::move(other.matrices_)) {}

SpineLease& SpineLease::operator=(SpineLease&& other) noexcept {
  std::swap(store_, other.store_);
  std::swap(segment_, other.segment_);
  std::swap(matrices_, other.matrices_);
  return *this;
}

SpineLease::~SpineLease() {
  if (store_ != nullptr) store_->release(segment_);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_source.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "tests/support/memory_source.h"

namespace penstock {

FaultySource::FaultySource(std::unique_ptr<ByteSource> inner) : inner_(std::move(inner)) {}

FaultySource::FaultySource(std::string name, std::vector<std::byte> bytes)
    : FaultySource(std::make_unique<MemorySource>(std::move(name), std::move(bytes))) {}

void FaultySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  struct Leave {
    const FaultySource& source;
    ~Leave() {
      const std::lock_guard lock(source.mutex_);
      --source.concurrent_;
    }
  };
  enter(offset, out.size());
  const Leave leave{*this};
  const std::optional<Fault> fault = due_fault(offset, out.size());
  if (!fault) return inner_->read(offset, out);
  if (*fault == Fault::ones) {
    std::ranges::fill(out, std::byte{0xFF});
    return;
  }
  const std::string expected =
      name() + ": expected " + std::to_string(out.size()) + " bytes at " + std::to_string(offset);
  if (*fault == Fault::eio) throw Error(ErrorCode::io, expected + ", found: Input/output error");
  inner_->read(offset, out.first(out.size() / 2));
  throw Error(ErrorCode::io, expected + ", found " + std::to_string(out.size() / 2));
}

// Counts the read, then lets it hang or be slow.
void FaultySource::enter(std::uint64_t offset, std::size_t count) const {
  std::unique_lock lock(mutex_);
  offsets_.push_back(offset);
  bytes_ += count;
  max_concurrent_ = std::max(max_concurrent_, ++concurrent_);
  if (hanging_) {
    ++hung_;
    changed_cv_.notify_all();
    changed_cv_.wait(lock, [this] { return !hanging_ || passes_ > 0; });
    if (passes_ > 0) --passes_;
    --hung_;
  }
  const std::chrono::microseconds delay = delay_;
  lock.unlock();
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
}

// Throws when the source has vanished.
std::optional<Fault> FaultySource::due_fault(std::uint64_t offset, std::size_t count) const {
  const std::lock_guard lock(mutex_);
  if (vanished_) throw Error(ErrorCode::io, name() + ": No such file or directory");
  std::optional<Fault> due;
  for (Rule& entry : rules_) {
    const FaultRule& rule = entry.rule;
    if (offset >= rule.end || offset + count <= rule.begin) continue;
    const std::uint64_t seen = entry.seen++;
    if (seen >= rule.first && seen - rule.first < rule.times && !due) due = rule.fault;
  }
  return due;
}

void FaultySource::inject(const FaultRule& rule) {
  const std::lock_guard lock(mutex_);
  rules_.push_back({rule});
}

void FaultySource::clear_faults() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  delay_ = {};
  vanished_ = false;
}

void FaultySource::set_delay(std::chrono::microseconds delay) {
  const std::lock_guard lock(mutex_);
  delay_ = delay;
}

void FaultySource::vanish() {
  const std::lock_guard lock(mutex_);
  vanished_ = true;
}

void FaultySource::hang() {
  const std::lock_guard lock(mutex_);
  hanging_ = true;
  passes_ = 0;
}

void FaultySource::release() {
  const std::lock_guard lock(mutex_);
  hanging_ = false;
  passes_ = 0;
  changed_cv_.notify_all();
}

void FaultySource::release(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  passes_ += count;
  changed_cv_.notify_all();
}

void FaultySource::wait_for_hanging(int count) {
  std::unique_lock lock(mutex_);
  changed_cv_.wait(lock, [&] { return hung_ >= count; });
}

std::uint64_t FaultySource::calls() const {
  const std::lock_guard lock(mutex_);
  return offsets_.size();
}

std::uint64_t FaultySource::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int FaultySource::max_concurrent() const {
  const std::lock_guard lock(mutex_);
  return max_concurrent_;
}

std::vector<std::uint64_t> FaultySource::offsets() const {
  const std::lock_guard lock(mutex_);
  return offsets_;
}

}  // namespace penstock

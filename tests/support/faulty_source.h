// SPDX-License-Identifier: Apache-2.0
//
// A source that fails on demand: the program's own interface, with faults under it. Thread-safe:
// faults may be set, and counters read, while reads are running.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/byte_source.h"

namespace penstock {

enum class Fault : std::uint8_t {
  eio,         // throws Error(io) as the system's "Input/output error"
  short_read,  // delivers half of the bytes, then throws Error(io) with expected and found
  ones,        // delivers 0xFF in every byte: not finite as bf16 or F32, 255 as a scale
};

inline constexpr std::uint64_t kAlways = std::numeric_limits<std::uint64_t>::max();

// Which reads fail: those that touch [begin, end), from the `first`-th of them on, `times` times.
struct FaultRule {
  Fault fault = Fault::eio;
  std::uint64_t begin = 0;
  std::uint64_t end = kAlways;
  std::uint64_t first = 0;  // counted from 0
  std::uint64_t times = kAlways;
};

class FaultySource final : public ByteSource {
 public:
  explicit FaultySource(std::unique_ptr<ByteSource> inner);
  FaultySource(std::string name, std::vector<std::byte> bytes);  // over a MemorySource

  const std::string& name() const override { return inner_->name(); }
  std::uint64_t size() const override { return inner_->size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  int direct_fd() const override { return -1; }  // every read passes here
  std::uint64_t drive() const override { return drive_; }
  void set_drive(std::uint64_t drive) { drive_ = drive; }  // before it is read

  void inject(const FaultRule& rule);
  void clear_faults();                              // rules, delay and vanish
  void set_delay(std::chrono::microseconds delay);  // slept in every read
  void vanish();                                    // every read fails from now on

  void hang();                        // reads that start from now on block ...
  void release();                     // ... until this, which also lets later ones pass
  void release(std::uint64_t count);  // lets `count` of them pass
  void wait_for_hanging(int count);   // blocks until `count` reads hang

  std::uint64_t calls() const;                 // reads that have started
  std::uint64_t bytes() const;                 // asked for by them
  int max_concurrent() const;                  // most reads at once
  std::vector<std::uint64_t> offsets() const;  // of the reads in the order they started

 private:
  struct Rule {
    FaultRule rule;
    std::uint64_t seen = 0;
  };
  void enter(std::uint64_t offset, std::size_t count) const;
  std::optional<Fault> due_fault(std::uint64_t offset, std::size_t count) const;

  const std::unique_ptr<ByteSource> inner_;
  std::uint64_t drive_ = inner_->drive();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_cv_;
  mutable std::vector<Rule> rules_;
  std::chrono::microseconds delay_{0};
  bool vanished_ = false;
  bool hanging_ = false;
  mutable std::uint64_t passes_ = 0;
  mutable int hung_ = 0;
  mutable int concurrent_ = 0;
  mutable int max_concurrent_ = 0;
  mutable std::uint64_t bytes_ = 0;
  mutable std::vector<std::uint64_t> offsets_;
};

}  // namespace penstock

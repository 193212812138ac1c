// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/faulty_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

constexpr std::int32_t kSegments = 9;

std::string tensor_name(std::int32_t i) {
  return "t" + std::to_string(i);
}

// A spine of kSegments units over two shards, all reads behind faults. Segment i is a matrix of
// rows[i] rows; segment 4 has a second one in F32 from the other shard.
struct Spine {
  explicit Spine(const std::vector<std::int32_t>& the_rows = {20, 21, 22, 23, 24, 25, 26, 27, 28})
      : rows(the_rows) {
    BuiltShard a{"a.safetensors", {}, 1235};
    BuiltShard b{"b.safetensors", {float_tensor("extra", TensorType::f32, {33, 17})}, 17};
    for (std::int32_t i = 0; i < kSegments; ++i) {
      (i % 2 == 0 ? a : b)
          .tensors.push_back(float_tensor(tensor_name(i), TensorType::bf16, {rows_of(i), 300}));
    }
    write_checkpoint(dir.path(), {a, b});
    for (const BuiltShard& shard : {a, b}) {
      for (const BuiltTensor& tensor : shard.tensors) bytes[tensor.name] = tensor.bytes;
    }
    index = std::make_unique<TensorIndex>(
        TensorIndex::open(dir.path(), [this](const std::string& path) {
          auto source = std::make_unique<FaultySource>(open_source(path));
          (path.ends_with("/b.safetensors") ? faulty : other) = source.get();
          return source;
        }));
    std::vector<SpineUnit> units;
    for (std::int32_t i = 0; i < kSegments; ++i) {
      units.push_back(
          {"unit " + std::to_string(i), {{tensor_name(i), rows_of(i), 300, 0, rows_of(i)}}});
    }
    units[4].matrices.push_back({"extra", 33, 17, 0, 33});
    segments = plan_segments({index.get()}, units);
    memory = segment_memory(segments);
    for (const SpineSegment& segment : segments) payload += segment.payload_bytes;
  }

  std::int32_t rows_of(std::int32_t segment) const {
    return rows[static_cast<std::size_t>(segment)];
  }
  SpineStore store(std::uint64_t budget) { return {segments, queue, warmer, budget}; }
  std::uint64_t all() const {
    return std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
  }

  void expect_bytes(const SpineLease& lease, std::int32_t segment) const {
    const WeightMatrix& matrix = lease.matrix(0);
    EXPECT_EQ(matrix.rows, rows_of(segment));
    EXPECT_EQ(matrix.cols, 300);
    EXPECT_TRUE(bytes_of(matrix) == bytes.at(tensor_name(segment))) << segment;
    if (segment == 4) {
      EXPECT_TRUE(bytes_of(lease.matrix(1)) == bytes.at("extra"));
    }
  }
  static std::string bytes_of(const WeightMatrix& matrix) {
    return {reinterpret_cast<const char*>(matrix.data),
            static_cast<std::size_t>(matrix.rows) * row_data_bytes(matrix.format, matrix.cols)};
  }
  void sweep(SpineStore& store) const {
    for (std::int32_t i = 0; i < kSegments; ++i) expect_bytes(store.acquire(i, nullptr), i);
  }

  const std::vector<std::int32_t> rows;
  TempDir dir;
  std::map<std::string, std::string> bytes;
  FaultySource* faulty = nullptr;  // behind the odd segments and "extra"
  FaultySource* other = nullptr;   // behind the even ones
  std::unique_ptr<TensorIndex> index;
  std::vector<SpineSegment> segments;
  std::vector<std::uint64_t> memory;
  std::uint64_t payload = 0;
  ReadQueue queue;
  BufferWarmer warmer;
};

TEST(Spine, GivesTheSameBytesWhateverTheBudget) {
  Spine spine;
  for (std::uint64_t budget = spine_floor(spine.memory); budget <= spine.all(); budget += 4096) {
    const PinPlan plan = plan_pins(spine.memory, budget);
    SpineStore store = spine.store(budget);
    std::uint64_t streamed = 0;
    for (std::size_t i = 0; i < spine.segments.size(); ++i) {
      if (!plan.pinned[i]) streamed += spine.segments[i].payload_bytes;
    }
    spine.sweep(store);
    EXPECT_EQ(store.bytes_read(), spine.payload);  // everything passes once
    EXPECT_EQ(store.resident_bytes(), spine.payload - streamed);
    EXPECT_LE(store.memory_bytes(), budget);
    for (std::uint64_t round = 1; round < 4; ++round) {
      spine.sweep(store);
      // Two windows hold what they held when no more than two segments pass through them.
      const auto passing = std::count(plan.pinned.begin(), plan.pinned.end(), false);
      EXPECT_EQ(store.bytes_read(), spine.payload + (passing > 2 ? round * streamed : 0));
      EXPECT_LE(store.memory_bytes(), budget);
    }
  }
}

TEST(Spine, ReadsAheadOfTheSegmentInUse) {
  Spine spine;
  SpineStore store = spine.store(spine_floor(spine.memory));
  {
    const SpineLease lease = store.acquire(0, nullptr);
    spine.faulty->hang();
    spine.faulty->release();
    // Segment 1 is on its way into the other window while 0 is leased.
    while (spine.faulty->calls() == 0) std::this_thread::yield();
    EXPECT_EQ(store.bytes_read(), spine.segments[0].payload_bytes);
  }
  spine.expect_bytes(store.acquire(1, nullptr), 1);
}

// As in a layer: a large segment, and two small ones behind it.
const std::vector<std::int32_t> kMixedRows = {90, 60, 20, 15, 60, 20, 15, 60, 20};

TEST(Spine, SmallSegmentsShareAWindow) {
  Spine spine(kMixedRows);
  const auto reads = [&] { return spine.faulty->calls() + spine.other->calls(); };
  const std::uint64_t before = reads();
  SpineStore store = spine.store(spine_floor(spine.memory));
  store.acquire(0, nullptr);
  const SpineLease lease = store.acquire(1, nullptr);
  // Behind 1 there is room for 2, and in the other window for 3 and 4.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (reads() < before + 6 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(reads(), before + 6);  // segment 4 takes two
  EXPECT_LE(store.memory_bytes(), spine_floor(spine.memory));
  spine.expect_bytes(lease, 1);
  for (const std::int32_t i : {2, 3, 4}) spine.expect_bytes(store.acquire(i, nullptr), i);
}

TEST(Spine, SegmentsOfAnySizeKeepTheirBytes) {
  Spine spine(kMixedRows);
  for (std::uint64_t budget = spine_floor(spine.memory); budget <= spine.all(); budget += 4096) {
    SpineStore store = spine.store(budget);
    spine.sweep(store);
    EXPECT_EQ(store.bytes_read(), spine.payload);
    for (const std::int32_t i : {0, 1, 7, 8, 0, 5, 2, 2, 8, 6, 3, 1}) {
      spine.expect_bytes(store.acquire(i, nullptr), i);
    }
    for (std::int32_t i = 0; i + 1 < kSegments; ++i) {
      const SpineLease first = store.acquire(i, nullptr);
      const SpineLease second = store.acquire(i + 1, nullptr);
      spine.expect_bytes(first, i);
      spine.expect_bytes(second, i + 1);
    }
    EXPECT_LE(store.memory_bytes(), budget);
  }
}

TEST(Spine, TwoSegmentsMayBeLeasedAtOnce) {
  Spine spine;
  SpineStore store = spine.store(spine_floor(spine.memory));
  const SpineLease first = store.acquire(3, nullptr);
  const SpineLease second = store.acquire(4, nullptr);
  spine.expect_bytes(first, 3);
  spine.expect_bytes(second, 4);
}

TEST(Spine, SegmentsMayBeSkipped) {
  Spine spine;
  SpineStore store = spine.store(spine_floor(spine.memory));
  for (const std::int32_t i : {0, 1, 7, 8, 0, 5, 2, 2, 8, 6}) {
    spine.expect_bytes(store.acquire(i, nullptr), i);
  }
}

TEST(Spine, AFailedReadNamesTheSegmentAndCanBeRepeated) {
  Spine spine;
  for (const std::uint64_t budget : {spine_floor(spine.memory), spine.all()}) {
    SpineStore store = spine.store(budget);
    spine.faulty->inject({.fault = Fault::eio});
    spine.expect_bytes(store.acquire(0, nullptr), 0);
    for (int i = 0; i < 2; ++i) {
      try {
        store.acquire(1, nullptr);
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io);
        EXPECT_TRUE(std::string(error.what()).starts_with("unit 1: b.safetensors: "))
            << error.what();
      }
    }
    spine.faulty->clear_faults();
    spine.sweep(store);
    spine.sweep(store);
  }
}

TEST(Spine, StopsWhileAReadHangsAndGoesOnAfterwards) {
  Spine spine;
  for (const std::uint64_t budget : {spine_floor(spine.memory), spine.all()}) {
    SpineStore store = spine.store(budget);
    StopFlag stop;
    spine.faulty->hang();
    std::thread stopper([&] {
      spine.faulty->wait_for_hanging(1);
      stop.request_stop();
    });
    spine.expect_bytes(store.acquire(0, nullptr), 0);
    try {
      store.acquire(1, &stop);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::cancelled);
    }
    stopper.join();
    spine.faulty->release();
    spine.sweep(store);
  }
}

TEST(Spine, ABudgetMayChangeAtAnyTime) {
  Spine spine;
  const std::uint64_t floor = spine_floor(spine.memory);
  const std::uint64_t all = spine.all();
  SpineStore store = spine.store(floor);
  std::uint64_t step = 0;
  for (int round = 0; round < 20; ++round) {
    for (std::int32_t i = 0; i < kSegments; ++i, ++step) {
      const std::uint64_t budget = floor + (all - floor) * (step * 7 % 11) / 10;
      {
        const SpineLease lease = store.acquire(i, nullptr);
        store.set_budget(budget);
        spine.expect_bytes(lease, i);
      }
      spine.expect_bytes(store.acquire(i, nullptr), i);
    }
  }
  store.set_budget(floor);
  spine.sweep(store);
  EXPECT_LE(store.memory_bytes(), floor);
  EXPECT_EQ(store.resident_bytes(), 0U);
}

TEST(Spine, ReadsAnewWhatItWasToldToForget) {
  Spine spine;
  const std::uint64_t of_first = spine.segments[0].payload_bytes;
  for (const std::uint64_t budget : {spine_floor(spine.memory), spine.all()}) {
    SpineStore store = spine.store(budget);
    spine.sweep(store);
    const SpineLease lease = store.acquire(0, nullptr);
    store.forget();
    EXPECT_EQ(store.resident_bytes(), budget == spine.all() ? of_first : 0);
    spine.expect_bytes(lease, 0);
    const std::uint64_t before = store.bytes_read();
    for (std::int32_t i = 1; i < kSegments; ++i) spine.expect_bytes(store.acquire(i, nullptr), i);
    EXPECT_EQ(store.bytes_read() - before, spine.payload - of_first);
  }
}

TEST(Spine, AShrinkingBudgetDoesNotWaitForAReadThatHangs) {
  Spine spine;
  SpineStore store = spine.store(spine.all());
  spine.faulty->hang();
  spine.expect_bytes(store.acquire(0, nullptr), 0);
  spine.faulty->wait_for_hanging(1);  // segment 1, on its way to its pin
  store.set_budget(spine_floor(spine.memory));
  EXPECT_EQ(store.resident_bytes(), 0U);
  EXPECT_GT(store.memory_bytes(), 0U);
  spine.faulty->release();
  do {
    spine.sweep(store);
  } while (store.memory_bytes() > spine_floor(spine.memory));
}

TEST(Spine, UpkeepPinsBetweenRequests) {
  Spine spine;
  SpineStore store = spine.store(spine.all());
  while (store.upkeep()) std::this_thread::yield();
  EXPECT_EQ(store.resident_bytes(), spine.payload);
  EXPECT_EQ(store.bytes_read(), spine.payload);
  spine.sweep(store);
  EXPECT_EQ(store.bytes_read(), spine.payload);
}

TEST(Spine, UpkeepLeavesAFailureToTheRequestThatMeetsIt) {
  Spine spine;
  SpineStore store = spine.store(spine.all());
  spine.faulty->inject({.fault = Fault::eio});
  while (store.upkeep()) std::this_thread::yield();
  EXPECT_LT(store.resident_bytes(), spine.payload);
  EXPECT_FALSE(store.upkeep());
  EXPECT_THROW(store.acquire(1, nullptr), Error);
  spine.faulty->clear_faults();
  spine.sweep(store);
  EXPECT_EQ(store.resident_bytes(), spine.payload);
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/io/read_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/buffer.h"
#include "tests/io/backend_test.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_source.h"
#include "tests/support/memory_source.h"

namespace penstock {
namespace {

constexpr std::size_t kPiece = kPageBytes;

// A source of counting bytes, and memory for reads of it.
class Fixture {
 public:
  explicit Fixture(std::size_t bytes) : source("shard", counting_bytes(bytes)) {}

  ReadOp op(std::uint64_t offset, std::size_t bytes) {
    buffers_.emplace_back(widened_bytes(offset, bytes), "test");
    return {.source = &source, .offset = offset, .bytes = bytes, .memory = buffers_.back().data()};
  }

  FaultySource source;

 private:
  std::vector<Buffer> buffers_;
};

std::vector<std::byte> payload(const ReadOp& op) {
  const std::byte* first = op.memory + op.offset % kPageBytes;
  return {first, first + op.bytes};
}

void expect_filled(const ReadOp& op) {
  EXPECT_EQ(payload(op), counting_bytes(op.bytes, op.offset)) << op.offset;
}

ReadId submit(ReadQueue& queue, const ReadOp& op, ReadPriority priority = ReadPriority::demand) {
  return queue.submit({&op, 1}, priority);
}

void wait_until_finished(const ReadQueue& queue, ReadId id) {
  while (!queue.finished(id)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::vector<std::uint64_t> piece_offsets(std::uint64_t begin, std::size_t pieces) {
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < pieces; ++i) offsets.push_back(begin + i * kPiece);
  return offsets;
}

class ReadQueueTest : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, ReadQueueTest, kBackends, backend_name_of);

TEST(WidenedBytes, CountsThePagesTouched) {
  EXPECT_EQ(widened_bytes(0, 0), 0U);
  EXPECT_EQ(widened_bytes(5, 0), 0U);
  EXPECT_EQ(widened_bytes(0, 1), 4096U);
  EXPECT_EQ(widened_bytes(0, 4096), 4096U);
  EXPECT_EQ(widened_bytes(4095, 1), 4096U);
  EXPECT_EQ(widened_bytes(4095, 2), 8192U);
  EXPECT_EQ(widened_bytes(1ULL << 41U, 4097), 8192U);
}

TEST_P(ReadQueueTest, FillsMemoryAtTheOffsetsPlaceInItsPage) {
  Fixture f(100000);
  ReadQueue queue(with_backend({.piece_bytes = kPiece}));
  for (const std::uint64_t offset : {0ULL, 1ULL, 4095ULL, 4096ULL, 50001ULL}) {
    for (const std::size_t bytes : {1UL, 4095UL, 4096UL, 4097UL, 40000UL}) {
      const ReadOp op = f.op(offset, bytes);
      queue.wait(submit(queue, op), nullptr);
      expect_filled(op);
    }
  }
}

TEST_P(ReadQueueTest, ReadsAllOpsOfARead) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 3, .piece_bytes = kPiece}));
  std::vector<ReadOp> ops;
  for (std::uint64_t i = 0; i < 20; ++i) ops.push_back(f.op(i * 50001, 3 * 9999));
  ops.insert(ops.begin() + 3, {.source = &f.source, .offset = 7, .bytes = 0, .memory = nullptr});
  const ReadId id = queue.submit(ops, ReadPriority::look_ahead);
  queue.wait(id, nullptr);
  for (const ReadOp& op : ops) {
    if (op.bytes != 0) expect_filled(op);
  }
}

TEST_P(ReadQueueTest, EndsAReadOfNothing) {
  Fixture f(10);
  ReadQueue queue(with_backend());
  const ReadOp op{.source = &f.source, .offset = 3, .bytes = 0, .memory = nullptr};
  const ReadId id = submit(queue, op);
  EXPECT_TRUE(queue.finished(id));
  queue.wait(id, nullptr);
  EXPECT_EQ(queue.drive_bytes(), 0U);
}

TEST_P(ReadQueueTest, CutsOnPageBorders) {
  Fixture f(100000);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = 2 * kPiece}));
  queue.wait(submit(queue, f.op(5000, 20000)), nullptr);
  EXPECT_EQ(f.source.offsets(), (std::vector<std::uint64_t>{5000, 12288, 20480}));
  EXPECT_EQ(f.source.bytes(), 20000U);
  EXPECT_EQ(queue.drive_bytes(), 20000U);
}

TEST_P(ReadQueueTest, KeepsAtMostDepthPiecesInFlight) {
  for (const int depth : {1, 2, 5}) {
    Fixture f(64 * kPiece);
    ReadQueue queue(with_backend({.depth = depth, .piece_bytes = kPiece}));
    f.source.hang();
    const ReadId id = submit(queue, f.op(0, 64 * kPiece));
    f.source.wait_for_hanging(depth);
    f.source.release();
    queue.wait(id, nullptr);
    EXPECT_EQ(f.source.max_concurrent(), depth);
    EXPECT_EQ(f.source.calls(), 64U);
  }
}

TEST_P(ReadQueueTest, DemandOvertakesSpineThatIsHalfDone) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadOp spine_op = f.op(0, 8 * kPiece);
  const ReadId spine = submit(queue, spine_op, ReadPriority::spine);
  f.source.release(2);
  while (f.source.calls() < 3) std::this_thread::yield();
  const ReadOp demand_op = f.op(100 * kPiece, 2 * kPiece);
  const ReadId demand = submit(queue, demand_op, ReadPriority::demand);
  f.source.release(3);  // the spine's third piece and both of the demand
  queue.wait(demand, nullptr);
  EXPECT_FALSE(queue.finished(spine));
  f.source.release();
  queue.wait(spine, nullptr);
  expect_filled(spine_op);
  expect_filled(demand_op);

  std::vector<std::uint64_t> expected = piece_offsets(0, 3);
  for (const std::uint64_t offset : piece_offsets(100 * kPiece, 2)) expected.push_back(offset);
  for (const std::uint64_t offset : piece_offsets(3 * kPiece, 5)) expected.push_back(offset);
  EXPECT_EQ(f.source.offsets(), expected);
}

TEST_P(ReadQueueTest, APromotedReadOvertakes) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadId first = submit(queue, f.op(0, kPiece), ReadPriority::demand);
  f.source.wait_for_hanging(1);
  const ReadOp spine_op = f.op(20 * kPiece, 2 * kPiece);
  const ReadId spine = submit(queue, spine_op, ReadPriority::spine);
  const ReadOp ahead_op = f.op(40 * kPiece, 2 * kPiece);
  const ReadId ahead = submit(queue, ahead_op, ReadPriority::look_ahead);
  queue.promote(ahead, ReadPriority::demand);
  queue.promote(first, ReadPriority::look_ahead);  // it has started: nothing changes
  f.source.release();
  for (const ReadId id : {first, spine, ahead}) queue.wait(id, nullptr);
  expect_filled(spine_op);
  expect_filled(ahead_op);
  std::vector<std::uint64_t> expected = piece_offsets(0, 1);
  for (const std::uint64_t offset : piece_offsets(40 * kPiece, 2)) expected.push_back(offset);
  for (const std::uint64_t offset : piece_offsets(20 * kPiece, 2)) expected.push_back(offset);
  EXPECT_EQ(f.source.offsets(), expected);
}

TEST_P(ReadQueueTest, GoesByPriorityThenAge) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  f.source.hang();
  std::vector<ReadId> ids{submit(queue, f.op(0, kPiece), ReadPriority::look_ahead)};
  f.source.wait_for_hanging(1);
  const auto add = [&](std::uint64_t page, ReadPriority priority) {
    ids.push_back(submit(queue, f.op(page * kPiece, 2 * kPiece), priority));
  };
  add(50, ReadPriority::look_ahead);
  add(30, ReadPriority::spine);
  add(20, ReadPriority::spine);
  add(12, ReadPriority::demand);
  add(40, ReadPriority::look_ahead);
  add(10, ReadPriority::demand);
  f.source.release();
  for (const ReadId id : ids) queue.wait(id, nullptr);

  std::vector<std::uint64_t> pages;
  for (const std::uint64_t offset : f.source.offsets()) pages.push_back(offset / kPiece);
  EXPECT_EQ(pages, (std::vector<std::uint64_t>{0, 12, 13, 10, 11, 30, 31, 20, 21, 50, 51, 40, 41}));
}

TEST_P(ReadQueueTest, LessUrgentReadsJoinWhenFewPiecesAreInFlight) {
  Fixture f(64 * kPiece);
  ReadQueue queue(with_backend({.depth = 8, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadId demand = submit(queue, f.op(0, 3 * kPiece));
  f.source.wait_for_hanging(3);
  const ReadId ahead = submit(queue, f.op(20 * kPiece, 20 * kPiece), ReadPriority::look_ahead);
  f.source.release(2);
  while (f.source.calls() < 4) std::this_thread::yield();
  EXPECT_EQ(f.source.max_concurrent(), 3);
  f.source.release();
  for (const ReadId id : {demand, ahead}) queue.wait(id, nullptr);
}

TEST_P(ReadQueueTest, ACancelledReadThatHangsHoldsUpNoOther) {
  Fixture f(64 * kPiece);
  ReadQueue queue(with_backend({.depth = 4, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadId demand = submit(queue, f.op(0, 2 * kPiece));
  f.source.wait_for_hanging(2);
  const ReadId ahead = submit(queue, f.op(20 * kPiece, 2 * kPiece), ReadPriority::look_ahead);
  queue.cancel(demand);
  f.source.wait_for_hanging(4);
  f.source.release();
  for (const ReadId id : {demand, ahead}) queue.wait(id, nullptr);
}

TEST_P(ReadQueueTest, CancelDropsWhatHasNotStarted) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadId running = submit(queue, f.op(0, 8 * kPiece));
  const ReadId waiting = submit(queue, f.op(100 * kPiece, 8 * kPiece));
  f.source.wait_for_hanging(2);

  queue.cancel(waiting);
  EXPECT_TRUE(queue.finished(waiting));  // nothing of it had started
  queue.wait(waiting, nullptr);
  queue.cancel(running);
  EXPECT_FALSE(queue.finished(running));  // two pieces may still write
  queue.cancel(running);
  f.source.release();
  queue.wait(running, nullptr);
  EXPECT_EQ(f.source.calls(), 2U);
}

TEST_P(ReadQueueTest, CancelledReadReportsNoError) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadId hung = submit(queue, f.op(0, 4 * kPiece));
  f.source.wait_for_hanging(1);
  queue.cancel(hung);
  f.source.vanish();
  f.source.release();
  queue.wait(hung, nullptr);
  EXPECT_EQ(f.source.calls(), 1U);  // and a cancelled piece is not retried

  const ReadId failed = submit(queue, f.op(0, kPiece));
  wait_until_finished(queue, failed);
  queue.cancel(failed);
  queue.wait(failed, nullptr);
}

TEST_P(ReadQueueTest, CancelAfterTheEndChangesNothing) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend());
  const ReadOp op = f.op(77, 5000);
  const ReadId id = submit(queue, op);
  wait_until_finished(queue, id);
  queue.cancel(id);
  queue.wait(id, nullptr);
  expect_filled(op);
}

TEST_P(ReadQueueTest, StopEndsTheWaitThoughTheDriveHangs) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  f.source.hang();
  const ReadOp op = f.op(0, 2 * kPiece);
  const ReadId id = submit(queue, op);
  f.source.wait_for_hanging(1);
  StopFlag stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop.request_stop();
  });
  EXPECT_EQ(error_of([&] { queue.wait(id, &stop); }).code(), ErrorCode::cancelled);
  stopper.join();
  EXPECT_EQ(error_of([&] { queue.wait(id, &stop); }).code(), ErrorCode::cancelled);
  EXPECT_FALSE(queue.finished(id));  // the id stays live
  f.source.release();
  queue.wait(id, nullptr);
  expect_filled(op);
}

TEST_P(ReadQueueTest, RetriesAPieceThatFails) {
  for (const Fault fault : {Fault::eio, Fault::short_read}) {
    Fixture f(1 << 20);
    ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece, .retries = 2}));
    f.source.inject({.fault = fault, .begin = 2 * kPiece, .end = 3 * kPiece, .times = 2});
    const ReadOp op = f.op(100, 6 * kPiece);
    queue.wait(submit(queue, op), nullptr);
    expect_filled(op);
    EXPECT_EQ(f.source.calls(), 7U + 2U);
    EXPECT_EQ(queue.drive_bytes(), 8 * kPiece);  // retries are asked of the drive again
  }
}

TEST_P(ReadQueueTest, FailsWhenRetriesAreUsedUp) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece, .retries = 2}));
  f.source.inject({.fault = Fault::eio, .begin = kPiece, .end = 2 * kPiece});
  const ReadId id = submit(queue, f.op(0, 50 * kPiece));
  const Error error = error_of([&] { queue.wait(id, nullptr); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_STREQ(error.what(), "shard: expected 4096 bytes at 4096, found: Input/output error");
  // The first piece, then three tries: the 48 pieces behind were dropped.
  EXPECT_EQ(f.source.offsets(), (std::vector<std::uint64_t>{0, 4096, 4096, 4096}));
}

TEST_P(ReadQueueTest, NamesWhatAShortReadFound) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.piece_bytes = kPiece, .retries = 0}));
  f.source.inject({.fault = Fault::short_read});
  const ReadId id = submit(queue, f.op(8192, 3000));
  EXPECT_STREQ(error_of([&] { queue.wait(id, nullptr); }).what(),
               "shard: expected 3000 bytes at 8192, found 1500");
  EXPECT_EQ(f.source.calls(), 1U);
}

TEST_P(ReadQueueTest, OneFailureLeavesOtherReadsAlone) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 4, .piece_bytes = kPiece}));
  f.source.inject({.begin = 10 * kPiece, .end = 20 * kPiece});
  f.source.hang();
  const ReadOp good_op = f.op(100 * kPiece, 30 * kPiece);
  const ReadId bad = submit(queue, f.op(0, 30 * kPiece));
  const ReadId good = submit(queue, good_op);
  f.source.release();
  EXPECT_EQ(error_of([&] { queue.wait(bad, nullptr); }).code(), ErrorCode::io);
  queue.wait(good, nullptr);
  expect_filled(good_op);

  f.source.clear_faults();
  const ReadOp again_op = f.op(0, 30 * kPiece);
  queue.wait(submit(queue, again_op), nullptr);
  expect_filled(again_op);
}

TEST_P(ReadQueueTest, AFileThatVanishesFailsEveryRead) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.piece_bytes = kPiece}));
  f.source.vanish();
  for (const ReadPriority priority :
       {ReadPriority::demand, ReadPriority::spine, ReadPriority::look_ahead}) {
    const ReadId id = submit(queue, f.op(0, 10 * kPiece), priority);
    EXPECT_STREQ(error_of([&] { queue.wait(id, nullptr); }).what(),
                 "shard: No such file or directory");
  }
}

TEST_P(ReadQueueTest, SlowReadsComeAllTheSame) {
  Fixture f(1 << 20);
  f.source.set_delay(std::chrono::milliseconds(2));
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
  const ReadOp op = f.op(123, 20 * kPiece);
  StopFlag stop;
  queue.wait(submit(queue, op), &stop);
  expect_filled(op);
}

TEST_P(ReadQueueTest, DestructionDropsWhatHasNotStarted) {
  Fixture f(1 << 20);
  std::atomic<bool> gone{false};
  std::thread drive;
  {
    ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
    f.source.hang();
    submit(queue, f.op(0, 50 * kPiece));
    submit(queue, f.op(50 * kPiece, 50 * kPiece), ReadPriority::look_ahead);
    f.source.wait_for_hanging(2);
    // One piece per 10 ms: the destructor waits for those that have started, not for a second.
    drive = std::thread([&] {
      while (!gone) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        f.source.release(1);
      }
    });
  }
  gone = true;
  drive.join();
  EXPECT_LT(f.source.calls(), 100U);
}

TEST_P(ReadQueueTest, CountsPiecesAndBytesByPriority) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece, .retries = 3}));
  f.source.inject({.begin = 2 * kPiece, .end = 3 * kPiece, .times = 2});
  queue.wait(submit(queue, f.op(0, 5 * kPiece), ReadPriority::spine), nullptr);
  queue.wait(submit(queue, f.op(100, 1000), ReadPriority::look_ahead), nullptr);
  queue.wait(submit(queue, f.op(kPiece, 3 * kPiece)), nullptr);
  const ReadQueueStats stats = queue.stats();
  EXPECT_EQ(stats.pieces, 5U + 2U + 1U + 3U);
  EXPECT_EQ(stats.retries, 2U);
  EXPECT_EQ(stats.drive_bytes, 10 * kPiece + 1000);
  EXPECT_EQ(stats.priority_bytes, (std::array<std::uint64_t, 3>{3 * kPiece, 7 * kPiece, 1000}));
  EXPECT_EQ(queue.drive_bytes(), stats.drive_bytes);
}

TEST_P(ReadQueueTest, IsBusyWhilePiecesAreInFlight) {
  Fixture f(1 << 20);
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
  EXPECT_EQ(queue.stats().busy_s, 0.0);
  f.source.hang();
  const ReadId id = submit(queue, f.op(0, 3 * kPiece));
  f.source.wait_for_hanging(1);
  const double begun = queue.stats().busy_s;
  while (queue.stats().busy_s <= begun) std::this_thread::yield();
  f.source.release();
  queue.wait(id, nullptr);
  const double ended = queue.stats().busy_s;
  EXPECT_GT(ended, begun);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(queue.stats().busy_s, ended);
}

TEST_P(ReadQueueTest, RefusesAbsurdOptions) {
  for (const ReadQueueOptions& options :
       {ReadQueueOptions{.depth = 0}, ReadQueueOptions{.piece_bytes = 0},
        ReadQueueOptions{.piece_bytes = 5000}, ReadQueueOptions{.retries = -1}}) {
    EXPECT_EQ(error_of([&] { ReadQueue queue(options); }).code(), ErrorCode::usage);
  }
}

TEST_P(ReadQueueTest, CarriesManyReadsWithCancelsAndFaults) {
  Fixture f(4 << 20);
  f.source.inject({.begin = 3 << 20, .end = (3 << 20) + 1});
  ReadQueue queue(with_backend({.depth = 3, .piece_bytes = 2 * kPiece, .retries = 1}));
  std::uint64_t random = 1;
  const auto below = [&](std::uint64_t bound) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33U) % bound;
  };
  struct Live {
    ReadId id;
    ReadOp op;
    bool cancelled;
  };
  std::vector<Live> live;
  for (int i = 0; i < 2000; ++i) {
    const ReadOp op = f.op(below(3 << 20), 1 + below(60000));
    const ReadId id = submit(queue, op, static_cast<ReadPriority>(below(3)));
    live.push_back({id, op, below(4) == 0});
    if (live.back().cancelled) queue.cancel(id);
    if (live.size() < 20) continue;
    const std::size_t which = below(live.size());
    const Live ended = live[which];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    const bool hit =
        ended.op.offset <= (3U << 20U) && ended.op.offset + ended.op.bytes > (3U << 20U);
    if (hit && !ended.cancelled) {
      EXPECT_EQ(error_of([&] { queue.wait(ended.id, nullptr); }).code(), ErrorCode::io);
    } else {
      queue.wait(ended.id, nullptr);
      if (!ended.cancelled) expect_filled(ended.op);
    }
  }
}

}  // namespace
}  // namespace penstock

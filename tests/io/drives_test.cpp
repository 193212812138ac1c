// SPDX-License-Identifier: Apache-2.0
//
// The read queue over several drives, and over files of which there are copies.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/io/mirrored_source.h"
#include "engine/io/read_queue.h"
#include "tests/io/backend_test.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_source.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

constexpr std::size_t kPiece = kPageBytes;
constexpr std::size_t kSourceBytes = 256 * kPiece;

std::unique_ptr<FaultySource> source_on(std::uint64_t drive) {
  auto source = std::make_unique<FaultySource>("shard", counting_bytes(kSourceBytes));
  source->set_drive(drive);
  return source;
}

// Two copies of a file; `a` and `b` stay usable for faults.
struct Mirror {
  Mirror() {
    std::vector<std::unique_ptr<ByteSource>> replicas;
    for (auto* slot : {&a, &b}) {
      auto replica = source_on(slot == &a ? 1 : 2);
      *slot = replica.get();
      replicas.push_back(std::move(replica));
    }
    source = make_mirrored_source(std::move(replicas));
  }
  FaultySource* a = nullptr;
  FaultySource* b = nullptr;
  std::unique_ptr<ByteSource> source;
};

class Drives : public BackendTest {
 protected:
  ReadOp op(const ByteSource& source, std::uint64_t offset, std::size_t bytes) {
    buffers_.emplace_back(widened_bytes(offset, bytes), "test");
    return {.source = &source, .offset = offset, .bytes = bytes, .memory = buffers_.back().data()};
  }
  static ReadId submit(ReadQueue& queue, const ReadOp& op,
                       ReadPriority priority = ReadPriority::demand) {
    return queue.submit({&op, 1}, priority);
  }
  static void expect_filled(const ReadOp& op) {
    const std::byte* first = op.memory + op.offset % kPageBytes;
    EXPECT_EQ(std::vector<std::byte>(first, first + op.bytes), counting_bytes(op.bytes, op.offset));
  }

 private:
  std::vector<Buffer> buffers_;
};
INSTANTIATE_TEST_SUITE_P(, Drives, kBackends, backend_name_of);

std::vector<std::uint64_t> pages_of(const FaultySource& source) {
  std::vector<std::uint64_t> pages;
  for (const std::uint64_t offset : source.offsets()) pages.push_back(offset / kPiece);
  return pages;
}

TEST_P(Drives, AHungDriveHoldsUpNoOther) {
  const auto hung = source_on(1);
  const auto good = source_on(2);
  ReadQueue queue(with_backend({.depth = 3, .piece_bytes = kPiece}));
  hung->hang();
  const ReadOp hung_op = op(*hung, 0, 50 * kPiece);
  const ReadId first = submit(queue, hung_op);
  hung->wait_for_hanging(3);
  for (const ReadPriority priority :
       {ReadPriority::look_ahead, ReadPriority::spine, ReadPriority::demand}) {
    const ReadOp good_op = op(*good, 100, 40 * kPiece);
    queue.wait(submit(queue, good_op, priority), nullptr);
    expect_filled(good_op);
  }
  EXPECT_EQ(hung->calls(), 3U);
  hung->release();
  queue.wait(first, nullptr);
  expect_filled(hung_op);
  EXPECT_EQ(hung->max_concurrent(), 3);
  EXPECT_LE(good->max_concurrent(), 3);
}

TEST_P(Drives, AReadGoesOnWhereADriveHasRoom) {
  const auto hung = source_on(1);
  const auto good = source_on(2);
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
  hung->hang();
  const std::array ops{op(*hung, 0, 10 * kPiece), op(*good, 0, 10 * kPiece),
                       op(*hung, 10 * kPiece, kPiece), op(*good, 10 * kPiece, 5)};
  const ReadId id = queue.submit(ops, ReadPriority::demand);
  while (good->calls() < 11) std::this_thread::yield();
  EXPECT_FALSE(queue.finished(id));
  hung->release();
  queue.wait(id, nullptr);
  for (const ReadOp& each : ops) expect_filled(each);
}

TEST_P(Drives, EachKeepsPriorityAndAge) {
  const std::array drives{source_on(1), source_on(2)};
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  std::vector<ReadId> ids;
  for (const auto& drive : drives) {
    drive->hang();
    ids.push_back(submit(queue, op(*drive, 0, kPiece)));
    drive->wait_for_hanging(1);
  }
  const std::array<std::pair<std::uint64_t, ReadPriority>, 4> reads{{{40, ReadPriority::look_ahead},
                                                                     {30, ReadPriority::spine},
                                                                     {20, ReadPriority::demand},
                                                                     {10, ReadPriority::demand}}};
  for (const auto& [page, priority] : reads) {
    for (const auto& drive : drives) {
      ids.push_back(submit(queue, op(*drive, page * kPiece, 2 * kPiece), priority));
    }
  }
  for (const auto& drive : drives) drive->release();
  for (const ReadId id : ids) queue.wait(id, nullptr);
  for (const auto& drive : drives) {
    EXPECT_EQ(pages_of(*drive), (std::vector<std::uint64_t>{0, 20, 21, 10, 11, 30, 31, 40, 41}));
  }
}

TEST_P(Drives, AMirrorIsReadFromBoth) {
  Mirror mirror;
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece}));
  mirror.a->hang();
  mirror.b->hang();
  const ReadOp whole = op(*mirror.source, 77, 20 * kPiece);
  const ReadId id = submit(queue, whole);
  mirror.a->wait_for_hanging(2);
  mirror.b->wait_for_hanging(2);
  // The pieces alternate: each goes where fewer bytes are in flight.
  EXPECT_EQ(mirror.a->bytes() + mirror.b->bytes(), 4 * kPiece - 77);
  mirror.b->release();
  while (mirror.b->calls() < 19) std::this_thread::yield();
  EXPECT_EQ(mirror.a->calls(), 2U);  // a slow copy does what it can, the other does the rest
  mirror.a->release();
  queue.wait(id, nullptr);
  expect_filled(whole);
  EXPECT_EQ(mirror.a->bytes() + mirror.b->bytes(), 20 * kPiece);
}

TEST_P(Drives, APieceGoesWhereFewerBytesAreInFlight) {
  Mirror mirror;
  const auto busy = source_on(1);
  ReadQueue queue(with_backend({.depth = 4, .piece_bytes = kPiece}));
  for (FaultySource* source : {busy.get(), mirror.a, mirror.b}) source->hang();
  const ReadId first = submit(queue, op(*busy, 0, 2 * kPiece));
  busy->wait_for_hanging(2);
  const ReadOp mirrored = op(*mirror.source, 0, 4 * kPiece);
  const ReadId second = submit(queue, mirrored);
  mirror.b->wait_for_hanging(3);  // two to draw level, then one each
  mirror.a->wait_for_hanging(1);
  for (FaultySource* source : {busy.get(), mirror.a, mirror.b}) source->release();
  queue.wait(first, nullptr);
  queue.wait(second, nullptr);
  expect_filled(mirrored);
}

TEST_P(Drives, AFailedPieceIsReadFromTheOtherCopy) {
  for (const Fault fault : {Fault::eio, Fault::short_read}) {
    Mirror mirror;
    ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece, .retries = 1}));
    mirror.a->inject({.fault = fault});
    const ReadOp whole = op(*mirror.source, 5, 30 * kPiece);
    queue.wait(submit(queue, whole), nullptr);
    expect_filled(whole);
    EXPECT_EQ(queue.stats().retries, mirror.a->calls());
    EXPECT_EQ(mirror.b->calls(), 31U);
    EXPECT_LE(mirror.b->max_concurrent(), 2);  // the depth holds for what is tried again, too
  }
}

TEST_P(Drives, AMirrorFailsWhenAllCopiesDo) {
  Mirror mirror;
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = kPiece, .retries = 2}));
  mirror.a->inject({.begin = 3 * kPiece, .end = 4 * kPiece});
  mirror.b->inject({.begin = 3 * kPiece, .end = 4 * kPiece});
  const ReadId id = submit(queue, op(*mirror.source, 0, 30 * kPiece));
  EXPECT_STREQ(error_of([&] { queue.wait(id, nullptr); }).what(),
               "shard: expected 4096 bytes at 12288, found: Input/output error");
  const ReadOp elsewhere = op(*mirror.source, 4 * kPiece, 30 * kPiece);
  queue.wait(submit(queue, elsewhere), nullptr);
  expect_filled(elsewhere);
}

// A piece that failed on one drive waits for room on the other, which hangs.
TEST_P(Drives, CancelDropsWhatWaitsToBeTriedAgain) {
  Mirror mirror;
  const auto next = source_on(1);
  const auto busy = source_on(2);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  busy->hang();
  const ReadId hung = submit(queue, op(*busy, 0, kPiece));
  busy->wait_for_hanging(1);
  mirror.a->vanish();
  const ReadId failing = submit(queue, op(*mirror.source, 0, kPiece));
  queue.wait(submit(queue, op(*next, 0, kPiece)), nullptr);  // the failed piece has left drive 1
  queue.cancel(failing);
  queue.wait(failing, nullptr);
  EXPECT_EQ(mirror.b->calls(), 0U);
  busy->release();
  queue.wait(hung, nullptr);
}

TEST_P(Drives, CarryManyReadsWithCancelsAndFaults) {
  Mirror mirror;
  const auto plain = source_on(3);
  mirror.a->inject({.begin = 100 * kPiece, .end = 150 * kPiece});
  mirror.b->inject({.fault = Fault::short_read, .begin = 10 * kPiece, .end = 50 * kPiece});
  plain->inject({.begin = 20 * kPiece, .end = 21 * kPiece, .times = 2});
  ReadQueue queue(with_backend({.depth = 2, .piece_bytes = 2 * kPiece}));
  std::uint64_t random = 1;
  const auto below = [&](std::uint64_t bound) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33U) % bound;
  };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::vector<ReadOp>> reads;
    std::vector<ReadId> ids;
    for (int i = 0; i < 10; ++i) {
      std::vector<ReadOp>& ops = reads.emplace_back();
      for (std::uint64_t n = 1 + below(3); n > 0; --n) {
        const ByteSource& source = below(2) == 0 ? *mirror.source : *plain;
        ops.push_back(op(source, below(kSourceBytes - 60000), below(60000)));
      }
      ids.push_back(queue.submit(ops, static_cast<ReadPriority>(below(3))));
    }
    const std::uint64_t cancelled = below(10);
    queue.cancel(ids[cancelled]);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      queue.wait(ids[i], nullptr);
      for (const ReadOp& each : reads[i]) {
        if (i != cancelled && each.bytes != 0) expect_filled(each);
      }
    }
  }
}

TEST_P(Drives, OptionsChangeBetweenReads) {
  const auto source = source_on(1);
  ReadQueue queue(with_backend({.depth = 1, .piece_bytes = kPiece}));
  for (const int depth : {3, 1, 6}) {
    queue.set_pieces(depth, 2 * kPiece);
    source->hang();
    const ReadOp whole = op(*source, 0, 40 * kPiece);
    const std::uint64_t before = source->calls();
    const ReadId id = submit(queue, whole);
    source->wait_for_hanging(depth);
    source->release();
    queue.wait(id, nullptr);
    expect_filled(whole);
    EXPECT_EQ(source->calls() - before, 20U);
  }
  EXPECT_EQ(source->max_concurrent(), 6);
  EXPECT_EQ(error_of([&] { queue.set_pieces(0, kPiece); }).code(), ErrorCode::usage);
  EXPECT_EQ(error_of([&] { queue.set_pieces(1, 100); }).code(), ErrorCode::usage);
}

TEST(LocalFile, KnowsItsDrive) {
  const TempDir dir;
  const auto source = open_source(dir.write("shard", "bytes"));
  struct stat info {};
  ASSERT_EQ(stat(dir.path("shard").c_str(), &info), 0);
  EXPECT_EQ(source->drive(), info.st_dev);
  EXPECT_EQ(source->replica_count(), 1U);
  EXPECT_EQ(&source->replica(0), source.get());
}

TEST(MirroredSource, ReadsWhatAnyReplicaDelivers) {
  Mirror mirror;
  std::vector<std::byte> out(5000);
  mirror.a->vanish();
  mirror.source->read(123, out);
  EXPECT_EQ(out, counting_bytes(5000, 123));
  mirror.b->inject({.fault = Fault::short_read});
  EXPECT_STREQ(error_of([&] { mirror.source->read(123, out); }).what(),
               "shard: expected 5000 bytes at 123, found 2500");
  EXPECT_EQ(mirror.source->size(), kSourceBytes);
  EXPECT_EQ(mirror.source->name(), "shard");
}

TEST(MirroredSource, OfOneReplicaIsTheReplica) {
  std::vector<std::unique_ptr<ByteSource>> replicas;
  replicas.push_back(source_on(7));
  const ByteSource* only = replicas.front().get();
  EXPECT_EQ(make_mirrored_source(std::move(replicas)).get(), only);
}

}  // namespace
}  // namespace penstock

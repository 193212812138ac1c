// SPDX-License-Identifier: Apache-2.0
//
// Measurements of drives: what they read, what they refuse to report. No test looks at a rate's
// size.
#include "engine/io/drive_probe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/drive_counters.h"
#include "engine/io/random_reads.h"
#include "engine/io/scratch_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_source.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

constexpr std::size_t kMiB = 1UL << 20U;

// A file on the drive; null where the file system of the folder refuses direct reads.
std::unique_ptr<ByteSource> file_on_drive(const TempDir& dir, std::uint64_t bytes) {
  auto source = write_scratch_file(dir.path(), bytes);
  return source->direct_fd() < 0 ? nullptr : std::move(source);
}

TEST(FreshBlocks, DrawsEveryBlockOnce) {
  const MemorySource a("a", std::vector<std::byte>(10 * kPageBytes));
  const MemorySource none("none", std::vector<std::byte>(kPageBytes - 1));
  const MemorySource b("b", std::vector<std::byte>(100 * kPageBytes + 1));
  FreshBlocks blocks({&a, &none, &b}, kPageBytes);
  std::set<std::pair<const ByteSource*, std::uint64_t>> seen;
  for (std::uint64_t left = 110; left > 0; --left) {
    EXPECT_EQ(blocks.left(), left);
    const std::optional<Block> block = blocks.draw();
    ASSERT_TRUE(block);
    EXPECT_NE(block->source, &none);
    EXPECT_EQ(block->offset % kPageBytes, 0U);
    EXPECT_LE(block->offset + kPageBytes, block->source->size());
    EXPECT_TRUE(seen.emplace(block->source, block->offset).second);
  }
  EXPECT_FALSE(blocks.draw());
}

TEST(ReadBlocks, KeepsToItsLimitsAndStopsWhenTold) {
  const FaultySource source("shard", std::vector<std::byte>(100 * kPageBytes));
  ReadQueue queue({.depth = 2, .piece_bytes = kPageBytes});
  const Buffer memory(3 * kPageBytes, "test");
  FreshBlocks blocks({&source}, kPageBytes);
  const ReadLimits ten{.seconds = 1e9, .blocks = 10};
  EXPECT_EQ(read_blocks(queue, blocks, kPageBytes, memory, ten, nullptr).bytes, 10 * kPageBytes);
  EXPECT_EQ(source.calls(), 10U);
  const ReadLimits no_time{.seconds = 0, .blocks = 10};
  EXPECT_EQ(read_blocks(queue, blocks, kPageBytes, memory, no_time, nullptr).bytes, 0U);
  const ReadLimits all{.seconds = 1e9, .blocks = 1000};
  EXPECT_EQ(read_blocks(queue, blocks, kPageBytes, memory, all, nullptr).bytes, 90 * kPageBytes);
  FreshBlocks again({&source}, kPageBytes);
  StopFlag stop;
  stop.request_stop();
  EXPECT_EQ(error_of([&] { read_blocks(queue, again, kPageBytes, memory, all, &stop); }).code(),
            ErrorCode::cancelled);
}

TEST(ReadBlocks, FailsAsTheFileDoes) {
  FaultySource source("shard", std::vector<std::byte>(100 * kPageBytes));
  source.vanish();
  ReadQueue queue({.depth = 2, .piece_bytes = kPageBytes});
  const Buffer memory(3 * kPageBytes, "test");
  FreshBlocks blocks({&source}, kPageBytes);
  EXPECT_STREQ(error_of([&] {
                 read_blocks(queue, blocks, kPageBytes, memory, {1e9, 50}, nullptr);
               }).what(),
               "shard: No such file or directory");
  source.clear_faults();  // and the queue is as good as before
  EXPECT_GT(read_blocks(queue, blocks, kPageBytes, memory, {1e9, 50}, nullptr).bytes, 0U);
}

TEST(ScratchFile, HoldsItsBytesAndHasNoName) {
  const TempDir dir;
  std::uint64_t written = 0;
  const std::uint64_t bytes = 20 * kMiB + 123;
  const auto source = write_scratch_file(
      dir.path(), bytes, {.progress = [&](std::uint64_t count) { written = count; }});
  EXPECT_EQ(written, bytes);
  EXPECT_EQ(source->size(), bytes);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  std::vector<std::byte> first(kPageBytes);
  std::vector<std::byte> last(kPageBytes);
  source->read(0, first);
  source->read(bytes - kPageBytes, last);
  EXPECT_NE(first, last);
  EXPECT_NE(first, std::vector<std::byte>(kPageBytes));
}

TEST(ScratchFile, IsGoneWhenItWasStoppedOrCannotBe) {
  const TempDir dir;
  StopFlag stop;
  stop.request_stop();
  EXPECT_EQ(error_of([&] { write_scratch_file(dir.path(), kMiB, {.stop = &stop}); }).code(),
            ErrorCode::cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(std::string(error_of([&] { write_scratch_file(dir.path("none"), 1); }).what()),
            dir.path("none") + ": no scratch file can be written there: No such file or directory");
}

TEST(WhyNotMeasurable, NamesHolesAndRefusals) {
  const TempDir dir;
  const MemorySource memory("memory", {});
  EXPECT_EQ(why_not_measurable(memory),
            "memory: direct reads are refused, the page cache would be measured");
  const std::string path = dir.write("shard", "x");
  std::filesystem::resize_file(path, 10 * kMiB);
  const auto sparse = open_source(path);
  if (sparse->direct_fd() < 0) GTEST_SKIP() << "no direct reads in " << dir.path();
  EXPECT_TRUE(why_not_measurable(*sparse).starts_with("shard: is sparse or compressed, "))
      << why_not_measurable(*sparse);
  const std::array<const ByteSource*, 2> sources{&memory, sparse.get()};
  EXPECT_TRUE(measurable_replicas(sources).empty());
  EXPECT_EQ(why_not_measurable(*file_on_drive(dir, kMiB)), "");
}

TEST(SmallestOfTheBest, TakesTheFewestBytesInFlightWithinFivePercent) {
  const auto choose = [](std::vector<PieceSetting> settings) {
    const PieceSetting best = smallest_of_the_best(settings);
    return std::pair(best.depth, best.piece_bytes);
  };
  EXPECT_EQ(choose({{8, kMiB, 1.00}, {4, kMiB, 0.96}, {2, kMiB, 0.94}}), std::pair(4, kMiB));
  EXPECT_EQ(choose({{1, 4 * kMiB, 1.0}, {4, kMiB, 0.99}, {8, kMiB, 1.0}}), std::pair(4, kMiB));
  EXPECT_EQ(choose({{2, 4 * kMiB, 1.0}, {4, kMiB, 0.94}}), std::pair(2, 4 * kMiB));
  EXPECT_EQ(choose({{1, kMiB, 0.5}}), std::pair(1, kMiB));
}

TEST(ChooseDepth, LeavesTheQueueWithTheSettingItFound) {
  const TempDir dir;
  const auto source = file_on_drive(dir, 40 * kMiB);
  if (!source) GTEST_SKIP() << "no direct reads in " << dir.path();
  ReadQueue queue;
  const std::array<const ByteSource*, 1> sources{source.get()};
  const auto best =
      choose_depth(queue, sources, nullptr, {.min_file_bytes = 1, .read_bytes = 1, .seconds = 1e9});
  ASSERT_TRUE(best);
  EXPECT_GT(best->gb_per_s, 0.0);
  // Two blocks of 4 MiB for each of eight settings, of ten that there are.
  EXPECT_EQ(queue.drive_bytes(), 40 * kMiB);
  const Buffer memory(8 * kMiB, "test");
  const std::uint64_t before = queue.stats().pieces;
  const ReadOp op{.source = source.get(), .offset = 0, .bytes = 8 * kMiB, .memory = memory.data()};
  queue.wait(queue.submit({&op, 1}, ReadPriority::demand), nullptr);
  EXPECT_EQ(queue.stats().pieces - before, 8 * kMiB / best->piece_bytes);
}

TEST(ChooseDepth, LeavesTheQueueAloneWhenThereIsTooLittleToRead) {
  const TempDir dir;
  const auto source = write_scratch_file(dir.path(), 8 * kMiB);
  const MemorySource memory("memory", std::vector<std::byte>(kMiB));
  ReadQueue queue;
  const std::array<const ByteSource*, 2> sources{source.get(), &memory};
  EXPECT_FALSE(choose_depth(queue, sources, nullptr));  // below 1 GB
  EXPECT_FALSE(choose_depth(queue, std::span(sources).last(1), nullptr, {.min_file_bytes = 0}));
  EXPECT_FALSE(choose_depth(queue, {}, nullptr, {.min_file_bytes = 0}));
  EXPECT_EQ(queue.drive_bytes(), 0U);
}

DriveBenchOptions quick() {
  return {.record_bytes = 100'000, .seconds = 0.03, .rounds = 3, .depths = {1, 3}};
}

TEST(MeasureDrive, ReportsARateForEachDepth) {
  const TempDir dir;
  const auto source = file_on_drive(dir, 32 * kMiB);
  if (!source) GTEST_SKIP() << "no direct reads in " << dir.path();
  const std::array<const ByteSource*, 1> sources{source.get()};
  const DriveRate rate = measure_drive(sources, quick());
  EXPECT_EQ(rate.record_bytes, 100'000U);
  EXPECT_NE(rate.file_system, "");
  ASSERT_EQ(rate.depths.size(), 2U);
  EXPECT_EQ(rate.depths[0].depth, 1);
  EXPECT_EQ(rate.depths[1].depth, 3);
  for (const DepthRate& depth : rate.depths) {
    EXPECT_GT(depth.gb_per_s, 0.0);
    EXPECT_LE(depth.gb_per_s, rate.best.gb_per_s);
  }
}

// A file whose "direct" reads the page cache answers.
class CachedSource final : public ByteSource {
 public:
  explicit CachedSource(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)), size_(std::filesystem::file_size(path)) {}
  CachedSource(const CachedSource&) = delete;
  CachedSource& operator=(const CachedSource&) = delete;
  ~CachedSource() override { close(fd_); }
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t /*offset*/, std::span<std::byte> /*out*/) const override {}
  int direct_fd() const override { return fd_; }

 private:
  std::string name_ = "cached";
  int fd_;
  std::uint64_t size_;
};

TEST(MeasureDrive, RefusesToReportThePageCache) {
  const TempDir dir;
  const std::vector<std::byte> bytes = counting_bytes(32 * kMiB);
  const std::string path =
      dir.write("shard", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const CachedSource source(path);
  ASSERT_EQ(fsync(source.direct_fd()), 0);  // written, and still in the page cache
  if (!why_not_measurable(source).empty()) GTEST_SKIP() << why_not_measurable(source);
  const std::array<const ByteSource*, 1> sources{&source};
  const Error error = error_of([&] { measure_drive(sources, quick()); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  const std::string text = error.what();
  EXPECT_TRUE(text.ends_with("a cache delivered the rest") ||
              text.starts_with("the system does not say"))
      << text;
}

TEST(MeasureDrive, NamesWhatCannotBeMeasured) {
  const TempDir dir;
  const std::string path = dir.write("shard", "x");
  std::filesystem::resize_file(path, 10 * kMiB);
  const auto sparse = open_source(path);
  const auto small = write_scratch_file(dir.path(), kMiB);
  if (sparse->direct_fd() < 0) GTEST_SKIP() << "no direct reads in " << dir.path();
  const auto message = [](const ByteSource* source, const DriveBenchOptions& options) {
    return std::string(error_of([&] { measure_drive({&source, 1}, options); }).what());
  };
  EXPECT_EQ(message(sparse.get(), quick()), why_not_measurable(*sparse));
  EXPECT_EQ(message(small.get(), quick()),
            "the files have 1048576 bytes on the drive, enough for 10 records of 102400 bytes at "
            "fresh offsets, expected at least 18");
  EXPECT_EQ(std::string(error_of([] { measure_drive({}, quick()); }).what()), "no file to measure");
  for (const DriveBenchOptions& bad :
       {DriveBenchOptions{.record_bytes = 0}, DriveBenchOptions{.seconds = 0},
        DriveBenchOptions{.rounds = 0}, DriveBenchOptions{.depths = {}},
        DriveBenchOptions{.depths = {4, 0}}}) {
    EXPECT_EQ(error_of([&] { measure_drive({}, bad); }).code(), ErrorCode::usage);
  }
}

TEST(DriveCounters, ReadTheSystemsTexts) {
  constexpr const char* kDiskstats =
      "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
      " 259       0 nvme0n1 1068737 37152 57101249 365259 144900 200053 49486888 193682 0 1 2\n"
      " 259       1 nvme0n1p1 5 0 40 1 0 0 0 0 0 1 1\n";
  const auto disk = parse_diskstats(kDiskstats, 259, 0);
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->name, "nvme0n1");
  EXPECT_EQ(disk->read_bytes, 57101249ULL * 512);
  EXPECT_EQ(parse_diskstats(kDiskstats, 259, 1)->read_bytes, 40U * 512);
  EXPECT_FALSE(parse_diskstats(kDiskstats, 8, 0));
  EXPECT_FALSE(parse_diskstats("8 0 sda 1 2\n", 8, 0));
  EXPECT_FALSE(parse_diskstats("", 8, 0));
  EXPECT_EQ(parse_process_io("rchar: 6976\nread_bytes: 4096\nwrite_bytes: 1\n"), 4096U);
  EXPECT_FALSE(parse_process_io("rchar: 6976\n"));
}

TEST(DriveCounters, CountADirectRead) {
  const TempDir dir;
  const auto source = file_on_drive(dir, 4 * kMiB);
  if (!source) GTEST_SKIP() << "no direct reads in " << dir.path();
  const auto before = process_read_bytes();
  if (!before) GTEST_SKIP() << "the system does not say what was read";
  ReadQueue queue;
  const Buffer memory(4 * kMiB, "test");
  const ReadOp op{.source = source.get(), .offset = 0, .bytes = 4 * kMiB, .memory = memory.data()};
  queue.wait(queue.submit({&op, 1}, ReadPriority::demand), nullptr);
  EXPECT_GE(*process_read_bytes() - *before, 4 * kMiB);
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The read queue over real files: widening, the file's end, offsets beyond 32 and 40 bits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/io/read_queue.h"
#include "tests/io/backend_test.h"
#include "tests/support/expect_error.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

// A file of counting bytes in the folder, opened.
std::unique_ptr<ByteSource> counting_file(const TempDir& dir, std::size_t count) {
  const std::vector<std::byte> bytes = counting_bytes(count);
  return open_source(
      dir.write("shard", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

struct Landed {
  std::vector<std::byte> payload;
  std::uint64_t drive_bytes;
};

class DirectRead : public BackendTest {
 protected:
  static Landed read_once(const ByteSource& source, std::uint64_t offset, std::size_t bytes,
                          bool direct) {
    ReadQueue queue(with_backend({.piece_bytes = 4 * kPageBytes}));
    const Buffer memory(widened_bytes(offset, bytes), "test");
    const ReadOp op{.source = &source,
                    .offset = offset,
                    .bytes = bytes,
                    .memory = memory.data(),
                    .direct = direct};
    queue.wait(queue.submit({&op, 1}, ReadPriority::demand), nullptr);
    const std::byte* first = memory.data() + offset % kPageBytes;
    return {{first, first + bytes}, queue.drive_bytes()};
  }
};
INSTANTIATE_TEST_SUITE_P(, DirectRead, kBackends, backend_name_of);

// Bytes of the whole units of the source that [offset, offset + bytes) touches.
std::uint64_t unit_bytes(const ByteSource& source, std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t unit = source.direct_unit();
  return (offset + bytes + unit - 1) / unit * unit - offset / unit * unit;
}

TEST_P(DirectRead, CountsWholeUnits) {
  const TempDir dir;
  const auto source = counting_file(dir, 200000);
  if (source->direct_fd() < 0) GTEST_SKIP() << "no direct reads in " << dir.path();
  struct Case {
    std::uint64_t offset;
    std::size_t bytes;
  };
  for (const Case& c :
       {Case{0, 4096}, Case{4096, 8192}, Case{1, 4096}, Case{4095, 2}, Case{100, 20},
        Case{8191, 100001}, Case{0, 131072}, Case{512, 512}, Case{3088, 40960}}) {
    const Landed landed = read_once(*source, c.offset, c.bytes, true);
    EXPECT_EQ(landed.payload, counting_bytes(c.bytes, c.offset));
    EXPECT_EQ(landed.drive_bytes, unit_bytes(*source, c.offset, c.bytes));
    EXPECT_LE(landed.drive_bytes, widened_bytes(c.offset, c.bytes));
  }
}

TEST_P(DirectRead, CountsThePayloadThroughThePageCache) {
  const TempDir dir;
  const auto source = counting_file(dir, 200000);
  for (const std::uint64_t offset : {0ULL, 4095ULL, 99999ULL}) {
    const Landed landed = read_once(*source, offset, 50001, false);
    EXPECT_EQ(landed.payload, counting_bytes(50001, offset));
    EXPECT_EQ(landed.drive_bytes, 50001U);
  }
}

TEST_P(DirectRead, WidensBeyondTheEndOfTheFile) {
  const TempDir dir;
  for (const std::size_t file_bytes : {1UL, 4095UL, 4097UL, 16385UL, 100001UL}) {
    const auto source = counting_file(dir, file_bytes);
    for (const std::size_t bytes : {1UL, std::min<std::size_t>(file_bytes, 5000), file_bytes}) {
      const std::uint64_t offset = file_bytes - bytes;
      const Landed landed = read_once(*source, offset, bytes, true);
      EXPECT_EQ(landed.payload, counting_bytes(bytes, offset));
      const bool direct = source->direct_fd() >= 0;
      EXPECT_EQ(landed.drive_bytes, direct ? unit_bytes(*source, offset, bytes) : bytes);
    }
  }
}

TEST_P(DirectRead, FailsWhenTheFileEndsWithinThePayload) {
  const TempDir dir;
  const auto source = counting_file(dir, 10000);
  EXPECT_STREQ(error_of([&] { read_once(*source, 9990, 11, false); }).what(),
               "shard: expected 11 bytes at 9990, found 10");
  if (source->direct_fd() < 0) GTEST_SKIP() << "no direct reads in " << dir.path();
  const Error error = error_of([&] { read_once(*source, 9000, 1001, true); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  const std::uint64_t begin = 9990 / source->direct_unit() * source->direct_unit();
  EXPECT_EQ(std::string(error_of([&] { read_once(*source, 9990, 11, true); }).what()),
            "shard: expected " + std::to_string(10001 - begin) + " bytes at " +
                std::to_string(begin) + ", found " + std::to_string(10000 - begin));
  EXPECT_EQ(error_of([&] { read_once(*source, 20000, 10, true); }).code(), ErrorCode::io);
}

TEST_P(DirectRead, FailsWhenTheFileIsCutAfterOpening) {
  const TempDir dir;
  const auto source = counting_file(dir, 100000);
  std::filesystem::resize_file(dir.path("shard"), 50000);
  for (const bool direct : {false, true}) {
    EXPECT_EQ(error_of([&] { read_once(*source, 45000, 10000, direct); }).code(), ErrorCode::io);
    EXPECT_EQ(read_once(*source, 45000, 5000, direct).payload, counting_bytes(5000, 45000));
  }
}

// A source whose descriptor the system refuses to read.
class UnreadableSource final : public ByteSource {
 public:
  explicit UnreadableSource(int fd) : fd_(fd) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return 1 << 20; }
  void read(std::uint64_t /*offset*/, std::span<std::byte> /*out*/) const override {}
  int direct_fd() const override { return fd_; }

 private:
  std::string name_ = "shard";
  int fd_;
};

TEST_P(DirectRead, NamesTheSystemsReason) {
  const TempDir dir;
  const int folder = open(dir.path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(folder, 0);
  EXPECT_STREQ(error_of([&] { read_once(UnreadableSource(folder), 4096, 5000, true); }).what(),
               "shard: expected 5000 bytes at 4096, found: Is a directory");
  close(folder);
  EXPECT_STREQ(error_of([&] { read_once(UnreadableSource(1 << 20), 0, 5000, true); }).what(),
               "shard: expected 5000 bytes at 0, found: Bad file descriptor");
}

TEST_P(DirectRead, MixesDirectAndCachedPieces) {
  const TempDir dir;
  const auto source = counting_file(dir, 1 << 20);
  ReadQueue queue(with_backend({.depth = 5, .piece_bytes = 2 * kPageBytes}));
  std::vector<Buffer> buffers;
  std::vector<ReadOp> ops;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t offset = i * 20011;
    buffers.emplace_back(widened_bytes(offset, 30001), "test");
    ops.push_back({.source = source.get(),
                   .offset = offset,
                   .bytes = 30001,
                   .memory = buffers.back().data(),
                   .direct = i % 3 != 0});
  }
  queue.wait(queue.submit(ops, ReadPriority::spine), nullptr);
  for (const ReadOp& op : ops) {
    const std::byte* first = op.memory + op.offset % kPageBytes;
    EXPECT_EQ(std::vector<std::byte>(first, first + op.bytes), counting_bytes(op.bytes, op.offset));
  }
}

TEST_P(DirectRead, ReachesOffsetsOfAnySize) {
  const TempDir dir;
  const std::string path = dir.write("shard", "");
  constexpr std::uint64_t kThreeTB = 3'000'000'000'000;
  if (truncate(path.c_str(), static_cast<off_t>(kThreeTB)) != 0) {
    GTEST_SKIP() << "the file system has no sparse files of 3 TB";
  }
  const std::vector<std::uint64_t> offsets{(1ULL << 31U) - 100, (1ULL << 32U) + 12345,
                                           (1ULL << 41U) + 4095, kThreeTB - 30000};
  constexpr std::size_t kCount = 30000;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const std::uint64_t offset : offsets) {
    const std::vector<std::byte> bytes = counting_bytes(kCount, offset);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(bytes.data()), kCount);
  }
  ASSERT_TRUE(file.flush());
  const auto source = open_source(path);
  EXPECT_EQ(source->size(), kThreeTB);
  for (const std::uint64_t offset : offsets) {
    for (const bool direct : {false, true}) {
      EXPECT_EQ(read_once(*source, offset, kCount, direct).payload, counting_bytes(kCount, offset));
    }
  }
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/io/local_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/io/byte_source.h"
#include "tests/support/expect_error.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

std::string write_counting(const TempDir& dir, const std::string& name, std::size_t count) {
  const std::vector<std::byte> bytes = counting_bytes(count);
  return dir.write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string open_error(const std::string& path) {
  const Error error = error_of([&] { open_source(path); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  return error.what();
}

TEST(LocalFile, ReadsAtAnyAlignment) {
  const TempDir dir;
  const auto source = open_source(write_counting(dir, "shard.safetensors", 20000));
  EXPECT_EQ(source->name(), "shard.safetensors");
  EXPECT_EQ(source->size(), 20000U);
  for (const std::uint64_t offset : {0ULL, 1ULL, 4095ULL, 4096ULL, 12345ULL, 19999ULL}) {
    const std::size_t count = std::min<std::size_t>(5000, 20000 - offset);
    std::vector<std::byte> out(count);
    source->read(offset, out);
    EXPECT_EQ(out, counting_bytes(count, offset)) << offset;
  }
  source->read(20000, {});
}

// A source of whose two ways one is closed.
class OneWay final : public ByteSource {
 public:
  OneWay(const ByteSource& inner, bool direct) : inner_(inner), direct_(direct) {}
  const std::string& name() const override { return inner_.name(); }
  std::uint64_t size() const override { return inner_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    EXPECT_FALSE(direct_) << "read through the page cache";
    inner_.read(offset, out);
  }
  int direct_fd() const override { return direct_ ? inner_.direct_fd() : -1; }
  std::size_t direct_unit() const override { return inner_.direct_unit(); }

 private:
  const ByteSource& inner_;
  bool direct_;
};

TEST(ReadUncached, ReadsAtAnyAlignmentEitherWay) {
  const TempDir dir;
  const auto source = open_source(write_counting(dir, "shard.safetensors", 20000));
  for (const bool direct : {true, false}) {
    if (direct && source->direct_fd() < 0) continue;  // the file system refuses
    const OneWay one_way(*source, direct);
    Buffer memory;
    for (const std::uint64_t offset :
         {0ULL, 1ULL, 4095ULL, 4096ULL, 12345ULL, 19999ULL, 20000ULL}) {
      const std::size_t count = std::min<std::size_t>(5000, 20000 - offset);
      const std::span<const std::byte> got = read_uncached(one_way, offset, count, memory);
      EXPECT_EQ(std::vector(got.begin(), got.end()), counting_bytes(count, offset)) << offset;
    }
  }
}

TEST(ReadUncached, SaysWhatIsMissingOfTheBytesAskedFor) {
  const TempDir dir;
  const auto source = open_source(write_counting(dir, "shard.safetensors", 5000));
  Buffer memory;
  EXPECT_STREQ(error_of([&] { read_uncached(*source, 4950, 100, memory); }).what(),
               "shard.safetensors: expected 100 bytes at 4950, found 50");
}

TEST(LocalFile, NamesExpectedAndFoundAtItsEnd) {
  const TempDir dir;
  const auto source = open_source(write_counting(dir, "shard.safetensors", 1000));
  std::vector<std::byte> out(100);
  const Error error = error_of([&] { source->read(950, out); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_STREQ(error.what(), "shard.safetensors: expected 100 bytes at 950, found 50");
  EXPECT_STREQ(error_of([&] { source->read(1ULL << 40U, out); }).what(),
               "shard.safetensors: expected 100 bytes at 1099511627776, found 0");
}

TEST(LocalFile, NamesTheSystemsReason) {
  const TempDir dir;
  const auto source = open_source(write_counting(dir, "shard.safetensors", 1000));
  std::vector<std::byte> out(100);
  // Beyond what the system's signed offsets can say.
  const Error error = error_of([&] { source->read(1ULL << 63U, out); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_STREQ(error.what(),
               "shard.safetensors: expected 100 bytes at 9223372036854775808, found: Invalid "
               "argument");
}

TEST(LocalFile, FollowsLinks) {
  const TempDir dir;
  const std::string blob = write_counting(dir, "blob", 5000);
  std::filesystem::create_symlink(blob, dir.path("shard.safetensors"));
  const auto source = open_source(dir.path("shard.safetensors"));
  EXPECT_EQ(source->name(), "shard.safetensors");
  EXPECT_EQ(source->size(), 5000U);
}

TEST(LocalFile, SurvivesItsRemoval) {
  const TempDir dir;
  const std::string path = write_counting(dir, "shard", 5000);
  const auto source = open_source(path);
  std::filesystem::remove(path);
  std::vector<std::byte> out(5000);
  source->read(0, out);
  EXPECT_EQ(out, counting_bytes(5000));
}

TEST(OpenSource, NamesThePathAndTheReason) {
  const TempDir dir;
  EXPECT_EQ(open_error(dir.path("absent")),
            dir.path("absent") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(open_error(dir.path()),
            dir.path() + ": cannot be opened: it is a directory, expected a file");
  EXPECT_EQ(open_error(dir.write("file", "x") + "/below"),
            dir.path("file") + "/below: cannot be opened: Not a directory");
}

TEST(OpenSource, DoesNotWaitForTheWriterOfAFifo) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_error(dir.path("fifo")),
            dir.path("fifo") + ": cannot be opened: it is not a regular file");
}

TEST(OpenSource, ReportsMissingPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TempDir dir;
  const std::string path = dir.write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(open_error(path), path + ": cannot be opened: Permission denied");
}

TEST(OpenSource, ProvesDirectReadsOrSaysWhyNot) {
  const TempDir dir;
  const std::string path = write_counting(dir, "shard", 3 * kPageBytes);
  std::string refused;
  const auto source = open_source(path, &refused);
  EXPECT_NE(source->direct_fd() >= 0, !refused.empty()) << refused;
  if (source->direct_fd() < 0) GTEST_SKIP() << refused;
  const Buffer page(kPageBytes, "test");
  ASSERT_EQ(pread(source->direct_fd(), page.data(), kPageBytes, kPageBytes), kPageBytes);
  EXPECT_EQ(std::vector<std::byte>(page.data(), page.data() + kPageBytes),
            counting_bytes(kPageBytes, kPageBytes));
}

TEST(OpenSource, OpensFilesBelowAPage) {
  const TempDir dir;
  for (const std::size_t count : {0UL, 1UL, 4095UL}) {
    const auto source = open_source(write_counting(dir, "small", count));
    EXPECT_EQ(source->size(), count);
    std::vector<std::byte> out(count);
    source->read(0, out);
    EXPECT_EQ(out, counting_bytes(count));
  }
}

TEST(OpenSource, NamesTheFileSystemThatRefuses) {
  const std::string proc = "/proc/self/status";
  if (!std::filesystem::exists(proc)) GTEST_SKIP() << "no " << proc;
  std::string refused;
  const auto source = open_source(proc, &refused);
  EXPECT_LT(source->direct_fd(), 0);
  EXPECT_EQ(refused, "status: file system type 0x00009fa0 refuses direct reads: Invalid argument");
}

TEST(ReadFile, AcceptsAnEndWithinAWidenedRead) {
  const TempDir dir;
  const std::string path = write_counting(dir, "shard", 5000);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::vector<std::byte> out(2 * kPageBytes);
  read_file(fd, "shard", {.offset = 0, .out = out, .needed = 5000, .unit = kPageBytes});
  out.resize(5000);
  EXPECT_EQ(out, counting_bytes(5000));
  out.resize(2 * kPageBytes);
  EXPECT_STREQ(error_of([&] {
                 read_file(fd, "shard",
                           {.offset = 0, .out = out, .needed = 5001, .unit = kPageBytes});
               }).what(),
               "shard: expected 5001 bytes at 0, found 5000");
  close(fd);
}

}  // namespace
}  // namespace penstock

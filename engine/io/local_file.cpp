// SPDX-License-Identifier: Apache-2.0
#include "engine/io/local_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/mount.h>
#include <sys/param.h>
#else
#include <sys/vfs.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

std::string system_reason(int error) {
  return std::generic_category().message(error);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// One read, -1 with errno set on failure.
ssize_t read_once(int fd, std::uint64_t offset, std::span<std::byte> out) {
  for (;;) {
    const ssize_t n =
        pread(fd, out.data(), std::min(out.size(), kMaxReadBytes), static_cast<off_t>(offset));
    if (n >= 0 || errno != EINTR) return n;
  }
}

// A descriptor that bypasses the page cache, -1 with errno set where the file system refuses.
int open_direct(const std::string& path) {
#if defined(__APPLE__)
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fcntl(fd, F_NOCACHE, 1) == 0) return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
#else
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
}

// Drives that take sectors of 512 bytes read less around an extent that begins off a page.
constexpr std::size_t kSectorBytes = 512;

// Reads one unit at the unit's own offset, so that offset, memory and length show what they must be
// multiples of. File systems accept the flag and fail the transfer, or the reverse of it: only a
// transfer proves. Returns 0 or the errno of the refusal.
int probe_direct(int fd, std::uint64_t file_bytes, std::size_t unit, std::uint64_t offset) {
  const Buffer page(kPageBytes, "direct read probe");
  const std::uint64_t left = file_bytes - std::min(file_bytes, offset);
  const auto expected = static_cast<ssize_t>(std::min<std::uint64_t>(unit, left));
  const ssize_t n = read_once(fd, offset, {page.data() + offset, unit});
  if (n < 0) return errno;
  return n == expected ? 0 : EIO;
}

class LocalFile final : public ByteSource {
 public:
  LocalFile(const std::string& path, std::string* direct_refused);

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    read_file(fd_.get(), name_, {.offset = offset, .out = out, .needed = out.size(), .unit = 1});
  }
  int direct_fd() const override { return direct_fd_.get(); }
  std::size_t direct_unit() const override { return direct_unit_; }
  std::uint64_t drive() const override { return drive_; }

 private:
  void prepare_direct(const std::string& path, std::string* direct_refused);

  std::string name_;
  std::uint64_t size_ = 0;
  std::uint64_t drive_ = 0;
  Descriptor fd_{-1};
  Descriptor direct_fd_{-1};
  std::size_t direct_unit_ = kPageBytes;
};

LocalFile::LocalFile(const std::string& path, std::string* direct_refused)
    : name_(path.substr(path.rfind('/') + 1)) {
  const auto fail = [&](const std::string& reason) {
    throw Error(ErrorCode::model, path + ": cannot be opened: " + reason);
  };
  // O_NONBLOCK: a FIFO would otherwise wait for a writer; it changes nothing for a regular file.
  fd_ = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd_.get() < 0) fail(system_reason(errno));
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) fail(system_reason(errno));
  if (S_ISDIR(info.st_mode)) fail("it is a directory, expected a file");
  if (!S_ISREG(info.st_mode)) fail("it is not a regular file");
  size_ = static_cast<std::uint64_t>(info.st_size);
  drive_ = static_cast<std::uint64_t>(info.st_dev);
  prepare_direct(path, direct_refused);
}

void LocalFile::prepare_direct(const std::string& path, std::string* direct_refused) {
  Descriptor direct(open_direct(path));
  const int refusal = direct.get() < 0 ? errno : probe_direct(direct.get(), size_, kPageBytes, 0);
  if (refusal == 0) {
    const bool sectors = probe_direct(direct.get(), size_, kSectorBytes, kSectorBytes) == 0;
    direct_unit_ = sectors ? kSectorBytes : kPageBytes;
    direct_fd_ = std::move(direct);
  } else if (direct_refused != nullptr) {
    *direct_refused = name_ + ": " + file_system_of(fd_.get()) +
                      " refuses direct reads: " + system_reason(refusal);
  }
}

}  // namespace

std::string file_system_of(int fd) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return "the file system";
#if defined(__APPLE__)
  return info.f_fstypename;
#else
  constexpr std::array<std::pair<std::uint32_t, const char*>, 15> kNames{{
      {0xEF53, "ext4"},
      {0x58465342, "xfs"},
      {0x9123683E, "btrfs"},
      {0xF2F52010, "f2fs"},
      {0x2FC12FC1, "zfs"},
      {0x01021994, "tmpfs"},
      {0x858458F6, "ramfs"},
      {0x794C7630, "overlay"},
      {0x6969, "nfs"},
      {0xFF534D42, "cifs"},
      {0xFE534D42, "smb2"},
      {0x65735546, "fuse"},
      {0x01021997, "9p"},
      {0x4D44, "vfat"},
      {0x2011BAB0, "exfat"},
  }};
  const auto type = static_cast<std::uint32_t>(info.f_type);
  for (const auto& [number, name] : kNames) {
    if (number == type) return name;
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "file system type 0x%08x", type);
  return text.data();
#endif
}

std::unique_ptr<ByteSource> open_local_file(const std::string& path, std::string* direct_refused) {
  return std::make_unique<LocalFile>(path, direct_refused);
}

std::string count_read(const std::string& name, const FileRead& read, std::int64_t result,
                       std::size_t& found) {
  const auto failure = [&](const std::string& problem) {
    return name + ": expected " + std::to_string(read.needed) + " bytes at " +
           std::to_string(read.offset) + ", " + problem;
  };
  if (result < 0) return failure("found: " + system_reason(static_cast<int>(-result)));
  found += static_cast<std::size_t>(result);
  // A direct read may only go on from the border of a unit; off it, the file has ended.
  const bool ended = result == 0 || static_cast<std::size_t>(result) % read.unit != 0;
  if (ended && found < read.needed) return failure("found " + std::to_string(found));
  return {};
}

void read_file(int fd, const std::string& name, const FileRead& read) {
  std::size_t found = 0;
  while (found < read.needed) {
    const ssize_t n = read_once(fd, read.offset + found, read.out.subspan(found));
    const std::string error = count_read(name, read, n < 0 ? -errno : n, found);
    if (!error.empty()) throw Error(ErrorCode::io, error);
  }
}

std::span<std::byte> read_uncached(const ByteSource& source, std::uint64_t offset,
                                   std::size_t bytes, Buffer& memory) {
  const std::size_t unit = source.direct_unit();
  const std::size_t before = offset % unit;
  const std::size_t widened = round_up(before + bytes, unit);
  if (memory.size() < widened) memory = Buffer(widened, "reading");
  if (const int fd = source.direct_fd(); fd >= 0) {
    try {
      read_file(fd, source.name(),
                {.offset = offset - before,
                 .out = {memory.data(), widened},
                 .needed = before + bytes,
                 .unit = unit});
      return {memory.data() + before, bytes};
    } catch (const Error&) {
      // There may be another copy; if not, read() says what is wrong with the bytes asked for.
    }
  }
  source.read(offset, {memory.data(), bytes});
  return {memory.data(), bytes};
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/io/partial_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/io/local_file.h"

namespace penstock {

PartialFile::PartialFile(const std::string& path)
    : path_(path), partial_path_(path + kPartialSuffix) {
  fd_ = open(partial_path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("created", errno);
}

PartialFile::~PartialFile() {
  if (fd_ < 0) return;
  close(fd_);
  std::remove(partial_path_.c_str());
}

void PartialFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min(bytes.size(), kMaxReadBytes),
                             static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("written", n < 0 ? errno : ENOSPC);
#if defined(__linux__)
    // The drive writes while more is made ready; sync() finds little left.
    sync_file_range(fd_, static_cast<off_t>(offset), n, SYNC_FILE_RANGE_WRITE);
#endif
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void PartialFile::sync() {
  if (fsync(fd_) != 0) fail("written", errno);
#if defined(POSIX_FADV_DONTNEED)
  posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
#endif
}

void PartialFile::commit() {
  if (fsync(fd_) != 0) fail("written", errno);
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) fail("renamed", errno);
  close(fd_);
  fd_ = -1;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("synced in its folder", errno);
  // Some network file systems do not sync folders and need not.
  const int reason = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  if (reason != 0) fail("synced in its folder", reason);
}

void PartialFile::fail(const char* action, int system_error) const {
  throw Error(ErrorCode::io, path_ + ": cannot be " + action + ": " +
                                 std::generic_category().message(system_error));
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/io/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kChunkBytes = 16UL << 20U;

[[noreturn]] void fail(const std::string& dir, int error) {
  throw Error(ErrorCode::io, dir + ": no scratch file can be written there: " +
                                 std::generic_category().message(error));
}

// Bytes that no drive or file system compresses or has already.
void fill(std::vector<std::uint64_t>& words, std::uint64_t& state) {
  for (std::uint64_t& word : words) {
    state += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    word = z ^ (z >> 31U);
  }
}

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& dir)
      : dir_(dir), path_(dir + "/penstock-scratch-XXXXXX"), fd_(mkstemp(path_.data())) {
    if (fd_ < 0) fail(dir_, errno);
  }
  ~ScratchFile() {
    if (named_) unlink(path_.c_str());
    close(fd_);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Gives the file its size, opens it, and takes its name away.
  std::unique_ptr<ByteSource> open(std::uint64_t bytes) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail(dir_, errno);
    std::unique_ptr<ByteSource> source = open_source(path_);
    unlink(path_.c_str());
    named_ = false;
    return source;
  }

  void write(std::uint64_t offset, const std::byte* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t n = pwrite(fd_, bytes, count, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(dir_, n < 0 ? errno : EIO);
      bytes += n;
      offset += static_cast<std::uint64_t>(n);
      count -= static_cast<std::size_t>(n);
    }
  }

  // What was written lies on the drive, and nowhere else.
  void settle() {
    if (fsync(fd_) != 0) fail(dir_, errno);
#if defined(POSIX_FADV_DONTNEED)
    const int error = posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    if (error != 0) fail(dir_, error);
#endif
  }

 private:
  std::string dir_;
  std::string path_;
  int fd_;
  bool named_ = true;
};

}  // namespace

std::unique_ptr<ByteSource> write_scratch_file(const std::string& dir, std::uint64_t bytes,
                                               const ScratchHooks& hooks) {
  ScratchFile file(dir);
  std::unique_ptr<ByteSource> source = file.open(bytes);
  std::vector<std::uint64_t> words(kChunkBytes / sizeof(std::uint64_t));
  std::uint64_t state = 0;
  for (std::uint64_t offset = 0; offset < bytes; offset += kChunkBytes) {
    if (hooks.stop != nullptr && hooks.stop->stop_requested()) {
      throw Error(ErrorCode::cancelled, "the measurement was stopped");
    }
    fill(words, state);
    const auto count = static_cast<std::size_t>(std::min(kChunkBytes, bytes - offset));
    file.write(offset, reinterpret_cast<const std::byte*>(words.data()), count);
    file.settle();  // as we go: gigabytes at once would push everything else out of memory
    if (hooks.progress) hooks.progress(offset + count);
  }
  return source;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/direct_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kPieceBytes = 16U << 20U;

[[noreturn]] void fail(const std::string& path, const char* action) {
  throw Error(ErrorCode::io, path + ": " + action + " failed: " + std::strerror(errno));
}

class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    unlink(path_.c_str());  // a link is replaced, not followed
#ifdef O_DIRECT
    descriptor_ = open(path_.c_str(), kFlags | O_DIRECT, 0644);
#endif
    if (descriptor_ < 0) descriptor_ = open(path_.c_str(), kFlags, 0644);
    if (descriptor_ < 0) fail(path_, "opening");
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    close(descriptor_);
  }

  void write(const std::byte* bytes, std::size_t n, std::uint64_t offset) {
    while (n > 0) {
      const ssize_t done = pwrite(descriptor_, bytes, n, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail(path_, "writing");
      bytes += done;
      offset += static_cast<std::uint64_t>(done);
      n -= static_cast<std::size_t>(done);
    }
  }

  // Cuts what the last whole page has too much.
  void finish(std::uint64_t bytes) {
    if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail(path_, "cutting");
    if (fsync(descriptor_) != 0) fail(path_, "syncing");
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

void write_direct(const std::string& path, std::uint64_t bytes, const FillBytes& fill) {
  File file(path);
  const Buffer buffers[2] = {Buffer(kPieceBytes, "pieces of a file"),
                             Buffer(kPieceBytes, "pieces of a file")};
  std::future<void> writing;
  int turn = 0;
  for (std::uint64_t begin = 0; begin < bytes; begin += kPieceBytes, turn ^= 1) {
    std::byte* const piece = buffers[turn].data();
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, bytes - begin));
    fill(begin, {piece, n});
    if (writing.valid()) writing.get();
    writing = std::async(std::launch::async, [&file, piece, n, begin] {
      file.write(piece, round_up(n, kPageBytes), begin);
    });
  }
  if (writing.valid()) writing.get();
  file.finish(bytes);
}

}  // namespace penstock

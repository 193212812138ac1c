// SPDX-License-Identifier: Apache-2.0
#include "server/commands/input.h"

#include <sys/select.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/base/error.h"

namespace penstock {
namespace {

std::string read_all(std::FILE* file, const std::string& what) {
  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    const std::size_t n = std::fread(block.data(), 1, block.size(), file);
    if (n == 0) break;
    text.append(block.data(), n);
  }
  if (std::ferror(file) != 0) {
    if (errno == EINTR) throw Error(ErrorCode::cancelled, "interrupted");
    throw Error(ErrorCode::io, what + ": " + std::strerror(errno));
  }
  return text;
}

[[noreturn]] void fail_stdin() {
  throw Error(ErrorCode::io, std::string("cannot read standard input: ") + std::strerror(errno));
}

// True when a read would not wait; false after a tenth of a second, or when a signal came. A signal
// between a look at its flag and a read that waits would be noticed by the next line only.
// select(), because poll() of macOS does not take terminals.
bool wait_for_stdin() {
  fd_set readable;
  FD_ZERO(&readable);
  FD_SET(STDIN_FILENO, &readable);
  timeval patience = {.tv_sec = 0, .tv_usec = 100'000};
  const int ready = ::select(STDIN_FILENO + 1, &readable, nullptr, nullptr, &patience);
  if (ready < 0 && errno != EINTR) fail_stdin();
  return ready > 0;
}

}  // namespace

std::string read_stdin(const std::string& what) {
  return read_all(stdin, what + ": cannot read standard input");
}

std::string read_text(const std::string& path) {
  if (path == "-") return read_all(stdin, "cannot read standard input");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) throw Error(ErrorCode::io, path + ": cannot read: " + std::strerror(errno));
  return read_all(file.get(), path + ": cannot read");
}

LineReader::End LineReader::next(std::string* line, const std::function<bool()>& is_interrupted) {
  std::array<char, 4096> block;
  for (;;) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos || (closed_ && !buffer_.empty())) {
      *line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      if (line->ends_with('\r')) line->pop_back();
      return End::line;
    }
    if (closed_) return End::closed;
    if (is_interrupted()) {
      buffer_.clear();
      return End::interrupted;
    }
    if (!wait_for_stdin()) continue;
    const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_stdin();
    closed_ = n == 0;
    buffer_.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace penstock

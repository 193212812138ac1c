// SPDX-License-Identifier: Apache-2.0
#include "server/commands/input.h"

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

LineReader::End LineReader::next(std::string* line) {
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
    const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
    if (n < 0 && errno == EINTR) {
      buffer_.clear();
      return End::interrupted;
    }
    if (n < 0) {
      throw Error(ErrorCode::io,
                  std::string("cannot read standard input: ") + std::strerror(errno));
    }
    closed_ = n == 0;
    buffer_.append(block.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace penstock

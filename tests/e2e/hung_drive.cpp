// SPDX-License-Identifier: Apache-2.0
//
// Loaded before the C library (LD_PRELOAD), it makes a drive that never answers: reads of the file
// named by HUNG_FILE, without folder, do not return.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool hangs(int fd) {
  const char* file = std::getenv("HUNG_FILE");
  if (file == nullptr) return false;
  std::array<char, 4096> path;
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t bytes = readlink(link.c_str(), path.data(), path.size());
  if (bytes < 0) return false;
  const std::string_view target(path.data(), static_cast<std::size_t>(bytes));
  return target.substr(target.rfind('/') + 1) == file;
}

ssize_t read_at(int fd, void* out, std::size_t bytes, off_t offset) {
  while (hangs(fd)) pause();
  return syscall(SYS_pread64, fd, out, bytes, offset);
}

}  // namespace

// The C library has the one function under two names.
extern "C" ssize_t pread(int fd, void* out, std::size_t bytes, off_t offset) {
  return read_at(fd, out, bytes, offset);
}

extern "C" ssize_t pread64(int fd, void* out, std::size_t bytes, off_t offset) {
  return read_at(fd, out, bytes, offset);
}

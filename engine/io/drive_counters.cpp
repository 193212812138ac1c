// SPDX-License-Identifier: Apache-2.0
#include "engine/io/drive_counters.h"

#include <unistd.h>
#if defined(__APPLE__)
#include <libproc.h>
#include <sys/resource.h>
#else
#include <sys/sysmacros.h>
#endif

#include <fstream>
#include <iterator>
#include <sstream>

namespace penstock {
namespace {

#if !defined(__APPLE__)
std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
#endif

}  // namespace

std::optional<DriveCounter> parse_diskstats(std::string_view text, unsigned major, unsigned minor) {
  constexpr std::uint64_t kSectorBytes = 512;  // of the statistics, whatever the drive's
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    unsigned line_major = 0;
    unsigned line_minor = 0;
    std::string name;
    std::uint64_t reads = 0;
    std::uint64_t merged = 0;
    std::uint64_t sectors = 0;
    if (fields >> line_major >> line_minor >> name >> reads >> merged >> sectors &&
        line_major == major && line_minor == minor) {
      return DriveCounter{.name = name, .read_bytes = sectors * kSectorBytes};
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_process_io(std::string_view text) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    std::uint64_t bytes = 0;
    if (fields >> name >> bytes && name == "read_bytes:") return bytes;
  }
  return std::nullopt;
}

#if defined(__APPLE__)

std::optional<DriveCounter> drive_counter(std::uint64_t /*drive*/) {
  return std::nullopt;
}

std::optional<std::uint64_t> process_read_bytes() {
  rusage_info_v2 info{};
  auto* buffer = reinterpret_cast<rusage_info_t*>(&info);
  if (proc_pid_rusage(getpid(), RUSAGE_INFO_V2, buffer) != 0) return std::nullopt;
  return info.ri_diskio_bytesread;
}

#else

std::optional<DriveCounter> drive_counter(std::uint64_t drive) {
  return parse_diskstats(text_of("/proc/diskstats"), major(drive), minor(drive));
}

std::optional<std::uint64_t> process_read_bytes() {
  return parse_process_io(text_of("/proc/self/io"));
}

#endif

}  // namespace penstock

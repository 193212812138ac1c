// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system_memory.h"

#if defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#else
#include <unistd.h>
#endif

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30U;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The digits at the start of `text`, taken off it.
std::optional<std::uint64_t> take_integer(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::optional<std::uint64_t> read_limit(const std::string& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) return std::nullopt;
  std::string_view rest = *text;
  const std::optional<std::uint64_t> limit = take_integer(rest);  // "max" has no digits
  // cgroup v1 says "no limit" by the largest multiple of the page below 2^63.
  const bool unlimited = limit && *limit > std::numeric_limits<std::int64_t>::max() / 2;
  return unlimited ? std::nullopt : limit;
}

void keep_tightest(std::optional<std::uint64_t>& tightest, std::optional<std::uint64_t> limit) {
  if (limit && (!tightest || *limit < *tightest)) tightest = limit;
}

// The names of one version of cgroups.
struct CgroupFiles {
  std::array<const char*, 2> limits;
  const char* usage;
  const char* file_cache;  // in memory.stat: what can be dropped
};
constexpr CgroupFiles kVersion1{{"memory.limit_in_bytes", "memory.limit_in_bytes"},
                                "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

std::optional<std::uint64_t> limit_of(const std::string& group, const CgroupFiles& files) {
  std::optional<std::uint64_t> tightest;
  for (const char* file : files.limits) keep_tightest(tightest, read_limit(group + "/" + file));
  return tightest;
}

// "inactive_file 12345" among the lines of memory.stat.
std::uint64_t droppable(const std::string& group, const CgroupFiles& files) {
  const std::string text = read_text(group + "/memory.stat").value_or("");
  std::string_view rest = text;
  const std::string name = std::string(files.file_cache) + " ";
  while (!rest.empty()) {
    std::string_view line = take_line(rest);
    if (line.substr(0, name.size()) != name) continue;
    line.remove_prefix(name.size());
    return take_integer(line).value_or(0);
  }
  return 0;
}

std::optional<std::uint64_t> headroom_of(const std::string& group, const CgroupFiles& files) {
  const std::optional<std::uint64_t> limit = limit_of(group, files);
  const std::optional<std::uint64_t> usage = read_limit(group + "/" + files.usage);
  if (!limit || !usage) return std::nullopt;
  const std::uint64_t used = *usage - std::min(*usage, droppable(group, files));
  return *limit - std::min(*limit, used);
}

using MeasureGroup = std::optional<std::uint64_t>(const std::string& group,
                                                  const CgroupFiles& files);

// The least over the group at `path` below `mount` and all groups above it. In a container the path
// may not exist below its mount: the root, which is then the container's own group, still counts.
std::optional<std::uint64_t> walk_up(const std::string& mount, std::string_view path,
                                     const CgroupFiles& files, MeasureGroup* measure_group) {
  std::optional<std::uint64_t> tightest;
  std::string_view group = path == "/" ? "" : path;
  for (;;) {
    keep_tightest(tightest, measure_group(mount + std::string(group), files));
    if (group.empty()) return tightest;
    const std::size_t slash = group.rfind('/');
    group = group.substr(0, slash == std::string_view::npos ? 0 : slash);
  }
}

bool names_memory_controller(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::string_view name = controllers.substr(0, controllers.find(','));
    if (name == "memory") return true;
    controllers.remove_prefix(std::min(controllers.size(), name.size() + 1));
  }
  return false;
}

#if defined(__APPLE__)

SystemMemory measure() {
  SystemMemory memory{};
  std::size_t length = sizeof memory.total_bytes;
  if (sysctlbyname("hw.memsize", &memory.total_bytes, &length, nullptr, 0) != 0) {
    throw Error(ErrorCode::memory, "hw.memsize: the system does not say how much memory it has");
  }
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const mach_port_t host = mach_host_self();
  const kern_return_t result =
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count);
  mach_port_deallocate(mach_task_self(), host);
  // Inactive pages hold most of the file cache; purgeable ones may be dropped at any time.
  const std::uint64_t free_pages =
      std::uint64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count;
  memory.available_bytes = result == KERN_SUCCESS
                               ? std::min(memory.total_bytes, free_pages * vm_kernel_page_size)
                               : memory.total_bytes / 2;
  return memory;
}

#else

// "MemTotal:       131072 kB" in /proc/meminfo.
std::optional<std::uint64_t> meminfo_bytes(std::string_view meminfo, std::string_view name) {
  while (!meminfo.empty()) {
    std::string_view line = take_line(meminfo);
    if (line.substr(0, name.size()) != name || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    const std::optional<std::uint64_t> kib = take_integer(line);
    if (kib) return *kib * 1024;
  }
  return std::nullopt;
}

SystemMemory measure() {
  const std::string meminfo = read_text("/proc/meminfo").value_or("");
  const auto total = meminfo_bytes(meminfo, "MemTotal");
  const auto available = meminfo_bytes(meminfo, "MemAvailable");
  if (!total || !available) {
    throw Error(ErrorCode::memory, "/proc/meminfo: MemTotal or MemAvailable is missing");
  }
  const std::string membership = read_text("/proc/self/cgroup").value_or("");
  return {.total_bytes = *total,
          .available_bytes = *available,
          .cgroup_limit_bytes = cgroup_limit(membership, "/sys/fs/cgroup")};
}

#endif

std::uint64_t unit_bytes(char letter) {
  switch (letter) {
    case 'k':
    case 'K': return 1ULL << 10U;
    case 'm':
    case 'M': return 1ULL << 20U;
    case 'g':
    case 'G': return 1ULL << 30U;
    case 't':
    case 'T': return 1ULL << 40U;
    default: return 0;
  }
}

// "", "B", "G", "GB", "GiB" in any case to bytes; 0 when it is none of them.
std::uint64_t take_unit(std::string_view text) {
  const auto is = [](char c, char lower) { return (c | 0x20) == lower; };
  if (text.empty() || (text.size() == 1 && is(text[0], 'b'))) return 1;
  const std::uint64_t unit = unit_bytes(text[0]);
  text.remove_prefix(1);
  const bool ends_well = text.empty() || (text.size() == 1 && is(text[0], 'b')) ||
                         (text.size() == 2 && is(text[0], 'i') && is(text[1], 'b'));
  return ends_well ? unit : 0;
}

// The least that `measure_group` finds over all groups of the process.
std::optional<std::uint64_t> tightest_group(std::string_view membership, const std::string& mount,
                                            MeasureGroup* measure_group) {
  std::optional<std::uint64_t> tightest;
  while (!membership.empty()) {
    const std::string_view line = take_line(membership);  // "0::/a/b" or "4:memory:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string_view::npos ? first : first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      keep_tightest(tightest, walk_up(mount, path, kVersion2, measure_group));
    } else if (names_memory_controller(controllers)) {
      keep_tightest(tightest, walk_up(mount + "/memory", path, kVersion1, measure_group));
    }
  }
  return tightest;
}

#if defined(__APPLE__)

MemoryUse measure_use() {
  task_vm_info_data_t task{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  if (task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&task), &count) !=
      KERN_SUCCESS) {
    throw Error(ErrorCode::memory, "the system does not say how much memory this process holds");
  }
  return {.available_bytes = measure().available_bytes,
          .held_bytes = task.phys_footprint,
          .stalled_share = 0};
}

#else

// The second number of /proc/self/statm: resident pages.
std::uint64_t resident_bytes() {
  const std::string statm = read_text("/proc/self/statm").value_or("");
  std::string_view rest = statm;
  const bool has_size = take_integer(rest).has_value() && rest.starts_with(' ');
  if (has_size) rest.remove_prefix(1);
  const std::optional<std::uint64_t> pages = has_size ? take_integer(rest) : std::nullopt;
  if (!pages) throw Error(ErrorCode::memory, "/proc/self/statm: no resident pages are named");
  return *pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

MemoryUse measure_use() {
  const std::string membership = read_text("/proc/self/cgroup").value_or("");
  const auto headroom = cgroup_headroom(membership, "/sys/fs/cgroup");
  const std::uint64_t available = measure().available_bytes;
  return {.available_bytes = headroom ? std::min(available, *headroom) : available,
          .held_bytes = resident_bytes(),
          .stalled_share = stalled_share(read_text("/proc/pressure/memory").value_or(""))};
}

#endif

}  // namespace

std::optional<std::uint64_t> cgroup_limit(std::string_view membership, const std::string& mount) {
  return tightest_group(membership, mount, limit_of);
}

std::optional<std::uint64_t> cgroup_headroom(std::string_view membership,
                                             const std::string& mount) {
  return tightest_group(membership, mount, headroom_of);
}

double stalled_share(std::string_view pressure) {
  constexpr std::string_view kName = "some avg10=";
  const std::size_t at = pressure.find(kName);
  if (at == std::string_view::npos) return 0;
  // Percent with two decimals.
  pressure.remove_prefix(at + kName.size());
  const std::uint64_t whole = take_integer(pressure).value_or(0);
  if (!pressure.starts_with('.')) return static_cast<double>(whole) / 100;
  pressure.remove_prefix(1);
  return (static_cast<double>(whole) +
          static_cast<double>(take_integer(pressure).value_or(0)) / 100) /
         100;
}

std::string lock_obstacle(std::uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= bytes) {
    return {};
  }
  // A process with the privilege may pass the limit: only trying tells.
  if (Buffer(static_cast<std::size_t>(limit.rlim_cur) + kPageBytes, "lock probe").lock() == 0) {
    return {};
  }
  return "RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) + " bytes, " +
         std::to_string(bytes) + " are needed (ulimit -l, LimitMEMLOCK= in a unit file)";
}

MemoryUse memory_use() {
  return measure_use();
}

SystemMemory system_memory() {
  return measure();
}

std::uint64_t default_memory_budget(const SystemMemory& memory) {
  const auto three_quarters = [](std::uint64_t bytes) { return bytes / 4 * 3 + bytes % 4 * 3 / 4; };
  std::uint64_t budget = three_quarters(memory.total_bytes);
  if (memory.cgroup_limit_bytes) {
    budget = std::min(budget, three_quarters(*memory.cgroup_limit_bytes));
  }
  const std::uint64_t spare = memory.available_bytes > kGiB ? memory.available_bytes - kGiB : 0;
  return std::min(budget, spare);
}

std::optional<std::uint64_t> parse_byte_size(std::string_view text) {
  // Six digits of a fraction keep fraction * 1 TiB below 2^63.
  constexpr std::size_t kMaxFractionDigits = 6;
  const std::optional<std::uint64_t> whole = take_integer(text);
  if (!whole) return std::nullopt;

  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    const std::size_t before = text.size();
    const std::optional<std::uint64_t> digits = take_integer(text);
    const std::size_t count = before - text.size();
    if (!digits || count > kMaxFractionDigits) return std::nullopt;
    fraction = *digits;
    for (std::size_t i = 0; i < count; ++i) scale *= 10;
  }

  const std::uint64_t unit = take_unit(text);
  if (unit == 0 || (unit == 1 && scale != 1)) return std::nullopt;  // no half bytes
  if (*whole > std::numeric_limits<std::uint64_t>::max() / unit) return std::nullopt;
  return *whole * unit + fraction * unit / scale;
}

}  // namespace penstock

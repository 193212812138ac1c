// SPDX-License-Identifier: Apache-2.0
//
// What the machine has of memory, cgroup limits included. Plain functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

struct SystemMemory {
  std::uint64_t total_bytes;                        // RAM of the machine
  std::uint64_t available_bytes;                    // what can be used without swapping
  std::optional<std::uint64_t> cgroup_limit_bytes;  // the tightest limit above this process
};

SystemMemory system_memory();  // throws Error(memory) when the system does not say

// The tightest memory limit of the groups that `membership` (the text of /proc/self/cgroup) names
// and of those above them, v1 or v2, as found below `mount`; nullopt without a limit.
std::optional<std::uint64_t> cgroup_limit(std::string_view membership, const std::string& mount);

// min(75 % of RAM, 75 % of the tightest cgroup limit, available - 1 GiB), at least 0.
std::uint64_t default_memory_budget(const SystemMemory& memory);

// What changes while we run.
struct MemoryUse {
  std::uint64_t available_bytes;  // that this process may still take: of the machine, and below the
                                  // limits of its cgroups
  std::uint64_t held_bytes;       // resident memory of this process
  double stalled_share;           // of the last ten seconds: some process waited for memory; 0
                                  // where the system does not say
};
MemoryUse memory_use();  // throws Error(memory) when the system does not say

// Whether this process may lock `bytes` of memory into RAM: empty, or what stands against it, with
// the limit's name and value.
std::string lock_obstacle(std::uint64_t bytes);

// What the groups' limits leave: the least over them of limit - usage + file cache that can be
// dropped; nullopt without a limit. Arguments as of cgroup_limit.
std::optional<std::uint64_t> cgroup_headroom(std::string_view membership, const std::string& mount);

// The share of "some avg10=1.23" in the text of /proc/pressure/memory, 0 when there is none.
double stalled_share(std::string_view pressure);

// "12G", "1.5GiB", "800mb", "4096" to bytes: digits, up to six digits after a point, then nothing
// or B (bytes) or K, M, G, T with B or iB after it, all units of 1024, in any case, without blanks.
// nullopt when malformed or beyond 64 bits.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// What the machine has: memory and cores, cgroup limits included. Plain functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

struct SystemMemory {
  std::uint64_t total_bytes;                        // RAM of the machine
  std::uint64_t available_bytes;                    // what can be used without swapping
  std::optional<std::uint64_t> cgroup_limit_bytes;  // the tightest limit above this process
};

SystemMemory system_memory();

// min(75 % of RAM, 75 % of the tightest cgroup limit, available - 1 GiB), at least 0.
std::uint64_t default_memory_budget(const SystemMemory& memory);

int available_cores();  // that this process may run on, at least 1

// "12G", "1.5GiB", "800M", "4096" (bytes) to bytes, units of 1024; nullopt when malformed.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);

}  // namespace penstock

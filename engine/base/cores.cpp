// SPDX-License-Identifier: Apache-2.0
#include "engine/base/cores.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cstddef>
#include <thread>

namespace penstock {

#if defined(__linux__)

std::vector<int> bindable_cores() {
  // The set must hold every core of the machine: the call fails with EINVAL until it does.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) != 0) continue;
    std::vector<int> cores;
    for (int core = 0; core < static_cast<int>(8 * bytes); ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.data())) cores.push_back(core);
    }
    return cores;
  }
  return {};
}

void bind_to_cores(const std::vector<int>& cores) {
  const auto highest = static_cast<std::size_t>(*std::ranges::max_element(cores));
  std::vector<cpu_set_t> mask(highest / (8 * sizeof(cpu_set_t)) + 1);
  const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, mask.data());
  (void)sched_setaffinity(0, bytes, mask.data());  // a matter of speed alone
}

#else

std::vector<int> bindable_cores() {
  return {};
}

void bind_to_cores(const std::vector<int>& /*cores*/) {}

#endif

int available_cores() {
  const auto cores = static_cast<int>(bindable_cores().size());
  return cores > 0 ? cores : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace penstock

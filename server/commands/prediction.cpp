// SPDX-License-Identifier: Apache-2.0
#include "server/commands/prediction.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/cores.h"

namespace penstock {
namespace {

constexpr std::size_t kRamBytes = 512UL << 20U;
constexpr int kRounds = 5;

std::uint64_t sum_words(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kLanes = 8;  // enough additions at once to wait for memory alone
  std::uint64_t lanes[kLanes] = {};
  std::uint64_t words[kLanes];
  for (std::size_t i = 0; i + sizeof words <= bytes; i += sizeof words) {
    std::memcpy(words, data + i, sizeof words);
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += words[lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double predict_token_s(const ModelPlan& plan, std::uint64_t budget_bytes, double spine_share,
                       const MachineRates& rates) {
  MemoryNeeds needs = plan.needs;
  for (std::uint64_t& bytes : needs.spine_segments) {
    bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * spine_share);
  }
  MemoryOptions options = plan.options;
  options.budget_bytes = budget_bytes;
  const MemoryPlan memory = plan_memory(needs, options);
  if (!memory.fits) return -1;

  const auto all_spine = static_cast<double>(memory.all_spine_bytes);
  const double windows =
      memory.spine_bytes < memory.all_spine_bytes
          ? 2.0 * static_cast<double>(*std::ranges::max_element(needs.spine_segments))
          : 0;
  const double pinned = static_cast<double>(memory.spine_bytes) - windows;
  const double cached = needs.total_experts > 0 ? static_cast<double>(memory.expert_slots) /
                                                      static_cast<double>(needs.total_experts)
                                                : 0;
  const double experts = static_cast<double>(plan.moe_layers) * plan.top_k *
                         static_cast<double>(plan.expert_bytes) * (1 - cached);
  return (all_spine - pinned + experts) / (rates.drive_gb_per_s * 1e9) +
         pinned / (rates.ram_gb_per_s * 1e9);
}

double measure_ram_gb_per_s() {
  const auto threads = static_cast<std::size_t>(available_cores());
  const Buffer memory(kRamBytes, "memory to read");
  std::memset(memory.data(), 1, memory.size());
  std::atomic<std::uint64_t> sink{0};  // or the compiler would leave the reads out
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> readers;
    for (std::size_t i = 0; i < threads; ++i) {
      const std::size_t share = kRamBytes / threads;
      readers.emplace_back([&, i, share] { sink += sum_words(memory.data() + i * share, share); });
    }
    for (std::thread& reader : readers) reader.join();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kRamBytes) / 1e9 / passed.count());
  }
  return best;
}

}  // namespace penstock

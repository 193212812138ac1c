// SPDX-License-Identifier: Apache-2.0
#include "server/commands/prediction.h"

#include <algorithm>

namespace penstock {

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

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// How long a token would take on a machine, from what its drive and its memory deliver. Arithmetic
// of the memory plan; plain functions.
#pragma once

#include <cstdint>

#include "engine/model/load_model.h"

namespace penstock {

struct MachineRates {
  double drive_gb_per_s;
  double ram_gb_per_s;
};

// Seconds per token in decode: streamed spine and experts over the drive's rate, pinned spine over
// that of memory. Experts are taken as equally likely. `spine_share`: bytes of the spine's format
// over those as published. Negative when the model does not fit into the budget.
double predict_token_s(const ModelPlan& plan, std::uint64_t budget_bytes, double spine_share,
                       const MachineRates& rates);

}  // namespace penstock

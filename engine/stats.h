// SPDX-License-Identifier: Apache-2.0
//
// What a generation took. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model.h"

namespace penstock {

struct GenerationStats {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt: found in a kept state, not computed again
  std::int64_t generated_tokens = 0;
  double prefill_s = 0;
  double decode_s = 0;
  std::uint64_t expert_reads = 0;
  std::uint64_t expert_hits = 0;
  std::uint64_t expert_bytes = 0;  // payload read from the drive
  std::uint64_t spine_bytes = 0;   // payload read from the drive, embedding rows included
  std::uint64_t drive_bytes = 0;   // asked of the drive, widening included
};

// Where a generation's time went.
struct PhaseProfile {
  std::int64_t tokens = 0;
  double wall_s = 0;
  ModelStats work;
};
struct GenerationProfile {
  GenerationStats stats;
  PhaseProfile prefill;
  PhaseProfile decode;
  std::vector<PhaseProfile> generated;  // each token's sweep, the first id has none
  ModelMemory memory;                   // at the end
};

}  // namespace penstock

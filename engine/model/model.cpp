// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

namespace penstock {

ModelStats operator-(const ModelStats& after, const ModelStats& before) {
  return {.expert_reads = after.expert_reads - before.expert_reads,
          .expert_hits = after.expert_hits - before.expert_hits,
          .expert_bytes = after.expert_bytes - before.expert_bytes,
          .spine_bytes = after.spine_bytes - before.spine_bytes,
          .drive_bytes = after.drive_bytes - before.drive_bytes,
          .ahead_reads = after.ahead_reads - before.ahead_reads,
          .ahead_hits = after.ahead_hits - before.ahead_hits,
          .drive_busy_s = after.drive_busy_s - before.drive_busy_s,
          .step_s = after.step_s - before.step_s,
          .spine_wait_s = after.spine_wait_s - before.spine_wait_s,
          .expert_wait_s = after.expert_wait_s - before.expert_wait_s,
          .expert_compute_s = after.expert_compute_s - before.expert_compute_s,
          .kda_s = after.kda_s - before.kda_s,
          .mla_s = after.mla_s - before.mla_s,
          .head_s = after.head_s - before.head_s};
}

}  // namespace penstock

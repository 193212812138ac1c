// SPDX-License-Identifier: Apache-2.0
//
// The Kimi models, K3 and Kimi-Linear, told apart by feature switches (spec: model.md section 1).
// One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/buffer_warmer.h"
#include "engine/base/thread_pool.h"
#include "engine/io/read_queue.h"
#include "engine/model/embedding.h"
#include "engine/model/kimi_weights.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "engine/model/ops.h"
#include "engine/model/scratch.h"
#include "engine/model/sequence_state.h"
#include "engine/weights/expert_cache.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/memory_plan.h"
#include "engine/weights/spine.h"
#include "engine/weights/spine_segments.h"
#include "engine/weights/tensor_index.h"

namespace penstock {

// A checkpoint that was opened and checked, with no weights in memory.
struct KimiFiles {
  ModelConfig config;
  std::unique_ptr<const TensorIndex> index;
  std::unique_ptr<const ExpertStore> experts;
  KimiSpine spine;
  std::vector<SpineSegment> segments;  // [units]
};

// Seconds of the engine thread, as in ModelStats.
struct PhaseTimes {
  double step_s = 0;
  double spine_wait_s = 0;
  double expert_wait_s = 0;
  double expert_compute_s = 0;
  double kda_s = 0;
  double mla_s = 0;
  double head_s = 0;
};

// Everything a sweep works with. Spine and cache end their reads before they die.
struct KimiParts {
  KimiParts(KimiFiles opened, const Kernels& kernels, int threads, const MemoryPlan& plan,
            const StopFlag* stop);

  KimiFiles files;
  const Kernels& kernels;
  StateShape state_shape;
  std::vector<LayerVectors> layers;
  HeadVectors head;
  EmbeddingTable embedding;
  ThreadPool pool;
  ReadQueue queue;
  BufferWarmer warmer;
  Scratch scratch;
  SpineStore spine;
  ExpertCache cache;
  PhaseTimes times;
};

// Scratch of a sweep, in bytes: whatever its length, and per token.
std::uint64_t scratch_bytes_fixed(const ModelConfig& config);
std::uint64_t scratch_bytes_per_token(const ModelConfig& config);

std::unique_ptr<Sweep> begin_kimi_sweep(KimiParts& parts, std::vector<Slice> slices,
                                        const SweepOptions& options);

class KimiModel final : public Model {
 public:
  KimiModel(KimiFiles files, const Kernels& kernels, int threads, const MemoryPlan& plan,
            std::int64_t max_context, const StopFlag* stop);

  const ModelInfo& info() const override { return info_; }
  ModelStats stats() const override;
  std::unique_ptr<SequenceState> new_sequence() override;
  std::unique_ptr<SequenceState> new_sequence(const KeptState& start) override;
  std::shared_ptr<const KeptState> keep(std::unique_ptr<SequenceState> sequence) override;
  std::unique_ptr<Sweep> begin(std::vector<Slice> slices, const SweepOptions& options) override;

  const KimiParts& parts() const { return parts_; }

 private:
  void check(const std::vector<Slice>& slices) const;

  KimiParts parts_;
  ModelInfo info_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The Kimi models, K3 and Kimi-Linear, told apart by feature switches (spec: model.md section 1).
// One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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
#include "engine/weights/tensor_index.h"

namespace penstock {

// A checkpoint that was opened and checked, with no weights in memory.
struct KimiFiles {
  ModelConfig config;
  std::unique_ptr<const TensorIndex> index;
  std::unique_ptr<const ExpertStore> experts;
  std::vector<SpineUnit> units;
};

// Everything a sweep works with. The queue dies before the memory that its reads may still write
// to.
struct KimiParts {
  KimiParts(KimiFiles opened, const Kernels& kernels, int threads, const MemoryPlan& plan,
            const LoadHooks& hooks);

  KimiFiles files;
  const Kernels& kernels;
  StateShape state_shape;
  std::vector<LayerVectors> layers;
  HeadVectors head;
  EmbeddingTable embedding;
  ThreadPool pool;
  ReadQueue queue;
  Scratch scratch;
  SpineStore spine;
  ExpertCache cache;
  std::uint64_t loaded_drive_bytes;  // asked of the drive before the first sweep
};

// Scratch of a sweep, in bytes: whatever its length, and per token.
std::uint64_t scratch_bytes_fixed(const ModelConfig& config);
std::uint64_t scratch_bytes_per_token(const ModelConfig& config);

std::unique_ptr<Sweep> begin_kimi_sweep(KimiParts& parts, std::vector<Slice> slices,
                                        const SweepOptions& options);

class KimiModel final : public Model {
 public:
  KimiModel(KimiFiles files, const Kernels& kernels, int threads, const MemoryPlan& plan,
            std::int64_t max_context, const LoadHooks& hooks);

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

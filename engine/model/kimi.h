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
#include "engine/model/look_ahead.h"
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
  std::unique_ptr<const TensorIndex> sidecar;  // null: the spine is as published
  std::unique_ptr<const ExpertStore> experts;
  KimiSpine spine;
  std::vector<SpineSegment> segments;  // [units]
  std::string spine_format = "bf16";   // of the sidecar, or as published
  std::vector<std::string> notes;      // lines for the log
};

// How a Kimi model is run.
struct KimiOptions {
  const Kernels* kernels;
  int threads;
  MemoryNeeds needs;
  MemoryOptions memory;  // budget and context of `plan`
  MemoryPlan plan;       // of these
  bool look_ahead;
  bool lock_spine;
  ReadBackendChoice read_backend;
};

// Everything a sweep works with. Spine and cache end their reads before they die.
struct KimiParts {
  KimiParts(KimiFiles opened, const KimiOptions& options, const StopFlag* stop);

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
  ModelStats times;  // the seconds of the engine thread alone
  LookAhead look_ahead;
};

// What a kept state takes beside its latents, in bytes.
std::uint64_t kept_state_bytes(const ModelConfig& config);

// Scratch of a sweep, in bytes: whatever its length, per token, and more per token of a tile.
std::uint64_t scratch_bytes_fixed(const ModelConfig& config);
std::uint64_t scratch_bytes_per_token(const ModelConfig& config);
std::uint64_t tile_bytes_per_token(const ModelConfig& config);

std::unique_ptr<Sweep> begin_kimi_sweep(KimiParts& parts, std::vector<Slice> slices,
                                        const SweepOptions& options);

class KimiModel final : public Model {
 public:
  // Reads what is small and looks at what the drive likes. `stop` ends that.
  KimiModel(KimiFiles files, KimiOptions options, const StopFlag* stop);

  const ModelInfo& info() const override { return info_; }
  ModelStats stats() const override;
  ModelMemory memory() const override;
  void set_budget(std::uint64_t bytes) override;
  std::uint64_t kept_budget() const override { return options_.plan.kept_bytes; }
  bool upkeep() override { return parts_.spine.upkeep(); }
  std::unique_ptr<SequenceState> new_sequence() override;
  std::unique_ptr<SequenceState> new_sequence(const KeptState& start) override;
  std::shared_ptr<const KeptState> keep(std::unique_ptr<SequenceState> sequence) override;
  std::unique_ptr<Sweep> begin(std::vector<Slice> slices, const SweepOptions& options) override;

  const KimiParts& parts() const { return parts_; }

 private:
  void check(const std::vector<Slice>& slices) const;
  void tune_reads(const StopFlag* stop);
  void note_streaming(double drive_gb_per_s);

  KimiOptions options_;  // its plan is the one that holds now
  KimiParts parts_;
  ModelInfo info_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kimi.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/model/kda.h"
#include "engine/model/mla.h"
#include "engine/model/moe.h"

namespace penstock {

KimiParts::KimiParts(KimiFiles opened, const Kernels& table, int threads, const MemoryPlan& plan,
                     const StopFlag* stop)
    : files(std::move(opened)),
      kernels(table),
      state_shape(files.config),
      layers(read_layer_vectors(*files.index, files.config, kernels, stop)),
      head(read_head_vectors(*files.index, files.config)),
      embedding(*files.index, files.config.prefix + "model.embed_tokens.weight", files.config.vocab,
                files.config.hidden, kTileTokens),
      pool(threads),
      scratch(plan.scratch_bytes),
      spine(files.segments, queue, warmer, plan.spine_bytes),
      cache(*files.experts, queue, warmer, static_cast<std::int32_t>(plan.expert_slots)) {}

std::uint64_t scratch_bytes_fixed(const ModelConfig& config) {
  // One tile in its widest phase, beside the layer's input and output rows.
  const std::size_t phase = std::max(
      {kda_tile_floats(config.kda, config.hidden), mla_tile_floats(config.mla, config.hidden),
       ffn_tile_floats(config.hidden, config.dense_intermediate),
       ffn_tile_floats(config.hidden, config.moe.shared_intermediate),
       ffn_tile_floats(config.expert_input(), config.moe.intermediate) + size(config.moe.experts)});
  const std::size_t row = phase + 4 * size(config.hidden);
  const std::size_t per_thread = 64UL << 10U;
  return (size(kTileTokens) * row + size(config.vocab)) * sizeof(float) + per_thread * 64;
}

std::uint64_t scratch_bytes_per_token(const ModelConfig& config) {
  const std::size_t rows = size(config.attn_res_blocks() + 2);  // blocks, prefix, FFN input
  const std::size_t floats =
      rows * size(config.hidden) + 2 * size(config.expert_input()) + 2 * size(config.moe.top_k);
  return floats * sizeof(float);
}

KimiModel::KimiModel(KimiFiles files, const Kernels& kernels, int threads, const MemoryPlan& plan,
                     std::int64_t max_context, const StopFlag* stop)
    : parts_(std::move(files), kernels, threads, plan, stop) {
  const ModelConfig& config = parts_.files.config;
  info_ = {.architecture = config.architecture,
           .layers = config.layers,
           .hidden = config.hidden,
           .vocab = config.vocab,
           .max_context = max_context,
           .stop_ids = config.stop_ids,
           .chunk_tokens = plan.chunk_tokens,
           .kept_budget_bytes = plan.kept_bytes,
           .kept_state_bytes = parts_.state_shape.kda_bytes() + size(config.vocab) * sizeof(float),
           .latent_bytes_per_token = parts_.state_shape.block_bytes() / kAttentionBlock};
}

ModelStats KimiModel::stats() const {
  const ExpertCacheStats& experts = parts_.cache.stats();
  return {.expert_reads = experts.reads,
          .expert_hits = experts.hits,
          .expert_bytes = experts.bytes,
          .spine_bytes = parts_.spine.bytes_read() + parts_.embedding.bytes_read(),
          .drive_bytes = parts_.queue.drive_bytes(),
          .step_s = parts_.times.step_s,
          .spine_wait_s = parts_.times.spine_wait_s,
          .expert_wait_s = parts_.times.expert_wait_s,
          .expert_compute_s = parts_.times.expert_compute_s,
          .kda_s = parts_.times.kda_s,
          .mla_s = parts_.times.mla_s,
          .head_s = parts_.times.head_s};
}

std::unique_ptr<SequenceState> KimiModel::new_sequence() {
  return std::make_unique<KimiSequence>(parts_.state_shape);
}

std::unique_ptr<SequenceState> KimiModel::new_sequence(const KeptState& start) {
  return std::make_unique<KimiSequence>(parts_.state_shape, dynamic_cast<const KimiKept&>(start));
}

std::shared_ptr<const KeptState> KimiModel::keep(std::unique_ptr<SequenceState> sequence) {
  return dynamic_cast<KimiSequence&&>(*sequence).keep();
}

void KimiModel::check(const std::vector<Slice>& slices) const {
  const auto fail = [](const std::string& problem) {
    throw Error(ErrorCode::bad_request, problem);
  };
  if (slices.empty()) fail("a sweep needs at least one slice");
  std::size_t tokens = 0;
  std::unordered_set<const SequenceState*> sequences;
  for (const Slice& slice : slices) {
    if (!sequences.insert(slice.sequence).second) fail("a sequence has two slices in one sweep");
    tokens += slice.tokens.size();
    const auto n = static_cast<std::int64_t>(slice.tokens.size());
    if (n == 0) fail("a slice needs at least one token");
    if (slice.logits_from < 0 || slice.logits_from > n)
      fail("logits_from lies outside of the slice");
    for (const Token id : slice.tokens) {
      if (id < 0 || id >= info_.vocab) {
        fail("token id " + std::to_string(id) + " is not in the vocabulary: expected 0 to " +
             std::to_string(info_.vocab - 1));
      }
    }
    std::int64_t before = slice.sequence->length();
    for (const std::int64_t length : slice.keep_at) {
      if (length <= before || length > slice.sequence->length() + n) {
        fail("a kept length of " + std::to_string(length) + " lies outside of the slice");
      }
      before = length;
    }
  }
  if (tokens > size(info_.chunk_tokens)) {
    fail("a sweep of " + std::to_string(tokens) + " tokens: the memory plan grants " +
         std::to_string(info_.chunk_tokens));
  }
}

std::unique_ptr<Sweep> KimiModel::begin(std::vector<Slice> slices, const SweepOptions& options) {
  check(slices);
  return begin_kimi_sweep(parts_, std::move(slices), options);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/kimi.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/io/drive_probe.h"
#include "engine/model/kda.h"
#include "engine/model/mla.h"
#include "engine/model/moe.h"
#include "engine/weights/sidecar.h"

namespace penstock {
namespace {

// In flight while the engine computes. On a virtual disk and two cores, Kimi-Linear's spine
// streamed: 8 MiB gave 1.8 GB/s, 32 MiB 2.3 to 2.4, what the drive gives an idle machine is 2.5.
constexpr std::size_t kBusyBytes = 32UL << 20U;

}  // namespace

KimiParts::KimiParts(KimiFiles opened, const KimiOptions& options, const StopFlag* stop)
    : files(std::move(opened)),
      kernels(*options.kernels),
      state_shape(files.config),
      layers(read_layer_vectors(*files.index, files.config, kernels, stop)),
      head(read_head_vectors(*files.index, files.config)),
      embedding(*files.index, files.config.prefix + "model.embed_tokens.weight", files.config.vocab,
                files.config.hidden, kTileTokens),
      pool(options.threads),
      queue({.backend = options.read_backend}),
      scratch(options.plan.scratch_bytes),
      spine(files.segments, queue, warmer, options.plan.spine_bytes, options.lock_spine),
      cache(*files.experts, queue, warmer, static_cast<std::int32_t>(options.plan.expert_slots)),
      look_ahead(files.config.layers, options.look_ahead) {}

// The KDA state and the last logits.
std::uint64_t kept_state_bytes(const ModelConfig& config) {
  return StateShape(config).kda_bytes() + size(config.vocab) * sizeof(float);
}

std::uint64_t scratch_bytes_fixed(const ModelConfig& config) {
  const std::size_t per_thread = 64UL << 10U;
  const std::size_t experts = size(config.moe.top_k) *  // of a single token, all at once
                              ffn_tile_floats(config.expert_input(), config.moe.intermediate);
  return (size(config.vocab) + experts) * sizeof(float) + per_thread * 64;
}

// A tile in its widest phase, beside the layer's input and output rows.
std::uint64_t tile_bytes_per_token(const ModelConfig& config) {
  const std::size_t phase = std::max(
      {kda_tile_floats(config.kda, config.hidden), mla_tile_floats(config.mla, config.hidden),
       ffn_tile_floats(config.hidden, config.dense_intermediate),
       ffn_tile_floats(config.hidden, config.moe.shared_intermediate),
       ffn_tile_floats(config.expert_input(), config.moe.intermediate) + size(config.moe.experts)});
  return (phase + 4 * size(config.hidden)) * sizeof(float);
}

std::uint64_t scratch_bytes_per_token(const ModelConfig& config) {
  const std::size_t rows = size(config.attn_res_blocks() + 2);  // blocks, prefix, FFN input
  const std::size_t floats =
      rows * size(config.hidden) + 2 * size(config.expert_input()) + 2 * size(config.moe.top_k);
  return floats * sizeof(float);
}

KimiModel::KimiModel(KimiFiles files, KimiOptions options, const StopFlag* stop)
    : options_(std::move(options)), parts_(std::move(files), options_, stop) {
  const ModelConfig& config = parts_.files.config;
  info_ = {.architecture = config.architecture,
           .layers = config.layers,
           .hidden = config.hidden,
           .vocab = config.vocab,
           .max_context = options_.memory.context_tokens,
           .stop_ids = config.stop_ids,
           .chunk_tokens = options_.plan.chunk_tokens,
           .kept_state_bytes = penstock::kept_state_bytes(config),
           .latent_bytes_per_token = parts_.state_shape.block_bytes() / kAttentionBlock,
           .budget_bytes = options_.memory.budget_bytes,
           .spine = parts_.files.spine_format,
           .notes = parts_.files.notes};
  tune_reads(stop);
  // A budget that shrinks later must not change what a sweep may take.
  options_.memory.chunk_tokens = options_.plan.chunk_tokens;
}

// Sets the depth of the reads by a short look at the drive, and notes how it is read.
void KimiModel::tune_reads(const StopFlag* stop) {
  std::vector<const ByteSource*> sources;
  for (std::uint32_t i = 0; i < parts_.files.index->source_count(); ++i) {
    sources.push_back(&parts_.files.index->source(i));
  }
  const auto setting = choose_depth(parts_.queue, sources, stop);
  const std::string& refused = parts_.queue.backend_note();
  if (!refused.empty()) info_.notes.push_back(refused);
  if (!setting) return;
  // The look had the cores to itself. Beside the engine the I/O thread gets one late now and then:
  // the drive must not run dry meanwhile.
  const int depth = std::max(setting->depth, static_cast<int>(kBusyBytes / setting->piece_bytes));
  parts_.queue.set_pieces(depth, setting->piece_bytes);
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "the drive gives some %.2f GB/s by %s, %d pieces of %s in flight",
                setting->gb_per_s, parts_.queue.backend_name(), depth,
                format_bytes(setting->piece_bytes).c_str());
  info_.notes.emplace_back(text.data());
  note_streaming(setting->gb_per_s);
}

// What streaming the spine costs, and what a smaller one would save.
void KimiModel::note_streaming(double drive_gb_per_s) {
  const MemoryPlan& plan = options_.plan;
  if (plan.spine_bytes == plan.all_spine_bytes || parts_.files.sidecar != nullptr) return;
  const auto streamed = [&](double share) {
    const auto all = static_cast<double>(plan.all_spine_bytes) * share;
    return std::max(0.0, all - static_cast<double>(plan.spine_bytes)) / 1e9;
  };
  const double now = streamed(1);
  std::array<char, 320> text{};
  std::snprintf(text.data(), text.size(),
                "every token streams %.1f GB of the spine, %.1f s; penstock convert --spine bf12 "
                "would save %.1f s of them and change nothing else, --spine int8 would save %.1f s "
                "and change some answers",
                now, now / drive_gb_per_s, (now - streamed(kBf12SpineShare)) / drive_gb_per_s,
                (now - streamed(kInt8SpineShare)) / drive_gb_per_s);
  info_.notes.emplace_back(text.data());
}

ModelStats KimiModel::stats() const {
  const ExpertCacheStats& experts = parts_.cache.stats();
  const ReadQueueStats drive = parts_.queue.stats();
  ModelStats stats = parts_.times;
  stats.expert_reads = experts.reads;
  stats.expert_hits = experts.hits;
  stats.expert_bytes = experts.bytes;
  stats.spine_bytes = parts_.spine.bytes_read() + parts_.embedding.bytes_read();
  stats.drive_bytes = drive.drive_bytes;
  stats.ahead_reads = experts.ahead;
  stats.ahead_hits = experts.ahead_used;
  stats.drive_busy_s = drive.busy_s;
  return stats;
}

ModelMemory KimiModel::memory() const {
  std::uint64_t spine_bytes = 0;
  for (const SpineSegment& segment : parts_.files.segments) spine_bytes += segment.payload_bytes;
  return {.budget_bytes = options_.memory.budget_bytes,
          .spine_bytes = spine_bytes,
          .pinned_bytes = parts_.spine.resident_bytes(),
          .expert_slots = parts_.cache.slots()};
}

void KimiModel::set_budget(std::uint64_t bytes) {
  options_.memory.budget_bytes = bytes;
  options_.plan = plan_memory(options_.needs, options_.memory);
  parts_.spine.set_budget(options_.plan.spine_bytes);
  parts_.cache.set_slots(static_cast<std::int32_t>(options_.plan.expert_slots));
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

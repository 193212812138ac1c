// SPDX-License-Identifier: Apache-2.0
//
// The forward pass (spec: model.md sections 4 to 6).
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/timed.h"
#include "engine/model/attn_res.h"
#include "engine/model/kda.h"
#include "engine/model/kimi.h"
#include "engine/model/mla.h"
#include "engine/model/moe.h"

namespace penstock {
namespace {

// Sweeps of more tokens are prefill: their experts pass by the cache.
constexpr std::int32_t kMaxDecodeTokens = 8;

// Consecutive rows of the sweep.
struct Tile {
  std::int32_t begin;
  std::int32_t tokens;
};

class KimiSweep final : public Sweep {
 public:
  KimiSweep(KimiParts& parts, std::vector<Slice> slices, const SweepOptions& options);

  bool step() override;
  std::int32_t steps_done() const override { return steps_done_; }
  std::int32_t steps_total() const override { return config_.layers + 1; }
  void commit() override;
  std::span<const float> logits(std::size_t slice) const override {
    return sweep_parts_[slice].logits;
  }
  std::span<const float> layer_outputs(std::size_t slice) const override {
    return sweep_parts_[slice].layer_outputs;
  }
  std::vector<std::shared_ptr<const KeptState>> take_kept(std::size_t slice) override;

 private:
  // One slice, its rows in the sweep, and what it produces.
  struct Part {
    Slice slice;
    KimiSequence* sequence;
    std::int32_t first_row;
    std::int32_t tokens;
    std::vector<std::shared_ptr<KimiKept>> kept;
    std::vector<float> logits;         // [tokens - logits_from][vocab]
    std::vector<float> layer_outputs;  // [layers][hidden]
  };

  template <typename Body>
  void for_each_tile(const Body& body) const {
    for (std::int32_t begin = 0; begin < tokens_; begin += kTileTokens) {
      body(Tile{begin, std::min(kTileTokens, tokens_ - begin)});
    }
  }

  void run_step();
  void embed(const Tile& tile);
  void run_layer(std::int32_t layer);
  SpineLease acquire(std::int32_t segment);
  void attention(std::int32_t layer);
  Rows attention_heads(std::int32_t layer, const SpineLease& lease, const Tile& tile);
  Rows kda_heads(std::int32_t layer, const KdaMatrices& w, const Tile& tile, Rows* x);
  Rows mla_heads(std::int32_t layer, const MlaMatrices& w, const Tile& tile, Rows* x);
  void advance_part(std::int32_t layer, const Part& part, const Tile& tile, const KdaTile& arrays);
  void ffn_input(std::int32_t layer, const Tile& tile);
  void dense(std::int32_t layer);
  void mixture(std::int32_t layer);
  void look_ahead(std::int32_t layer);
  void shared_experts(const FfnMatrices& w, Rows* x, float* out);
  void finish_mixture(std::int32_t layer, const MoeMatrices& w, const Tile& tile);
  void mix(const std::vector<float>& res_weight, const Tile& tile, float* out) const;
  void output_head();
  void head_piece(const SpineLease& lease, const SpineMatrix& piece);
  void head_rows(Part* part, std::int32_t begin, std::int32_t tokens, const WeightMatrix& w,
                 std::int32_t first_row);

  // The rows of the sweep that are in both; begin >= end when there are none.
  static std::pair<std::int32_t, std::int32_t> overlap(const Part& part, const Tile& tile) {
    return {std::max(part.first_row, tile.begin),
            std::min(part.first_row + part.tokens, tile.begin + tile.tokens)};
  }
  float* row(float* array, std::int32_t t) const {
    return array + std::ptrdiff_t{t} * config_.hidden;
  }

  KimiParts& parts_;
  const ModelConfig& config_;
  Ops ops_;
  Scratch::Frame frame_;  // of the arrays below
  ThreadPool::Seat seat_;
  std::vector<Part> sweep_parts_;
  bool want_layer_outputs_;
  std::int32_t tokens_ = 0;
  std::int32_t steps_done_ = 0;
  Residuals residuals_{};
  std::vector<float*> spare_rows_;  // [tokens][hidden] each, for prefixes to come
  float* ffn_input_ = nullptr;      // [tokens][hidden]: normed; later the shared experts' output
  float* routed_input_ = nullptr;   // [tokens][expert_input]
  float* routed_output_ = nullptr;  // [tokens][expert_input]
  Routing routing_;
};

KimiSweep::KimiSweep(KimiParts& parts, std::vector<Slice> slices, const SweepOptions& options)
    : parts_(parts),
      config_(parts.files.config),
      ops_{parts.kernels, parts.pool, parts.scratch, options.stop},
      frame_(parts.scratch),
      seat_(parts.pool),
      want_layer_outputs_(options.layer_outputs) {
  for (Slice& slice : slices) {
    Part part{};
    part.sequence = &dynamic_cast<KimiSequence&>(*slice.sequence);
    part.first_row = tokens_;
    part.tokens = static_cast<std::int32_t>(slice.tokens.size());
    tokens_ += part.tokens;
    part.sequence->latents().reserve(part.sequence->length() + part.tokens);
    for (const std::int64_t length : slice.keep_at) {
      part.kept.push_back(std::make_shared<KimiKept>(parts.state_shape, length));
    }
    part.slice = std::move(slice);
    sweep_parts_.push_back(std::move(part));
  }
  const std::size_t rows = size(tokens_);
  for (std::int32_t i = 0; i < config_.attn_res_blocks() + 1; ++i) {
    spare_rows_.push_back(parts.scratch.floats(rows * size(config_.hidden)));
  }
  residuals_.hidden = config_.hidden;
  residuals_.prefix = spare_rows_.back();
  spare_rows_.pop_back();
  ffn_input_ = parts.scratch.floats(rows * size(config_.hidden));
  routed_input_ = parts.scratch.floats(rows * size(config_.expert_input()));
  routed_output_ = parts.scratch.floats(rows * size(config_.expert_input()));
  routing_.experts.resize(rows * size(config_.moe.top_k));
  routing_.weights.resize(rows * size(config_.moe.top_k));
}

bool KimiSweep::step() {
  if (steps_done_ == steps_total()) return false;
  const Timed timed(&parts_.times.step_s);
  try {
    run_step();
  } catch (const Error& error) {
    // Weights may have been damaged on their way to memory: the next sweep reads them anew.
    if (error.code() == ErrorCode::model) {
      parts_.spine.forget();
      parts_.cache.forget();
    }
    throw;
  }
  return ++steps_done_ < steps_total();
}

void KimiSweep::run_step() {
  if (steps_done_ == 0) {
    parts_.look_ahead.begin_token();
    for_each_tile([&](const Tile& tile) { embed(tile); });
  }
  if (steps_done_ < config_.layers) {
    run_layer(steps_done_);
  } else {
    output_head();
  }
}

void KimiSweep::embed(const Tile& tile) {
  std::vector<Token> ids;
  for (const Part& part : sweep_parts_) {
    const auto [begin, end] = overlap(part, tile);
    const auto first = part.slice.tokens.begin() - part.first_row;
    ids.insert(ids.end(), first + begin, first + end);
  }
  parts_.embedding.read(parts_.queue, ids, ops_.stop, row(residuals_.prefix, tile.begin));
}

void KimiSweep::run_layer(std::int32_t layer) {
  attention(layer);
  for_each_tile([&](const Tile& tile) { ffn_input(layer, tile); });
  if (config_.is_moe[size(layer)]) {
    mixture(layer);
  } else {
    dense(layer);
  }
  check_finite({residuals_.prefix, size(tokens_) * size(config_.hidden)},
               "layer " + std::to_string(layer));
  if (!want_layer_outputs_) return;
  for (Part& part : sweep_parts_) {
    const float* const last = row(residuals_.prefix, part.first_row + part.tokens - 1);
    part.layer_outputs.insert(part.layer_outputs.end(), last, last + config_.hidden);
  }
}

SpineLease KimiSweep::acquire(std::int32_t segment) {
  const Timed timed(&parts_.times.spine_wait_s);
  return parts_.spine.acquire(segment, ops_.stop);
}

// out [tile tokens][hidden] = what a sub-layer sees before its norm: the prefix, or its mix with
// the blocks closed so far.
void KimiSweep::mix(const std::vector<float>& res_weight, const Tile& tile, float* out) const {
  if (residuals_.blocks.empty()) {
    std::copy_n(row(residuals_.prefix, tile.begin), size(tile.tokens) * size(config_.hidden), out);
  } else {
    attn_res(ops_, residuals_, res_weight.data(), config_.rms_norm_eps, tile.begin, tile.tokens,
             out);
  }
}

// prefix += Attn(norm(mix)). At a block border the prefix is closed as a block and a new one begins
// with the attention's output alone; the mix still sees the blocks from before.
void KimiSweep::attention(std::int32_t layer) {
  const std::int32_t unit = parts_.files.spine.attention[size(layer)];
  std::optional<SpineLease> heads_lease(acquire(unit));
  std::optional<SpineLease> output_lease;
  double* const seconds = config_.is_kda[size(layer)] ? &parts_.times.kda_s : &parts_.times.mla_s;
  const bool closes_block = config_.attn_res_block > 0 && layer % config_.attn_res_block == 0;
  float* const next = closes_block ? spare_rows_.back() : residuals_.prefix;
  for_each_tile([&](const Tile& tile) {
    const Scratch::Frame frame(parts_.scratch);
    Rows heads = [&] {
      const Timed timed(seconds);
      return attention_heads(layer, *heads_lease, tile);
    }();
    // What has served makes room for what comes next.
    if (tile.begin + tile.tokens == tokens_) heads_lease.reset();
    if (!output_lease) output_lease.emplace(acquire(unit + 1));
    const Timed timed(seconds);
    const std::size_t floats = size(tile.tokens) * size(config_.hidden);
    float* const out = parts_.scratch.floats(floats);
    ops_.matmul(output_lease->matrix(0), &heads, out, config_.hidden);
    float* const to = row(next, tile.begin);
    if (closes_block) {
      std::copy_n(out, floats, to);
    } else {
      for (std::size_t i = 0; i < floats; ++i) to[i] += out[i];
    }
  });
  if (!closes_block) return;
  residuals_.blocks.push_back(residuals_.prefix);
  residuals_.prefix = next;
  spare_rows_.pop_back();
}

// The heads' outputs, before the output projection, in the caller's scratch frame.
Rows KimiSweep::attention_heads(std::int32_t layer, const SpineLease& lease, const Tile& tile) {
  const LayerVectors& vectors = parts_.layers[size(layer)];
  float* const input = parts_.scratch.floats(size(tile.tokens) * size(config_.hidden));
  mix(vectors.self_attention_res, tile, input);
  rms_norm_rows(ops_, input, config_.hidden, vectors.input_layernorm.data(), tile.tokens,
                config_.hidden, config_.rms_norm_eps);
  Rows x{input, config_.hidden, tile.tokens, config_.hidden};
  if (config_.is_kda[size(layer)]) {
    return kda_heads(layer, kda_matrices(config_, lease), tile, &x);
  }
  return mla_heads(layer, mla_matrices(config_, lease), tile, &x);
}

Rows KimiSweep::kda_heads(std::int32_t layer, const KdaMatrices& w, const Tile& tile, Rows* x) {
  const KdaTile arrays = take_kda_tile(ops_, config_.kda, tile.tokens);
  project_kda(ops_, config_.kda, w, x, arrays);
  for (const Part& part : sweep_parts_) advance_part(layer, part, tile, arrays);
  return {arrays.out, config_.kda.width(), tile.tokens, config_.kda.width()};
}

// Advances the KDA state of a part over its rows of the tile, from kept length to kept length.
void KimiSweep::advance_part(std::int32_t layer, const Part& part, const Tile& tile,
                             const KdaTile& arrays) {
  const std::size_t l = config_.attention_index(layer);
  KdaState& next = part.sequence->next();
  const auto [begin, end] = overlap(part, tile);
  std::int32_t from = begin;
  const auto advance_to = [&](std::int32_t to) {
    if (to <= from) return;
    const KdaState& start = from == part.first_row ? part.sequence->committed() : next;
    advance_kda(ops_, config_.kda, parts_.layers[size(layer)].kda, config_.rms_norm_eps,
                {.begin = from - tile.begin,
                 .tokens = to - from,
                 .recurrent_from = start.recurrent(l),
                 .conv_from = start.conv(l),
                 .recurrent_to = next.recurrent(l),
                 .conv_to = next.conv(l)},
                arrays);
    from = to;
  };
  for (const auto& kept : part.kept) {
    const std::int64_t kept_row = part.first_row + (kept->length() - part.sequence->length());
    if (kept_row <= begin || kept_row > end) continue;
    advance_to(static_cast<std::int32_t>(kept_row));
    kept->kda.copy_layer(next, l);
  }
  advance_to(end);
}

Rows KimiSweep::mla_heads(std::int32_t layer, const MlaMatrices& w, const Tile& tile, Rows* x) {
  std::vector<MlaSegment> segments;
  for (const Part& part : sweep_parts_) {
    const auto [begin, end] = overlap(part, tile);
    if (begin >= end) continue;
    segments.push_back({begin - tile.begin, end - begin,
                        part.sequence->length() + (begin - part.first_row),
                        &part.sequence->latents()});
  }
  const std::int32_t width = config_.mla.width();
  float* const values = parts_.scratch.floats(size(tile.tokens) * size(width));
  mla(ops_, config_.mla, w, parts_.layers[size(layer)].mla, config_.attention_index(layer),
      segments, x, values);
  return {values, width, tile.tokens, width};
}

// The feed-forward part's input: norm(mix).
void KimiSweep::ffn_input(std::int32_t layer, const Tile& tile) {
  const LayerVectors& vectors = parts_.layers[size(layer)];
  float* const input = row(ffn_input_, tile.begin);
  mix(vectors.mlp_res, tile, input);
  rms_norm_rows(ops_, input, config_.hidden, vectors.post_attention_layernorm.data(), tile.tokens,
                config_.hidden, config_.rms_norm_eps);
}

// prefix += down(act(gate x, up x)).
void KimiSweep::dense(std::int32_t layer) {
  const std::int32_t gate_up = parts_.files.spine.ffn[size(layer)];
  const SpineLease gate_up_lease = acquire(gate_up);
  const SpineLease down_lease = acquire(gate_up + 1);
  const FfnMatrices w = dense_matrices(gate_up_lease, down_lease);
  for_each_tile([&](const Tile& tile) {
    const Scratch::Frame frame(parts_.scratch);
    Rows x{row(ffn_input_, tile.begin), config_.hidden, tile.tokens, config_.hidden};
    const std::size_t floats = size(tile.tokens) * size(config_.hidden);
    float* const out = parts_.scratch.floats(floats);
    ffn(ops_, config_, w, &x, out);
    float* const prefix = row(residuals_.prefix, tile.begin);
    for (std::size_t i = 0; i < floats; ++i) prefix[i] += out[i];
  });
}

// Routes all tokens, then computes what needs no routed expert while those are being read.
void KimiSweep::mixture(std::int32_t layer) {
  const SpineLease lease = acquire(parts_.files.spine.ffn[size(layer)]);
  const MoeMatrices w = moe_matrices(config_, lease);
  const MoeVectors& vectors = parts_.layers[size(layer)].moe;
  const std::int32_t width = config_.expert_input();
  const auto rows_of = [&](const Tile& tile) {
    return Rows{row(ffn_input_, tile.begin), config_.hidden, tile.tokens, config_.hidden};
  };
  for_each_tile([&](const Tile& tile) {
    const Scratch::Frame frame(parts_.scratch);
    Rows x = rows_of(tile);
    route(ops_, config_, w, vectors, &x, tile.begin, &routing_);
  });
  if (tokens_ == 1) parts_.look_ahead.settle(layer, routing_.experts);
  const ExpertGroups groups =
      group_by_expert(routing_, config_.moe.top_k, parts_.files.experts->rank());
  parts_.cache.begin_batch(layer, groups.experts,
                           tokens_ > kMaxDecodeTokens ? CacheUse::bypass : CacheUse::keep);
  for_each_tile([&](const Tile& tile) {
    const Scratch::Frame frame(parts_.scratch);
    Rows x = rows_of(tile);
    float* const z = routed_input_ + std::ptrdiff_t{tile.begin} * width;
    if (config_.moe.latent > 0) {
      ops_.matmul(w.latent_down, &x, z, width);
    } else {
      std::copy_n(x.x, size(tile.tokens) * size(width), z);
    }
    // The layer's input has served: its rows take the shared experts' output.
    shared_experts(w.shared, &x, row(ffn_input_, tile.begin));
  });
  if (layer + 1 < config_.layers && tokens_ == 1) look_ahead(layer + 1);
  std::fill_n(routed_output_, size(tokens_) * size(width), 0.0F);
  apply_experts(ops_, config_, parts_.cache, groups, tokens_, routed_input_, routed_output_,
                {&parts_.times.expert_wait_s, &parts_.times.expert_compute_s});
  for_each_tile([&](const Tile& tile) { finish_mixture(layer, w, tile); });
}

// While this layer's experts are being read: asks the next layer's router what it would choose by
// the present state, where that layer is in memory, and begins to read it.
void KimiSweep::look_ahead(std::int32_t layer) {
  if (!config_.is_moe[size(layer)] || !parts_.look_ahead.wants(layer)) return;
  const auto lease = parts_.spine.find(parts_.files.spine.ffn[size(layer)]);
  if (!lease) return;
  const Scratch::Frame frame(parts_.scratch);
  const LayerVectors& vectors = parts_.layers[size(layer)];
  float* const input = parts_.scratch.floats(size(config_.hidden));
  mix(vectors.mlp_res, {0, 1}, input);
  rms_norm_rows(ops_, input, config_.hidden, vectors.post_attention_layernorm.data(), 1,
                config_.hidden, config_.rms_norm_eps);
  Rows x{input, config_.hidden, 1, config_.hidden};
  Routing guess;
  guess.experts.resize(size(config_.moe.top_k));
  guess.weights.resize(size(config_.moe.top_k));
  route(ops_, config_, moe_matrices(config_, *lease), vectors.moe, &x, 0, &guess);
  parts_.cache.look_ahead(layer, parts_.look_ahead.predict(layer, guess.experts));
}

// out = shared experts of x, zero when there are none; out may be x.
void KimiSweep::shared_experts(const FfnMatrices& w, Rows* x, float* out) {
  const std::size_t floats = size(x->tokens) * size(config_.hidden);
  if (config_.moe.shared_intermediate == 0) {
    std::fill_n(out, floats, 0.0F);
    return;
  }
  ffn(ops_, config_, w, x, out);
}

// prefix += (up(norm(routed)) or routed) + shared.
void KimiSweep::finish_mixture(std::int32_t layer, const MoeMatrices& w, const Tile& tile) {
  const Scratch::Frame frame(parts_.scratch);
  const std::int32_t width = config_.expert_input();
  float* routed = routed_output_ + std::ptrdiff_t{tile.begin} * width;
  if (config_.moe.latent_norm) {
    rms_norm_rows(ops_, routed, width, parts_.layers[size(layer)].moe.routed_expert_norm.data(),
                  tile.tokens, width, config_.rms_norm_eps);
  }
  const std::size_t floats = size(tile.tokens) * size(config_.hidden);
  if (config_.moe.latent > 0) {
    Rows rows{routed, width, tile.tokens, width};
    routed = parts_.scratch.floats(floats);
    ops_.matmul(w.latent_up, &rows, routed, config_.hidden);
  }
  const float* const shared = row(ffn_input_, tile.begin);
  float* const prefix = row(residuals_.prefix, tile.begin);
  for (std::size_t i = 0; i < floats; ++i) prefix[i] += routed[i] + shared[i];
}

void KimiSweep::output_head() {
  bool wanted = false;
  for (Part& part : sweep_parts_) {
    part.logits.resize(size(part.tokens - part.slice.logits_from) * size(config_.vocab));
    wanted = wanted || !part.logits.empty();
  }
  if (!wanted) return;  // between the sweeps of a long prompt
  const KimiSpine& spine = parts_.files.spine;
  for (std::size_t i = size(spine.head); i < spine.units.size(); ++i) {
    head_piece(acquire(static_cast<std::int32_t>(i)), spine.units[i].matrices.front());
  }
  for (const Part& part : sweep_parts_) check_finite(part.logits, "output head");
}

// The logits of one piece of the vocabulary, for all rows that want any.
void KimiSweep::head_piece(const SpineLease& lease, const SpineMatrix& piece) {
  const Timed timed(&parts_.times.head_s);
  for (Part& part : sweep_parts_) {
    const std::int32_t wanted = part.tokens - part.slice.logits_from;
    for (std::int32_t begin = 0; begin < wanted; begin += kTileTokens) {
      head_rows(&part, begin, std::min(kTileTokens, wanted - begin), lease.matrix(0),
                piece.row_begin);
    }
  }
}

// Logits from `first_row` of the vocabulary on, of the rows [begin, begin + tokens) of those that
// the part wants.
void KimiSweep::head_rows(Part* part, std::int32_t begin, std::int32_t tokens,
                          const WeightMatrix& w, std::int32_t first_row) {
  const Scratch::Frame frame(parts_.scratch);
  float* const input = parts_.scratch.floats(size(tokens) * size(config_.hidden));
  mix(parts_.head.output_attn_res, {part->first_row + part->slice.logits_from + begin, tokens},
      input);
  rms_norm_rows(ops_, input, config_.hidden, parts_.head.norm.data(), tokens, config_.hidden,
                config_.rms_norm_eps);
  Rows x{input, config_.hidden, tokens, config_.hidden};
  float* const logits = part->logits.data() + size(begin) * size(config_.vocab);
  ops_.matmul(w, &x, logits + first_row, config_.vocab);
}

void KimiSweep::commit() {
  for (Part& part : sweep_parts_) {
    const std::int64_t before = part.sequence->length();
    for (const auto& kept : part.kept) {
      kept->latents = LatentCache(part.sequence->latents(), kept->length());
      const auto logits_row = kept->length() - before - 1 - part.slice.logits_from;
      if (logits_row < 0) continue;
      const auto first = part.logits.begin() + logits_row * config_.vocab;
      kept->last_logits.assign(first, first + config_.vocab);
    }
    part.sequence->commit(part.tokens);
  }
}

std::vector<std::shared_ptr<const KeptState>> KimiSweep::take_kept(std::size_t slice) {
  auto& kept = sweep_parts_[slice].kept;
  return {std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end())};
}

}  // namespace

std::unique_ptr<Sweep> begin_kimi_sweep(KimiParts& parts, std::vector<Slice> slices,
                                        const SweepOptions& options) {
  return std::make_unique<KimiSweep>(parts, std::move(slices), options);
}

}  // namespace penstock

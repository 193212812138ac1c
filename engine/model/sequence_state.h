// SPDX-License-Identifier: Apache-2.0
//
// What one sequence of a Kimi model remembers: the KDA recurrence in two copies (committed, and
// what the running sweep writes), and the MLA latents in blocks of 128 positions. Complete blocks
// are shared between sequences and kept states; an unfinished one belongs to one of them. One owner
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "kernels/kernels.h"

namespace penstock {

// Sizes of a sequence's state, in floats unless the name says otherwise.
struct StateShape {
  explicit StateShape(const ModelConfig& config);

  std::size_t kda_layers;
  std::size_t recurrent;  // of a layer: [heads][head_dim][head_dim]
  std::size_t conv;       // of a layer: [conv_taps - 1][3][width], raw q, k, v rows, oldest first
  std::size_t mla_layers;
  std::size_t cache_width;  // of a position in a layer

  std::size_t kda_bytes() const { return kda_layers * (recurrent + conv) * sizeof(float); }
  std::size_t block_bytes() const {
    return mla_layers * kAttentionBlock * cache_width * sizeof(float);
  }
};

// The KDA part of a state, for all layers.
class KdaState {
 public:
  explicit KdaState(const StateShape& shape);
  float* recurrent(std::size_t kda_layer) const;  // [heads][head_dim][head_dim]
  float* conv(std::size_t kda_layer) const;       // [conv_taps - 1][3][width]
  void copy_layer(const KdaState& from, std::size_t kda_layer);
  void copy(const KdaState& from);
  std::size_t bytes() const { return memory_.size(); }

 private:
  StateShape shape_;
  Buffer memory_;
};

// MLA latents of 128 consecutive positions: [mla_layers][128][cache_width].
struct LatentBlock {
  explicit LatentBlock(const StateShape& shape) : memory(shape.block_bytes(), "MLA latents") {}
  Buffer memory;
};

class LatentCache {
 public:
  explicit LatentCache(const StateShape& shape) : shape_(shape) {}

  // The first `length` positions of `other`: complete blocks shared, the last one copied.
  LatentCache(const LatentCache& other, std::int64_t length);

  void reserve(std::int64_t positions);  // makes room; never moves what is there
  float* row(std::size_t mla_layer, std::int64_t position) const;  // [cache_width]
  const std::vector<std::shared_ptr<LatentBlock>>& blocks() const { return blocks_; }

 private:
  StateShape shape_;
  std::vector<std::shared_ptr<LatentBlock>> blocks_;
};

class KimiKept final : public KeptState {
 public:
  // Room for a state that a sweep fills.
  KimiKept(const StateShape& shape, std::int64_t length)
      : kda(shape), latents(shape), length_(length) {}
  KimiKept(KdaState kda_state, LatentCache latent_cache, std::int64_t length)
      : kda(std::move(kda_state)), latents(std::move(latent_cache)), length_(length) {}

  std::int64_t length() const override { return length_; }
  std::uint64_t memory_bytes(std::unordered_set<const void*>* counted) const override;
  std::span<const float> logits() const override { return last_logits; }

  KdaState kda;
  LatentCache latents;
  std::vector<float> last_logits;

 private:
  std::int64_t length_;
};

class KimiSequence final : public SequenceState {
 public:
  explicit KimiSequence(const StateShape& shape);
  KimiSequence(const StateShape& shape, const KimiKept& start);

  std::int64_t length() const override { return length_; }

  const KdaState& committed() const { return kda_[current_]; }
  KdaState& next() { return kda_[1 - current_]; }
  LatentCache& latents() { return latents_; }

  std::shared_ptr<KimiKept> keep() &&;  // ends the sequence

  // What was written to next() and to the latents past length() becomes the state.
  void commit(std::int64_t new_tokens) {
    current_ = 1 - current_;
    length_ += new_tokens;
  }

 private:
  std::array<KdaState, 2> kda_;
  std::size_t current_ = 0;
  LatentCache latents_;
  std::int64_t length_ = 0;
};

}  // namespace penstock

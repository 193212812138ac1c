// SPDX-License-Identifier: Apache-2.0
#include "engine/model/sequence_state.h"

#include <cstring>

namespace penstock {

StateShape::StateShape(const ModelConfig& config)
    : kda_layers(static_cast<std::size_t>(config.kda_layers())),
      recurrent(static_cast<std::size_t>(config.kda.width()) *
                static_cast<std::size_t>(config.kda.head_dim)),
      conv(static_cast<std::size_t>(config.kda.conv_taps - 1) * 3 *
           static_cast<std::size_t>(config.kda.width())),
      mla_layers(static_cast<std::size_t>(config.mla_layers())),
      cache_width(static_cast<std::size_t>(config.mla.cache_width())) {}

KdaState::KdaState(const StateShape& shape)
    : shape_(shape), memory_(shape.kda_bytes(), "KDA state") {}

float* KdaState::recurrent(std::size_t kda_layer) const {
  return memory_.as<float>() + kda_layer * (shape_.recurrent + shape_.conv);
}

float* KdaState::conv(std::size_t kda_layer) const {
  return recurrent(kda_layer) + shape_.recurrent;
}

void KdaState::copy_layer(const KdaState& from, std::size_t kda_layer) {
  std::memcpy(recurrent(kda_layer), from.recurrent(kda_layer),
              (shape_.recurrent + shape_.conv) * sizeof(float));
}

void KdaState::copy(const KdaState& from) {
  std::memcpy(memory_.data(), from.memory_.data(), shape_.kda_bytes());
}

LatentCache::LatentCache(const LatentCache& other, std::int64_t length) : shape_(other.shape_) {
  const auto complete = static_cast<std::size_t>(length / kAttentionBlock);
  blocks_.assign(other.blocks_.begin(),
                 other.blocks_.begin() + static_cast<std::ptrdiff_t>(complete));
  const auto rest = static_cast<std::size_t>(length % kAttentionBlock);
  if (rest == 0) return;
  blocks_.push_back(std::make_shared<LatentBlock>(shape_));
  for (std::size_t layer = 0; layer < shape_.mla_layers; ++layer) {
    const std::int64_t first = length - static_cast<std::int64_t>(rest);
    std::memcpy(row(layer, first), other.row(layer, first),
                rest * shape_.cache_width * sizeof(float));
  }
}

void LatentCache::reserve(std::int64_t positions) {
  const auto needed = static_cast<std::size_t>((positions + kAttentionBlock - 1) / kAttentionBlock);
  while (blocks_.size() < needed) blocks_.push_back(std::make_shared<LatentBlock>(shape_));
}

float* LatentCache::row(std::size_t mla_layer, std::int64_t position) const {
  const auto block = static_cast<std::size_t>(position / kAttentionBlock);
  const auto in_block = static_cast<std::size_t>(position % kAttentionBlock);
  return blocks_[block]->memory.as<float>() +
         (mla_layer * kAttentionBlock + in_block) * shape_.cache_width;
}

std::uint64_t KimiKept::memory_bytes(std::unordered_set<const void*>* counted) const {
  std::uint64_t bytes = kda.bytes() + last_logits.size() * sizeof(float);
  for (const auto& block : latents.blocks()) {
    if (counted->insert(block.get()).second) bytes += block->memory.size();
  }
  return bytes;
}

KimiSequence::KimiSequence(const StateShape& shape)
    : kda_{KdaState(shape), KdaState(shape)}, latents_(shape) {}

KimiSequence::KimiSequence(const StateShape& shape, const KimiKept& start)
    : kda_{KdaState(shape), KdaState(shape)},
      latents_(start.latents, start.length()),
      length_(start.length()) {
  kda_[0].copy(start.kda);
}

std::shared_ptr<KimiKept> KimiSequence::keep() && {
  // Blocks past the committed length would be kept without use.
  LatentCache latents(latents_, length_);
  return std::make_shared<KimiKept>(std::move(kda_[current_]), std::move(latents), length_);
}

}  // namespace penstock

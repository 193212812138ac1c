// SPDX-License-Identifier: Apache-2.0
#include "engine/model/scratch.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMinBlockBytes = 1U << 20U;

}  // namespace

Scratch::Scratch(std::size_t reserve_bytes) {
  blocks_.emplace_back(std::max(reserve_bytes, kMinBlockBytes), "scratch");
}

std::byte* Scratch::take_bytes(std::size_t bytes) {
  bytes = round_up(bytes, kAlignment);
  while (blocks_[block_].size() - used_ < bytes) {
    if (++block_ == blocks_.size()) {
      blocks_.emplace_back(std::max(bytes, kMinBlockBytes), "scratch");
    }
    used_ = 0;
  }
  std::byte* memory = blocks_[block_].data() + used_;
  used_ += bytes;
  std::size_t taken = used_;
  for (std::size_t i = 0; i < block_; ++i) taken += blocks_[i].size();
  peak_ = std::max(peak_, taken);
  return memory;
}

}  // namespace penstock

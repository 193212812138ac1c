// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "engine/weights/expert_cache.h"

namespace penstock {

ExpertLease::ExpertLease(ExpertCache* cache, std::int32_t slot, std::size_t index,
                         const ExpertView& view)
    : cache_(cache), slot_(slot), index_(index), view_(view) {}

ExpertLease::ExpertLease(ExpertLease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      slot_(other.slot_),
      index_(other.index_),
      view_(other.view_) {}

ExpertLease& ExpertLease::operator=(ExpertLease&& other) noexcept {
  if (this == &other) return *this;
  if (cache_ != nullptr) cache_->release(slot_);
  cache_ = std::exchange(other.cache_, nullptr);
  slot_ = other.slot_;
  index_ = other.index_;
  view_ = other.view_;
  return *this;
}

ExpertLease::~ExpertLease() {
  if (cache_ != nullptr) cache_->release(slot_);
}

}  // namespace penstock

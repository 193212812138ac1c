// SPDX-License-Identifier: Apache-2.0
#include "engine/model/look_ahead.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr double kLeastRecall = 0.3;          // a miss costs the drive as much as a hit saves
constexpr double kMemory = 0.9;               // of the running averages, per token
constexpr std::int64_t kTokensPerTrial = 16;  // a layer that does not pay is measured that often
constexpr std::size_t kFewReads = 6;          // the best of a prediction that is often wrong
constexpr double kGoodRecall = 0.75;          // from here on all of it

}  // namespace

bool LookAhead::wants(std::int32_t layer) const {
  return enabled_ && (recall(layer) >= kLeastRecall || tokens_ % kTokensPerTrial == 0);
}

std::span<const std::int32_t> LookAhead::predict(std::int32_t layer,
                                                 std::span<const std::int32_t> experts) {
  Layer& at = layers_[static_cast<std::size_t>(layer)];
  const std::size_t most = at.recall >= kGoodRecall ? experts.size() : kFewReads;
  const auto count = static_cast<std::ptrdiff_t>(std::min(experts.size(), most));
  at.predicted.assign(experts.begin(), experts.begin() + count);
  return at.recall >= kLeastRecall ? std::span<const std::int32_t>(at.predicted)
                                   : std::span<const std::int32_t>();
}

void LookAhead::settle(std::int32_t layer, std::span<const std::int32_t> experts) {
  Layer& at = layers_[static_cast<std::size_t>(layer)];
  if (at.predicted.empty()) return;
  const auto right = std::ranges::count_if(at.predicted, [&](std::int32_t expert) {
    return std::ranges::find(experts, expert) != experts.end();
  });
  const double share = static_cast<double>(right) / static_cast<double>(at.predicted.size());
  at.recall = kMemory * at.recall + (1 - kMemory) * share;
  at.predicted.clear();
}

double LookAhead::recall(std::int32_t layer) const {
  return layers_[static_cast<std::size_t>(layer)].recall;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/pin_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace penstock {
namespace {

// The order in which segments are pinned, every beginning of which is spread evenly over the depth:
// the van der Corput sequence, whose i-th place has the bits of i reversed.
std::vector<std::size_t> pin_order(std::size_t segments) {
  unsigned bits = 0;
  while ((std::size_t{1} << bits) < segments) ++bits;
  std::vector<std::size_t> order;
  order.reserve(segments);
  for (std::size_t i = 0; i < std::size_t{1} << bits; ++i) {
    std::size_t place = 0;
    for (unsigned bit = 0; bit < bits; ++bit) place |= (i >> bit & 1U) << (bits - 1 - bit);
    if (place < segments) order.push_back(place);
  }
  return order;
}

}  // namespace

std::uint64_t spine_floor(const std::vector<std::uint64_t>& segment_bytes) {
  if (segment_bytes.empty()) return 0;
  const auto all = std::accumulate(segment_bytes.begin(), segment_bytes.end(), std::uint64_t{0});
  return std::min(all, 2 * *std::ranges::max_element(segment_bytes));
}

PinPlan plan_pins(const std::vector<std::uint64_t>& segment_bytes, std::uint64_t budget_bytes) {
  const auto all = std::accumulate(segment_bytes.begin(), segment_bytes.end(), std::uint64_t{0});
  if (all <= budget_bytes) {
    return {
        .pinned = std::vector<bool>(segment_bytes.size(), true), .window_bytes = 0, .bytes = all};
  }
  const std::uint64_t window = *std::ranges::max_element(segment_bytes);
  PinPlan plan{.pinned = std::vector<bool>(segment_bytes.size(), false),
               .window_bytes = window,
               .bytes = 2 * window};
  for (const std::size_t i : pin_order(segment_bytes.size())) {
    if (plan.bytes + segment_bytes[i] > budget_bytes) break;
    plan.pinned[i] = true;
    plan.bytes += segment_bytes[i];
  }
  return plan;
}

}  // namespace penstock

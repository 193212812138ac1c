// SPDX-License-Identifier: Apache-2.0
//
// Which segments of the spine a budget keeps in memory. Arithmetic only; plain functions.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

// All segments when they fit; else two windows of the largest, and pins with the rest. Pins are
// spread evenly over the depth, so that every stretch between two reads of experts has spine to
// read; a smaller budget pins some of those that a larger one pins.
struct PinPlan {
  std::vector<bool> pinned;        // [segments]
  std::uint64_t window_bytes = 0;  // of each of the two; 0: there are none
  std::uint64_t bytes = 0;         // of pins and windows
};

// `segment_bytes`: memory of each, in order of use.
PinPlan plan_pins(const std::vector<std::uint64_t>& segment_bytes, std::uint64_t budget_bytes);

// The least that a spine of these segments takes.
std::uint64_t spine_floor(const std::vector<std::uint64_t>& segment_bytes);

}  // namespace penstock

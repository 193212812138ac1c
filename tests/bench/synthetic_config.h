// SPDX-License-Identifier: Apache-2.0
//
// config.json of synthetic checkpoints: the published ones (config/models/), or smaller ones of the
// same family. Plain functions.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

enum class SyntheticModel : std::uint8_t {
  kimi_linear,  // all 27 layers, but experts in MXFP4 as Kimi K3 has them
  k3_slice,     // three layers of Kimi K3: dense with KDA, MoE with KDA, MoE with MLA
  sparse_k3,    // all of Kimi K3
};

// 0 stands for the published number.
struct SyntheticSize {
  std::int32_t layers = 0;   // the first ones; not of k3_slice
  std::int32_t experts = 0;  // of a layer
  std::int32_t vocab = 0;
  std::int32_t narrow = 1;  // 1, 2, 4 or 8: divides the hidden width, heads and widths of the FFNs
};

// The text of config.json. Throws Error(usage) naming a size that is out of bounds.
std::string synthetic_config(SyntheticModel model, const SyntheticSize& size);

}  // namespace penstock

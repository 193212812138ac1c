// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a synthetic checkpoint and their shards. Names, types, shapes and order are those
// of checkpoint_layout(), experts always in MXFP4. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/weights/safetensors.h"

namespace penstock {

// What stands in a tensor.
enum class Fill : std::uint8_t {
  normal,          // BF16, standard deviation 2^log2_std
  norm,            // weights of a norm: near one
  conv,            // taps of the short convolution
  a_log,           // decay per head; zeros behind the heads
  dt_bias,         // bias of the decay's step
  router_bias,     // e_score_correction_bias
  nibbles,         // MXFP4 codes
  scales_of_up,    // E8M0 bytes of w1 and w3
  scales_of_down,  // ... of w2
};

struct SyntheticTensor : LayoutTensor {
  Fill fill;
  std::int32_t log2_std;  // of Fill::normal

  std::uint64_t bytes() const { return tensor_bytes(type, shape); }
};

struct SyntheticShard {
  std::string file;
  std::vector<SyntheticTensor> tensors;  // in file order
  std::string header;                    // the length in 8 bytes, then JSON

  std::uint64_t bytes() const;  // of the file
};

// One shard per layer, one with embedding and head, and one with the routers' correction biases, so
// that a skew of the routing changes one small file, the last. Vision is left out.
std::vector<SyntheticShard> synthetic_shards(const ModelConfig& config);

// The shards of the release.
std::vector<SyntheticShard> published_shards(const ModelConfig& config);

// The text of model.safetensors.index.json.
std::string synthetic_index(const std::vector<SyntheticShard>& shards);

// Standard deviation of a router's logits over the tokens.
double router_logit_std(const ModelConfig& config);

// Standard deviation of the weights of a norm.
inline constexpr double kNormStd = 0.1;

}  // namespace penstock

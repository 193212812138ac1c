// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a Kimi model is made of (spec: checkpoint.md sections 2.5 and 3): the spine's units
// in order of use, and the small tensors as fp32. Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/layer_weights.h"
#include "engine/model/model_config.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/spine.h"
#include "engine/weights/tensor_index.h"
#include "kernels/kernels.h"

namespace penstock {

// The matrices of one layer, as leased.
struct LayerMatrices {
  KdaMatrices kda;    // of a KDA layer
  MlaMatrices mla;    // of an MLA layer
  FfnMatrices dense;  // of a layer without experts
  MoeMatrices moe;    // of a layer with experts
};

// One unit per layer, then the output head (lm_head, cut by rows where it is large).
std::vector<SpineUnit> spine_units(const TensorIndex& index, const ModelConfig& config);

// The views of a layer's unit by name.
LayerMatrices layer_matrices(const ModelConfig& config, std::int32_t layer,
                             const LayerLease& lease);

// Small tensors outside of the layers.
struct HeadVectors {
  std::vector<float> norm;             // [hidden]
  std::vector<float> output_attn_res;  // [hidden]: norm * proj; empty with plain residuals
};

// Reads what is small. Throws Error(model) naming file, tensor, expected and found; Error(io).
std::vector<LayerVectors> read_layer_vectors(const TensorIndex& index, const ModelConfig& config,
                                             const Kernels& kernels);
HeadVectors read_head_vectors(const TensorIndex& index, const ModelConfig& config);

// Bytes that those vectors take.
std::uint64_t vector_bytes(const ModelConfig& config);

ExpertShape expert_shape(const ModelConfig& config);

}  // namespace penstock

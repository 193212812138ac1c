// SPDX-License-Identifier: Apache-2.0
//
// Which tensors a Kimi model is made of (spec: checkpoint.md sections 2.5 and 3): the spine's units
// in order of use, and the small tensors as fp32. Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/stop_flag.h"
#include "engine/model/layer_weights.h"
#include "engine/model/model_config.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/spine.h"
#include "engine/weights/spine_segments.h"
#include "engine/weights/tensor_index.h"
#include "kernels/kernels.h"

namespace penstock {

// The units of the spine, numbered in order of use.
struct KimiSpine {
  std::vector<SpineUnit> units;
  std::vector<std::int32_t> attention;  // [layers], followed by that of the output projection
  // [layers]: with experts one unit (router, latent projections, shared experts); without, that of
  // gate and up, followed by that of down.
  std::vector<std::int32_t> ffn;
  std::int32_t head;  // the first piece of lm_head; the others follow
};
KimiSpine spine_units(const TensorIndex& index, const ModelConfig& config);

// The views of a unit by name.
KdaMatrices kda_matrices(const ModelConfig& config, const SpineLease& lease);
MlaMatrices mla_matrices(const ModelConfig& config, const SpineLease& lease);
MoeMatrices moe_matrices(const ModelConfig& config, const SpineLease& lease);
FfnMatrices dense_matrices(const SpineLease& gate_up, const SpineLease& down);

// Small tensors outside of the layers.
struct HeadVectors {
  std::vector<float> norm;             // [hidden]
  std::vector<float> output_attn_res;  // [hidden]: norm * proj; empty with plain residuals
};

// Reads what is small. Throws Error(model) naming file, tensor, expected and found; Error(io);
// Error(cancelled) once `stop` (may be null) is set.
std::vector<LayerVectors> read_layer_vectors(const TensorIndex& index, const ModelConfig& config,
                                             const Kernels& kernels, const StopFlag* stop);
HeadVectors read_head_vectors(const TensorIndex& index, const ModelConfig& config);

// Bytes that those vectors take.
std::uint64_t vector_bytes(const ModelConfig& config);

ExpertShape expert_shape(const ModelConfig& config);

}  // namespace penstock

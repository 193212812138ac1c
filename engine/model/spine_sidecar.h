// SPDX-License-Identifier: Apache-2.0
//
// Which matrices of a Kimi model a sidecar holds. bf12: every BF16 matrix of the spine. int8: the
// projections of attention, dense and shared feed-forward, latent projections and the output head;
// routers and low-rank gates stay as published. Plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/weights/sidecar.h"
#include "engine/weights/spine_segments.h"
#include "engine/weights/tensor_index.h"

namespace penstock {

// One file per layer and one of the output head, in order of use.
std::vector<SidecarFile> sidecar_files(const TensorIndex& index,
                                       const std::vector<SpineUnit>& units, WeightFormat format);

// Bytes of all matrices of the units as published.
std::uint64_t published_spine_bytes(const TensorIndex& index, const std::vector<SpineUnit>& units);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The published Kimi K3 as golden data (tests/golden/kimi-k3/): where every tensor lies.
#pragma once

#include "engine/weights/expert_store.h"
#include "engine/weights/tensor_index.h"

namespace penstock {

// Fails the running test at each file, tensor and expert that does not lie where it is published.
void expect_published_k3(const TensorIndex& index, const ExpertStore& store);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The files of a published checkpoint, told from its configuration alone: every tensor's name, type
// and shape, and which file holds it (spec: checkpoint.md sections 2.3 to 2.5 and 3, vision.md
// section 2). Kimi K3: a file per layer, then head, projector and vision tower; experts in MXFP4.
// Kimi-Linear: files of up to 5 GB in the order of the modules; experts in BF16. Plain function.
#pragma once

#include <vector>

#include "engine/model/model_config.h"
#include "engine/weights/safetensors.h"

namespace penstock {

std::vector<LayoutFile> checkpoint_layout(const ModelConfig& config);

}  // namespace penstock

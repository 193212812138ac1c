// SPDX-License-Identifier: Apache-2.0
//
// The full-size Kimi K3 as sparse files: config.json, index and shards with their true headers and
// lengths, but holes where the weights would be. 1.56 TB apparent, some 130 MB on disk. Opening,
// planning, every offset and the way of every byte can be checked with it; the weights are all
// zero. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/synthetic_config.h"
#include "tests/bench/synthetic_tensors.h"

namespace penstock {

// Throws Error(usage) naming a size that is out of bounds, Error(io) naming what cannot be written.
void write_sparse_k3(const std::string& dir, const SyntheticSize& size);

// The last files of a checkpoint of any kind: model.safetensors.index.json, then config.json.
// Throws Error(io).
void write_index_and_config(const std::string& dir, const std::vector<SyntheticShard>& shards,
                            const std::string& config);

}  // namespace penstock

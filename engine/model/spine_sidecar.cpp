// SPDX-License-Identifier: Apache-2.0
#include "engine/model/spine_sidecar.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {
namespace {

// Names behind that of the layer.
constexpr std::string_view kInt8Names[] = {
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.g_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_a_proj.weight",
    "self_attn.q_b_proj.weight",
    "self_attn.kv_a_proj_with_mqa.weight",
    "self_attn.kv_b_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "block_sparse_moe.shared_experts.gate_proj.weight",
    "block_sparse_moe.shared_experts.up_proj.weight",
    "block_sparse_moe.shared_experts.down_proj.weight",
    "block_sparse_moe.routed_expert_down_proj.weight",
    "block_sparse_moe.routed_expert_up_proj.weight",
    "lm_head.weight",
};

bool is_int8_name(std::string_view name) {
  return std::any_of(std::begin(kInt8Names), std::end(kInt8Names), [&](std::string_view end) {
    return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
  });
}

bool covers(const TensorIndex& index, const SpineMatrix& matrix, WeightFormat format) {
  const TensorType type = index.get(matrix.name).type;
  if (format == WeightFormat::bf12) return type == TensorType::bf16;
  return is_int8_name(matrix.name);
}

// The file of a tensor: layer-0003.safetensors, so that names sort in order of use, or that of its
// own name outside of the layers.
std::string file_name(const std::string& tensor) {
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kWeight = ".weight";
  std::string stem = tensor.substr(0, tensor.size() - kWeight.size());
  const std::size_t layer = stem.find(kLayers);
  if (layer == std::string::npos) {
    stem.erase(0, stem.rfind('.') + 1);
  } else {
    const std::size_t begin = layer + kLayers.size();
    const std::string number = stem.substr(begin, stem.find('.', begin) - begin);
    stem = "layer-" + std::string(number.size() < 4 ? 4 - number.size() : 0, '0') + number;
  }
  return stem + ".safetensors";
}

}  // namespace

std::vector<SidecarFile> sidecar_files(const TensorIndex& index,
                                       const std::vector<SpineUnit>& units, WeightFormat format) {
  std::vector<SidecarFile> files;
  for (const SpineUnit& unit : units) {
    for (const SpineMatrix& matrix : unit.matrices) {
      // A large matrix comes as several ranges of rows.
      if (matrix.row_begin != 0 || !covers(index, matrix, format)) continue;
      std::string name = file_name(matrix.name);
      if (files.empty() || files.back().name != name) files.push_back({std::move(name), {}});
      files.back().matrices.push_back({matrix.name, matrix.tensor_rows, matrix.cols});
    }
  }
  return files;
}

std::uint64_t published_spine_bytes(const TensorIndex& index, const std::vector<SpineUnit>& units) {
  std::uint64_t bytes = 0;
  for (const SpineUnit& unit : units) {
    for (const SpineMatrix& matrix : unit.matrices) {
      if (matrix.row_begin == 0) bytes += index.get(matrix.name).bytes;
    }
  }
  return bytes;
}

}  // namespace penstock

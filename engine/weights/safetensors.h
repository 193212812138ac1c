// SPDX-License-Identifier: Apache-2.0
//
// The safetensors container (spec: checkpoint.md section 1): headers read, checked and made. Plain
// functions, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/byte_source.h"
#include "engine/weights/tensor_index.h"

namespace penstock {

struct SafetensorsEntry {
  std::string_view name;
  TensorType type;
  const std::vector<std::int64_t>& shape;
  std::uint64_t offset;  // absolute
  std::uint64_t bytes;
};

// Reads and checks the header of `source`, then calls `visit` for every tensor in file order.
// Throws Error(model) naming the file, the tensor, expected and found: header longer than the file
// or 100 MB, bad JSON, unknown dtype, size not product(shape) * size(dtype), gaps, overlaps, data
// past or short of the end of the file, a name given twice.
void read_safetensors_header(const ByteSource& source,
                             const std::function<void(const SafetensorsEntry&)>& visit);

// The same for the bytes of a header's JSON, for a file of `file_bytes` (fuzzing, tests).
void parse_safetensors_header(std::string_view json, const std::string& file,
                              std::uint64_t file_bytes,
                              const std::function<void(const SafetensorsEntry&)>& visit);

// A tensor, and a file of tensors in any order, before they have places.
struct LayoutTensor {
  std::string name;
  TensorType type;
  std::vector<std::int64_t> shape;
};
struct LayoutFile {
  std::string name;
  std::vector<LayoutTensor> tensors;
};

std::uint64_t tensor_bytes(TensorType type, std::span<const std::int64_t> shape);

struct SafetensorsHeader {
  std::string json;  // padded with spaces to a multiple of 8
  std::uint64_t file_bytes;
};

// As in the published files: F32, then BF16, then U8, by name within a type.
void sort_as_published(std::vector<LayoutTensor>& tensors);

// The header of a file of tensors in that order, without metadata.
SafetensorsHeader make_safetensors_header(std::vector<LayoutTensor> tensors);

}  // namespace penstock

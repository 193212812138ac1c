// SPDX-License-Identifier: Apache-2.0
//
// What lies where in a model's safetensors files. Every header is checked when the index is opened
// (offsets, sizes, types, gaps, overlaps) and trusted afterwards. Spine tensors are kept by name,
// the half million routed-expert tensors as plain records. Immutable after construction.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/io/byte_source.h"

namespace penstock {

enum class TensorType : std::uint8_t { f32, bf16, f16, u8, i8, i32, i64 };
const char* tensor_type_name(TensorType type);  // as in the header: "BF16"
// For messages: "BF16 [3072, 1792]".
std::string describe_tensor(TensorType type, std::span<const std::int64_t> shape);

struct TensorInfo {
  std::vector<std::int64_t> shape;
  std::uint64_t offset;  // absolute, in the source
  std::uint64_t bytes;
  std::uint32_t source;  // index into the sources
  TensorType type;
};

// The matrices of a routed expert, in the order of their names.
enum class ExpertPart : std::uint8_t { w1, w2, w3 };
inline constexpr int kExpertParts = 3;

// One tensor named
// ...layers.{layer}.block_sparse_moe.experts.{expert}.w{1,2,3}.weight{,_packed,_scale}.
struct ExpertTensor {
  std::uint64_t offset;  // absolute, in the source
  std::int32_t rows;
  std::int32_t cols;  // of the stored array
  std::uint32_t source;
  std::uint16_t layer;
  std::uint16_t expert;
  ExpertPart part;
  bool is_scale;   // .weight_scale
  bool is_packed;  // .weight_packed
  TensorType type;
};

// Orders by layer, expert, part, scale after weights; equal for tensors of one name.
std::uint64_t expert_tensor_key(const ExpertTensor& tensor);
// For messages: the name without what stands before "layers.".
std::string expert_tensor_name(const ExpertTensor& tensor);

// Opens the file at a path; tests put faults behind it. Called from several threads at once.
using SourceOpener = std::function<std::unique_ptr<ByteSource>(const std::string& path)>;

struct LayoutFile;   // safetensors.h
struct TensorShard;  // a file and its tensors, while the index is put together

class TensorIndex {
 public:
  // Opens every shard that model.safetensors.index.json names, or every *.safetensors file of the
  // folder when there is no index. Throws Error(model) naming file, tensor, expected and found.
  static TensorIndex open(const std::string& model_dir, const SourceOpener& opener);
  // The same for a model whose files lie in several folders (at least one), on several drives say.
  // The index file is the first that is found; a shard that lies in more than one folder, the same
  // size in each, is read from all of them.
  static TensorIndex open(const std::vector<std::string>& model_dirs, const SourceOpener& opener);

  // The index of files that are not here, each with a header as make_safetensors_header would write
  // it: right names, sizes and offsets, but any read throws Error(model).
  static TensorIndex from_layout(const std::vector<LayoutFile>& files);

  // null when there is no such tensor; routed-expert tensors are not found by name.
  const TensorInfo* find(std::string_view name) const;
  // Throws Error(model) when it is missing.
  const TensorInfo& get(const std::string& name) const;

  const ByteSource& source(std::uint32_t i) const { return *sources_[i]; }
  std::uint32_t source_count() const { return static_cast<std::uint32_t>(sources_.size()); }
  // Ascending by expert_tensor_key, none twice.
  const std::vector<ExpertTensor>& expert_tensors() const { return expert_tensors_; }
  // For iteration by tools and tests.
  const std::unordered_map<std::string, TensorInfo>& tensors() const { return tensors_; }
  std::uint64_t file_bytes() const;  // sum over the sources

 private:
  static TensorIndex merge(std::vector<TensorShard> shards);

  std::vector<std::unique_ptr<ByteSource>> sources_;
  std::unordered_map<std::string, TensorInfo> tensors_;
  std::vector<ExpertTensor> expert_tensors_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints for tests: safetensors shards written from tensors, or read from a folder, changed
// (other header lengths, other cuts between shards) and written elsewhere. Plain functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

struct BuiltTensor {
  std::string name;
  TensorType type;
  std::vector<std::int64_t> shape;
  std::string bytes;  // row-major, little-endian
};

struct BuiltShard {
  std::string file;
  std::vector<BuiltTensor> tensors;  // in file order
  std::size_t padding = 0;           // spaces after the header besides those that align it to 8
};

// What a safetensors file of these tensors has in it.
std::string shard_bytes(const BuiltShard& shard);
// Absolute offset of a tensor in the shard; the tensor must be there.
std::uint64_t offset_of(const BuiltShard& shard, const std::string& tensor);
// Orders the tensors as the published writers do: F32, BF16, U8; names in byte order.
void sort_as_published(BuiltShard& shard);
// Chooses the padding so that the tensor's offset is `residue` modulo kPageBytes.
void pad_to_residue(BuiltShard& shard, const std::string& tensor, std::size_t residue);

// All shards of a folder, in name order.
std::vector<BuiltShard> read_checkpoint(const std::string& dir);
// Writes the shards and, unless told otherwise, model.safetensors.index.json.
void write_checkpoint(const std::string& dir, const std::vector<BuiltShard>& shards,
                      bool with_index = true);
void write_file(const std::string& path, const std::string& bytes);

// Gives each shard with expert tensors another offset of its first one modulo kPageBytes: eight
// values in turn, aligned and not, the published ones among them.
void spread_residues(std::vector<BuiltShard>& shards);
// Moves w2 and w3 of an expert from its shard into the one after, as in Kimi-Linear's files.
void split_expert(std::vector<BuiltShard>& shards, std::int32_t layer, std::int32_t expert);

// The tensors of one routed expert with repeatable values: MXFP4 pairs, or BF16 or F32 matrices.
std::vector<BuiltTensor> expert_tensors(const std::string& prefix, std::int32_t layer,
                                        std::int32_t expert, std::int32_t input,
                                        std::int32_t intermediate, WeightFormat format);
// A BF16 or F32 tensor with repeatable values in [-1, 1).
BuiltTensor float_tensor(const std::string& name, TensorType type,
                         const std::vector<std::int64_t>& shape);

// Routed experts as K3 has them: layer 0 without, then one shard per layer.
struct ExpertFixture {
  std::int32_t layers = 3;
  std::int32_t experts = 12;
  std::int32_t input = 64;
  std::int32_t intermediate = 96;
  WeightFormat format = WeightFormat::mxfp4;
};
std::vector<BuiltShard> expert_checkpoint(const ExpertFixture& fixture);

}  // namespace penstock

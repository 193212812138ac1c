// SPDX-License-Identifier: Apache-2.0
//
// Where each routed expert lies: its extents, and how they make three matrices once in memory.
// K3's experts are one extent each; Kimi-Linear's are coalesced by header offsets, up to three when
// an expert straddles shards. Immutable after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

// What the configuration says of the routed experts of a model.
struct ExpertShape {
  std::int32_t layers;        // of the model; layers without experts have none in the files
  std::int32_t experts;       // of a layer
  std::int32_t input;         // width the experts see: latent or hidden
  std::int32_t intermediate;  // rows of w1 and w3, columns of w2
};

// A contiguous range of one source.
struct Extent {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint32_t source;
};

struct ExpertView {
  WeightMatrix w1;  // gate [intermediate][input]
  WeightMatrix w2;  // down [input][intermediate]
  WeightMatrix w3;  // up   [intermediate][input]
};

class ExpertStore {
 public:
  // `is_moe_layer[l]` tells which layers must have all experts; the others must have none.
  // Throws Error(model) naming the file, tensor, expected and found: missing or extra experts or
  // parts, wrong type or shape.
  ExpertStore(const TensorIndex& index, const ExpertShape& shape,
              const std::vector<bool>& is_moe_layer);

  // The extents of an expert in ascending (source, offset) order: 1 to kExpertParts * 2.
  std::span<const Extent> extents(std::int32_t layer, std::int32_t expert) const;

  // The matrices of an expert whose extents were read one after the other into page-aligned `slot`,
  // each at the next page boundary plus its offset % kPageBytes (as ReadQueue places them).
  ExpertView view(std::int32_t layer, std::int32_t expert, const std::byte* slot) const;

  // Payload of one expert, the same for all.
  std::uint64_t expert_bytes() const { return expert_bytes_; }
  // Memory that any expert fits in once its reads are widened: whole pages.
  std::size_t slot_bytes() const { return slot_bytes_; }

  // Throws Error(model) when a scale byte of the expert in `slot` is 255, naming file, tensor, row
  // and block.
  void check_scales(std::int32_t layer, std::int32_t expert, const std::byte* slot) const;

  // rank()[e] is the place of expert e in file order, which is the string order of the decimal ids
  // and the order in which their sums are formed (architecture section 6).
  const std::vector<std::int32_t>& rank() const { return rank_; }

  const ExpertShape& shape() const { return shape_; }
  const TensorIndex& index() const { return *index_; }

 private:
  std::size_t tensors_per_expert() const;
  void check_shape() const;
  void check_tensors(const std::vector<bool>& is_moe_layer) const;
  void place(std::span<const ExpertTensor> tensors);
  std::size_t row_of(std::int32_t layer, std::int32_t expert) const;

  const TensorIndex* index_;
  ExpertShape shape_;
  std::vector<std::int32_t> rank_;
  WeightFormat format_ = WeightFormat::mxfp4;
  std::uint64_t expert_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  // One row per expert of a layer with experts, layer by layer: 76 bytes for K3.
  std::vector<std::int32_t> first_row_;       // [layers], -1 without experts
  std::vector<Extent> extents_;               // of all rows, one after the other
  std::vector<std::uint32_t> extents_begin_;  // [rows + 1]
  // Of the first byte in the slot: weights, then scales (unused without) of w1, w2, w3.
  std::vector<std::array<std::size_t, std::size_t{kExpertParts} * 2>> positions_;  // [rows]
};

// rank[e] = position of e among the decimal strings of 0 .. experts - 1 in byte order.
std::vector<std::int32_t> string_order_rank(std::int32_t experts);

}  // namespace penstock

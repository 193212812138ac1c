// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_store.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_queue.h"

namespace penstock {
namespace {

const char* format_name(WeightFormat format) {
  return format == WeightFormat::mxfp4 ? "MXFP4" : format == WeightFormat::bf16 ? "BF16" : "F32";
}

// What the tensors of an expert must be, in the order of their keys; layer and expert are left 0.
std::vector<ExpertTensor> expected_tensors(const ExpertShape& shape, WeightFormat format) {
  std::vector<ExpertTensor> tensors;
  for (const ExpertPart part : {ExpertPart::w1, ExpertPart::w2, ExpertPart::w3}) {
    const bool is_down = part == ExpertPart::w2;
    const std::int32_t cols = is_down ? shape.intermediate : shape.input;
    ExpertTensor tensor{};
    tensor.part = part;
    tensor.rows = is_down ? shape.input : shape.intermediate;
    if (format != WeightFormat::mxfp4) {
      tensor.cols = cols;
      tensor.type = format == WeightFormat::bf16 ? TensorType::bf16 : TensorType::f32;
      tensors.push_back(tensor);
      continue;
    }
    tensor.type = TensorType::u8;
    tensor.is_packed = true;
    tensor.cols = cols / 2;
    tensors.push_back(tensor);
    tensor.is_packed = false;
    tensor.is_scale = true;
    tensor.cols = cols / kMxfp4BlockCols;
    tensors.push_back(tensor);
  }
  return tensors;
}

// Only of tensors whose type and shape are as expected.
std::uint64_t tensor_bytes(const ExpertTensor& tensor) {
  const std::uint64_t element = tensor.type == TensorType::f32    ? 4
                                : tensor.type == TensorType::bf16 ? 2
                                                                  : 1;
  return static_cast<std::uint64_t>(tensor.rows) * static_cast<std::uint64_t>(tensor.cols) *
         element;
}

std::string describe(const ExpertTensor& tensor) {
  const std::int64_t shape[] = {tensor.rows, tensor.cols};
  return describe_tensor(tensor.type, shape);
}

std::size_t widened(const Extent& extent) {
  return widened_bytes(extent.offset, static_cast<std::size_t>(extent.bytes));
}

// In positions_: weights of w1, w2, w3, then their scales.
std::size_t position_of(ExpertPart part, bool is_scale) {
  return static_cast<std::size_t>(part) + (is_scale ? std::size_t{kExpertParts} : 0);
}

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::model, message);
}

}  // namespace

std::vector<std::int32_t> string_order_rank(std::int32_t experts) {
  const auto count = static_cast<std::size_t>(std::max(experts, 0));
  std::vector<std::string> names(count);
  std::vector<std::size_t> order(count);
  for (std::size_t e = 0; e < count; ++e) names[e] = std::to_string(e);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  std::vector<std::int32_t> rank(count);
  for (std::size_t i = 0; i < count; ++i) rank[order[i]] = static_cast<std::int32_t>(i);
  return rank;
}

ExpertStore::ExpertStore(const TensorIndex& index, const ExpertShape& shape,
                         const std::vector<bool>& is_moe_layer)
    : index_(&index), shape_(shape), rank_(string_order_rank(shape.experts)) {
  assert(is_moe_layer.size() == static_cast<std::size_t>(shape.layers));
  const std::vector<ExpertTensor>& tensors = index.expert_tensors();
  if (!tensors.empty()) {
    // The first tensor says what all must be.
    const ExpertTensor& first = tensors.front();
    format_ = first.is_packed || first.is_scale ? WeightFormat::mxfp4
              : first.type == TensorType::bf16  ? WeightFormat::bf16
                                                : WeightFormat::f32;
  }
  check_shape();
  check_tensors(is_moe_layer);
  first_row_.assign(is_moe_layer.size(), -1);
  std::size_t rows = 0;
  for (std::size_t layer = 0; layer < is_moe_layer.size(); ++layer) {
    if (!is_moe_layer[layer]) continue;
    first_row_[layer] = static_cast<std::int32_t>(rows);
    rows += static_cast<std::size_t>(shape.experts);
  }
  extents_.reserve(rows);
  extents_begin_.reserve(rows + 1);
  positions_.reserve(rows);
  extents_begin_.push_back(0);
  const std::size_t count = tensors_per_expert();
  for (std::size_t row = 0; row < rows; ++row)
    place(std::span(tensors).subspan(row * count, count));
}

std::size_t ExpertStore::tensors_per_expert() const {
  return format_ == WeightFormat::mxfp4 ? std::size_t{kExpertParts} * 2 : kExpertParts;
}

void ExpertStore::check_shape() const {
  constexpr std::int32_t kMaxId = 1 << 16;  // ids of layers and experts are kept in 16 bits
  if (shape_.layers < 0 || shape_.layers > kMaxId || shape_.experts < 1 ||
      shape_.experts > kMaxId || shape_.input < 1 || shape_.intermediate < 1) {
    fail("routed experts: " + std::to_string(shape_.experts) + " in each of " +
         std::to_string(shape_.layers) + " layers, " + std::to_string(shape_.intermediate) + " x " +
         std::to_string(shape_.input) + ", expected 1 to 65536 of each and positive sizes");
  }
  if (format_ == WeightFormat::mxfp4 &&
      (shape_.input % kMxfp4BlockCols != 0 || shape_.intermediate % kMxfp4BlockCols != 0)) {
    fail("MXFP4 experts of " + std::to_string(shape_.intermediate) + " x " +
         std::to_string(shape_.input) + ", expected multiples of " +
         std::to_string(kMxfp4BlockCols));
  }
}

// Walks the tensors of the files and those that must be there side by side: both are in the order
// of their keys, so the first difference is a missing, an extra or a wrong tensor.
void ExpertStore::check_tensors(const std::vector<bool>& is_moe_layer) const {
  const std::vector<ExpertTensor>& tensors = index_->expert_tensors();
  const auto fail_extra = [&](const ExpertTensor& tensor) {
    const bool has_experts = tensor.layer < is_moe_layer.size() && is_moe_layer[tensor.layer];
    fail(index_->source(tensor.source).name() + ": tensor " + expert_tensor_name(tensor) +
         " is not expected: " +
         (!has_experts ? "layer " + std::to_string(tensor.layer) + " has no routed experts"
          : tensor.expert >= shape_.experts
              ? "a layer has " + std::to_string(shape_.experts) + " experts"
              : "other experts are " + std::string(format_name(format_))));
  };
  std::size_t i = 0;
  const auto check = [&](const ExpertTensor& expected) {
    const std::uint64_t key = expert_tensor_key(expected);
    if (i < tensors.size() && expert_tensor_key(tensors[i]) < key) fail_extra(tensors[i]);
    if (i == tensors.size() || expert_tensor_key(tensors[i]) != key) {
      fail("tensor " + expert_tensor_name(expected) + " is missing");
    }
    const ExpertTensor& found = tensors[i++];
    if (found.type != expected.type || found.rows != expected.rows || found.cols != expected.cols) {
      fail(index_->source(found.source).name() + ": tensor " + expert_tensor_name(found) + " is " +
           describe(found) + ", expected " + describe(expected));
    }
  };
  const std::vector<ExpertTensor> expected = expected_tensors(shape_, format_);
  for (std::size_t layer = 0; layer < is_moe_layer.size(); ++layer) {
    if (!is_moe_layer[layer]) continue;
    for (std::int32_t expert = 0; expert < shape_.experts; ++expert) {
      for (ExpertTensor tensor : expected) {
        tensor.layer = static_cast<std::uint16_t>(layer);
        tensor.expert = static_cast<std::uint16_t>(expert);
        check(tensor);
      }
    }
  }
  if (i < tensors.size()) fail_extra(tensors[i]);
}

// Turns the tensors of one expert into extents and places in a slot.
void ExpertStore::place(std::span<const ExpertTensor> tensors) {
  std::vector<const ExpertTensor*> by_offset;
  for (const ExpertTensor& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const ExpertTensor* a, const ExpertTensor* b) {
    return std::pair(a->source, a->offset) < std::pair(b->source, b->offset);
  });
  const std::size_t first = extents_.size();
  std::size_t base = 0;  // in the slot, of the page that the current extent begins in
  std::uint64_t payload = 0;
  auto& positions = positions_.emplace_back();
  for (const ExpertTensor* tensor : by_offset) {
    const bool adjacent = extents_.size() > first && extents_.back().source == tensor->source &&
                          extents_.back().offset + extents_.back().bytes == tensor->offset;
    if (!adjacent) {
      if (extents_.size() > first) base += widened(extents_.back());
      extents_.push_back({tensor->offset, 0, tensor->source});
    }
    Extent& extent = extents_.back();
    positions[position_of(tensor->part, tensor->is_scale)] =
        base + extent.offset % kPageBytes + (tensor->offset - extent.offset);
    extent.bytes += tensor_bytes(*tensor);
    payload += tensor_bytes(*tensor);
  }
  expert_bytes_ = payload;
  slot_bytes_ = std::max(slot_bytes_, base + widened(extents_.back()));
  extents_begin_.push_back(static_cast<std::uint32_t>(extents_.size()));
}

std::size_t ExpertStore::row_of(std::int32_t layer, std::int32_t expert) const {
  assert(layer >= 0 && layer < shape_.layers && expert >= 0 && expert < shape_.experts);
  const std::int32_t first = first_row_[static_cast<std::size_t>(layer)];
  assert(first >= 0);
  return static_cast<std::size_t>(first) + static_cast<std::size_t>(expert);
}

std::span<const Extent> ExpertStore::extents(std::int32_t layer, std::int32_t expert) const {
  const std::size_t row = row_of(layer, expert);
  return std::span(extents_).subspan(extents_begin_[row],
                                     extents_begin_[row + 1] - extents_begin_[row]);
}

ExpertView ExpertStore::view(std::int32_t layer, std::int32_t expert, const std::byte* slot) const {
  const auto& positions = positions_[row_of(layer, expert)];
  const auto* bytes = reinterpret_cast<const unsigned char*>(slot);
  const auto matrix = [&](ExpertPart part) {
    const bool is_down = part == ExpertPart::w2;
    WeightMatrix result;
    result.data = bytes + positions[position_of(part, false)];
    if (format_ == WeightFormat::mxfp4) result.scales = bytes + positions[position_of(part, true)];
    result.rows = is_down ? shape_.input : shape_.intermediate;
    result.cols = is_down ? shape_.intermediate : shape_.input;
    result.format = format_;
    return result;
  };
  return {matrix(ExpertPart::w1), matrix(ExpertPart::w2), matrix(ExpertPart::w3)};
}

void ExpertStore::check_scales(std::int32_t layer, std::int32_t expert,
                               const std::byte* slot) const {
  if (format_ != WeightFormat::mxfp4) return;
  const ExpertView matrices = view(layer, expert, slot);
  const WeightMatrix* parts[kExpertParts] = {&matrices.w1, &matrices.w2, &matrices.w3};
  for (std::size_t part = 0; part < kExpertParts; ++part) {
    const WeightMatrix& matrix = *parts[part];
    const std::size_t row_bytes = row_scale_bytes(matrix.format, matrix.cols);
    const std::size_t bytes = static_cast<std::size_t>(matrix.rows) * row_bytes;
    const void* found = std::memchr(matrix.scales, kMxfp4ScaleNan, bytes);
    if (found == nullptr) continue;
    const auto at =
        static_cast<std::size_t>(static_cast<const unsigned char*>(found) - matrix.scales);
    const std::size_t i = row_of(layer, expert) * tensors_per_expert() + part * 2 + 1;
    const ExpertTensor& tensor = index_->expert_tensors()[i];
    fail(index_->source(tensor.source).name() + ": tensor " + expert_tensor_name(tensor) +
         " has scale byte 255 in row " + std::to_string(at / row_bytes) + ", block " +
         std::to_string(at % row_bytes) + ", expected at most 254");
  }
}

}  // namespace penstock

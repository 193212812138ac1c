// SPDX-License-Identifier: Apache-2.0
#include "engine/model/embedding.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace penstock {
namespace {

// `from` may lie at any alignment.
void widen_row(const std::byte* from, WeightFormat format, std::size_t n, float* to) {
  if (format == WeightFormat::f32) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, from + i * sizeof half, sizeof half);
    const std::uint32_t bits = std::uint32_t{half} << 16U;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

WeightFormat checked_format(const TensorIndex& index, const std::string& name, std::int32_t vocab,
                            std::int32_t hidden) {
  const TensorInfo& tensor = index.get(name);
  const std::vector<std::int64_t> shape{vocab, hidden};
  if (tensor.shape == shape && tensor.type == TensorType::bf16) return WeightFormat::bf16;
  if (tensor.shape == shape && tensor.type == TensorType::f32) return WeightFormat::f32;
  throw Error(ErrorCode::model, index.source(tensor.source).name() + ": tensor " + name +
                                    ": expected " + describe_tensor(TensorType::bf16, shape) +
                                    " or F32, found " + describe_tensor(tensor.type, tensor.shape));
}

}  // namespace

EmbeddingTable::EmbeddingTable(const TensorIndex& index, const std::string& name,
                               std::int32_t vocab, std::int32_t hidden, std::int32_t max_rows)
    : hidden_(hidden), format_(checked_format(index, name, vocab, hidden)) {
  const TensorInfo& tensor = index.get(name);
  source_ = &index.source(tensor.source);
  offset_ = tensor.offset;
  row_bytes_ = row_data_bytes(format_, hidden);
  stride_ = round_up(row_bytes_, kPageBytes) + kPageBytes;  // a row begins anywhere in a page
  memory_ = Buffer(static_cast<std::size_t>(max_rows) * stride_, "embedding rows");
}

void EmbeddingTable::wait(ReadQueue& queue, const StopFlag* stop) {
  try {
    queue.wait(*pending_, stop);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled) {
      queue.cancel(*pending_);  // the read keeps the memory until the next call has waited for it
      throw;
    }
    pending_.reset();
    throw Error(error.code(), std::string("embedding: ") + error.what());
  }
  pending_.reset();
}

void EmbeddingTable::read(ReadQueue& queue, std::span<const Token> ids, const StopFlag* stop,
                          float* out) {
  if (pending_) wait(queue, stop);
  std::vector<Token> distinct(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<ReadOp> ops;
  ops.reserve(distinct.size());
  for (const Token id : distinct) {
    ops.push_back({.source = source_,
                   .offset = offset_ + static_cast<std::uint64_t>(id) * row_bytes_,
                   .bytes = row_bytes_,
                   .memory = memory_.data() + ops.size() * stride_,
                   .direct = false});
  }
  pending_ = queue.submit(ops, ReadPriority::demand);
  wait(queue, stop);
  bytes_read_ += distinct.size() * row_bytes_;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const auto i = static_cast<std::size_t>(
        std::lower_bound(distinct.begin(), distinct.end(), ids[t]) - distinct.begin());
    widen_row(ops[i].memory + ops[i].offset % kPageBytes, format_,
              static_cast<std::size_t>(hidden_), out + t * static_cast<std::size_t>(hidden_));
  }
}

}  // namespace penstock

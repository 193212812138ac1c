// SPDX-License-Identifier: Apache-2.0
//
// The embedding table, left on disk and read by row: through the page cache, which keeps the rows
// of common tokens. One owner thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/base/buffer.h"
#include "engine/base/stop_flag.h"
#include "engine/base/token.h"
#include "engine/io/read_queue.h"
#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

class EmbeddingTable {
 public:
  // Reads at most `max_rows` at a time. Throws Error(model) when the tensor is not BF16 or F32
  // [vocab][hidden]. The index outlives the table.
  EmbeddingTable(const TensorIndex& index, const std::string& name, std::int32_t vocab,
                 std::int32_t hidden, std::int32_t max_rows);

  // out [ids][hidden] = the rows of `ids`, widened to fp32; each distinct row is read once. Ids are
  // in [0, vocab), at most max_rows. Throws Error(io); Error(cancelled) as soon as `stop` is set.
  void read(ReadQueue& queue, std::span<const Token> ids, const StopFlag* stop, float* out);

  std::uint64_t bytes_read() const { return bytes_read_; }  // payload so far
  std::uint64_t memory_bytes() const { return memory_.size(); }

 private:
  void wait(ReadQueue& queue, const StopFlag* stop);

  const ByteSource* source_;
  std::uint64_t offset_;
  std::size_t row_bytes_;
  std::size_t stride_;  // bytes of memory per row
  std::int32_t hidden_;
  WeightFormat format_;
  Buffer memory_;
  std::optional<ReadId> pending_;  // a cancelled wait leaves its read behind; it owns the memory
  std::uint64_t bytes_read_ = 0;
};

}  // namespace penstock

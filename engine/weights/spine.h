// SPDX-License-Identifier: Apache-2.0
//
// The spine's matrices in memory. A unit (a layer, the output head) is one or more segments of at
// most kMaxSegmentBytes, read in the order in which its matrices are used. Today every segment is
// resident; streaming through window buffers comes behind the same interface. One owner thread;
// matrices may be read by any thread while their lease lives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/read_queue.h"
#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

inline constexpr std::uint64_t kMaxSegmentBytes = 1'300'000'000;

// Rows [row_begin, row_begin + rows) of the tensor `name`, which is [tensor_rows][cols].
struct SpineMatrix {
  std::string name;
  std::int32_t tensor_rows;
  std::int32_t cols;
  std::int32_t row_begin;
  std::int32_t rows;
};

// What the model wants together, in order of use.
struct SpineUnit {
  std::string name;  // for messages and plan: "layer 3", "lm_head"
  std::vector<SpineMatrix> matrices;
};

// The whole tensor as one SpineMatrix, or cut by rows into pieces of at most kMaxSegmentBytes.
std::vector<SpineMatrix> spine_matrices(const TensorIndex& index, const std::string& name,
                                        std::int32_t rows, std::int32_t cols);

// One piece of a tensor's bytes at its place in a segment.
struct SegmentMatrix {
  std::uint64_t offset;  // absolute, in the source
  std::uint64_t bytes;
  std::uint64_t position;  // of the first byte in the segment's memory
  std::uint32_t source;
  WeightFormat format;
};

struct SpineSegment {
  std::int32_t unit;
  std::int32_t first_matrix;  // of the unit
  std::vector<SegmentMatrix> matrices;
  std::uint64_t payload_bytes;
  std::uint64_t memory_bytes;  // with the pages that widen its reads
};

// Checks every matrix against the index and packs them, in order of use, into segments; a segment
// never crosses a unit. Neighbours in the file become one read.
// Throws Error(model) naming file, tensor, expected and found.
std::vector<SpineSegment> plan_segments(const TensorIndex& index,
                                        const std::vector<SpineUnit>& units);

// Keeps a unit's matrices in memory. Move-only.
class LayerLease {
 public:
  // Matrix i of the unit, in order of use. With streaming, asking for a matrix of the next segment
  // ends the life of the views of the one before.
  const WeightMatrix& matrix(std::size_t i) const { return (*matrices_)[i]; }

 private:
  friend class SpineStore;
  explicit LayerLease(const std::vector<WeightMatrix>* matrices) : matrices_(matrices) {}
  const std::vector<WeightMatrix>* matrices_;
};

// What goes on while weights are read.
struct LoadHooks {
  const StopFlag* stop = nullptr;  // ends the load with Error(cancelled)
  // Called by the loading thread as bytes arrive; may be empty.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress{};
};

class SpineStore {
 public:
  // Reads every segment into memory. Index and queue outlive the store.
  // Throws Error(io), Error(memory); Error(cancelled) when hooks.stop is set meanwhile.
  SpineStore(const TensorIndex& index, ReadQueue& queue, const std::vector<SpineUnit>& units,
             const LoadHooks& hooks);
  SpineStore(const SpineStore&) = delete;
  SpineStore& operator=(const SpineStore&) = delete;
  ~SpineStore();

  LayerLease acquire(std::int32_t unit) const;

  std::uint64_t payload_bytes() const;  // of all matrices
  std::uint64_t memory_bytes() const;   // that they take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Where the spine's matrices lie in the files, and how they are packed into memory. A unit is what
// the model uses together (a layer's attention, its feed-forward part, a piece of the output head);
// it is read and leased as one segment. Plain data and functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/io/byte_source.h"
#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

// No unit of a known model is larger: two windows of this size stream any of them.
inline constexpr std::uint64_t kMaxSegmentBytes = 1'300'000'000;

// Rows [row_begin, row_begin + rows) of the tensor `name`, which is [tensor_rows][cols].
struct SpineMatrix {
  std::string name;
  std::int32_t tensor_rows;
  std::int32_t cols;
  std::int32_t row_begin;
  std::int32_t rows;
};

struct SpineUnit {
  std::string name;                   // for messages: "layer 3 attention"
  std::vector<SpineMatrix> matrices;  // at least one, in order of use
};

// The files that a spine is read from.
struct SpineFiles {
  const TensorIndex* published;
  const TensorIndex* sidecar = nullptr;  // recoded tensors (sidecar.h); others are as published
};

// Bytes of a file at their place in a segment's memory.
struct SegmentPart {
  const ByteSource* source = nullptr;
  std::uint64_t offset = 0;    // absolute, in the source
  std::uint64_t bytes = 0;     // 0: there is no such part
  std::uint64_t position = 0;  // of the first byte in the segment's memory
};

struct SegmentMatrix {
  SegmentPart data;
  SegmentPart scales;  // int8: a scale per row; bf12: the pieces of raw blocks
  std::int32_t rows;
  std::int32_t cols;
  WeightFormat format;
  std::uint32_t first_piece = 0;  // bf12: of those in `scales`
};

// A contiguous range of a source; parts that follow one another in the file share one.
struct SegmentRead {
  const ByteSource* source;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t base;  // of its first page in the segment's memory
};

struct SpineSegment {
  std::string name;  // of the unit
  std::vector<SegmentMatrix> matrices;
  std::vector<SegmentRead> reads;
  std::uint64_t payload_bytes;
  std::uint64_t memory_bytes;  // with the pages that widen its reads
};

// One segment per unit, every matrix checked against the files. Throws Error(model) naming file,
// tensor, expected and found; Error(io).
std::vector<SpineSegment> plan_segments(const SpineFiles& files,
                                        const std::vector<SpineUnit>& units);

// The whole tensor, cut by rows into pieces of like size, at most `max_bytes` each as published
// (but at least a row). Throws as plan_segments.
std::vector<SpineMatrix> cut_by_rows(const TensorIndex& index, const std::string& name,
                                     std::int32_t rows, std::int32_t cols, std::uint64_t max_bytes);

// Memory of each segment.
std::vector<std::uint64_t> segment_memory(const std::vector<SpineSegment>& segments);

// The matrices of a segment whose reads have landed in `memory`.
std::vector<WeightMatrix> segment_views(const SpineSegment& segment, const std::byte* memory);

}  // namespace penstock

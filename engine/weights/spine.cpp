// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <utility>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kSegmentsInFlight = 3;  // memory of the next is touched while one is read

// The tensor behind a matrix, when it is what the matrix says.
const TensorInfo& checked_tensor(const TensorIndex& index, const std::string& name,
                                 std::int32_t rows, std::int32_t cols) {
  const TensorInfo& info = index.get(name);
  const bool is_float = info.type == TensorType::f32 || info.type == TensorType::bf16;
  const std::int64_t expected[] = {rows, cols};
  if (!is_float ||
      !std::equal(info.shape.begin(), info.shape.end(), std::begin(expected), std::end(expected))) {
    throw Error(ErrorCode::model, index.source(info.source).name() + ": tensor " + name + " is " +
                                      describe_tensor(info.type, info.shape) +
                                      ", expected BF16 or F32 [" + std::to_string(rows) + ", " +
                                      std::to_string(cols) + "]");
  }
  return info;
}

WeightFormat format_of(const TensorInfo& info) {
  return info.type == TensorType::bf16 ? WeightFormat::bf16 : WeightFormat::f32;
}

SegmentMatrix locate(const TensorIndex& index, const SpineMatrix& matrix) {
  const TensorInfo& info = checked_tensor(index, matrix.name, matrix.tensor_rows, matrix.cols);
  assert(matrix.row_begin >= 0 && matrix.rows >= 1 &&
         matrix.rows <= matrix.tensor_rows - matrix.row_begin);
  const std::uint64_t row_bytes = row_data_bytes(format_of(info), matrix.cols);
  return {.offset = info.offset + static_cast<std::uint64_t>(matrix.row_begin) * row_bytes,
          .bytes = static_cast<std::uint64_t>(matrix.rows) * row_bytes,
          .position = 0,
          .source = info.source,
          .format = format_of(info)};
}

// A contiguous range of a source and the place of its first page in the segment's memory.
struct Run {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t base;
  std::uint32_t source;
};

// The reads of a set of matrices: neighbours in the file become one. Sets each position.
std::vector<Run> place(std::vector<SegmentMatrix>& matrices) {
  std::vector<SegmentMatrix*> by_offset;
  by_offset.reserve(matrices.size());
  for (SegmentMatrix& matrix : matrices) by_offset.push_back(&matrix);
  std::sort(by_offset.begin(), by_offset.end(), [](const SegmentMatrix* a, const SegmentMatrix* b) {
    return std::pair(a->source, a->offset) < std::pair(b->source, b->offset);
  });
  std::vector<Run> runs;
  for (SegmentMatrix* matrix : by_offset) {
    const bool adjacent = !runs.empty() && runs.back().source == matrix->source &&
                          runs.back().offset + runs.back().bytes == matrix->offset;
    if (!adjacent) {
      const std::uint64_t base =
          runs.empty() ? 0
                       : runs.back().base + widened_bytes(runs.back().offset, runs.back().bytes);
      runs.push_back({matrix->offset, 0, base, matrix->source});
    }
    Run& run = runs.back();
    matrix->position = run.base + run.offset % kPageBytes + run.bytes;
    run.bytes += matrix->bytes;
  }
  return runs;
}

void close_segment(SpineSegment& segment) {
  const std::vector<Run> runs = place(segment.matrices);
  segment.memory_bytes = runs.back().base + widened_bytes(runs.back().offset, runs.back().bytes);
}

}  // namespace

std::vector<SpineMatrix> spine_matrices(const TensorIndex& index, const std::string& name,
                                        std::int32_t rows, std::int32_t cols) {
  assert(rows >= 1 && cols >= 1);
  const TensorInfo& info = checked_tensor(index, name, rows, cols);
  const std::uint64_t row_bytes = row_data_bytes(format_of(info), cols);
  if (row_bytes > kMaxSegmentBytes) {
    throw Error(ErrorCode::model, index.source(info.source).name() + ": tensor " + name +
                                      " has rows of " + std::to_string(row_bytes) +
                                      " bytes, expected at most " +
                                      std::to_string(kMaxSegmentBytes));
  }
  const auto most = static_cast<std::int64_t>(kMaxSegmentBytes / row_bytes);
  const std::int64_t pieces = (rows + most - 1) / most;
  std::vector<SpineMatrix> matrices;
  // Pieces of like size keep the window buffers of streaming small.
  for (std::int64_t i = 0; i < pieces; ++i) {
    const auto begin = static_cast<std::int32_t>(rows * i / pieces);
    const auto end = static_cast<std::int32_t>(rows * (i + 1) / pieces);
    matrices.push_back({name, rows, cols, begin, end - begin});
  }
  return matrices;
}

std::vector<SpineSegment> plan_segments(const TensorIndex& index,
                                        const std::vector<SpineUnit>& units) {
  std::vector<SpineSegment> segments;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    SpineSegment* segment = nullptr;
    for (std::size_t i = 0; i < units[unit].matrices.size(); ++i) {
      const SegmentMatrix matrix = locate(index, units[unit].matrices[i]);
      if (segment == nullptr || segment->payload_bytes + matrix.bytes > kMaxSegmentBytes) {
        segment = &segments.emplace_back(SpineSegment{.unit = static_cast<std::int32_t>(unit),
                                                      .first_matrix = static_cast<std::int32_t>(i),
                                                      .matrices = {},
                                                      .payload_bytes = 0,
                                                      .memory_bytes = 0});
      }
      segment->matrices.push_back(matrix);
      segment->payload_bytes += matrix.bytes;
    }
  }
  for (SpineSegment& segment : segments) close_segment(segment);
  return segments;
}

struct SpineStore::State {
  std::vector<Buffer> memory;                       // [segments]
  std::vector<std::vector<WeightMatrix>> matrices;  // [units][matrices of the unit]
  std::uint64_t payload_bytes = 0;
  std::uint64_t memory_bytes = 0;
};

namespace {

ReadId submit(const TensorIndex& index, ReadQueue& queue, SpineSegment& segment,
              const Buffer& memory) {
  std::vector<ReadOp> ops;
  for (const Run& run : place(segment.matrices)) {
    ops.push_back({.source = &index.source(run.source),
                   .offset = run.offset,
                   .bytes = static_cast<std::size_t>(run.bytes),
                   .memory = memory.data() + run.base});
  }
  return queue.submit(ops, ReadPriority::spine);
}

std::uint64_t payload_of(const std::vector<SpineSegment>& segments) {
  std::uint64_t bytes = 0;
  for (const SpineSegment& segment : segments) bytes += segment.payload_bytes;
  return bytes;
}

// Reads in flight that are ended before their memory goes, whatever happens.
class ReadsInFlight {
 public:
  ReadsInFlight(ReadQueue& queue, const LoadHooks& hooks, std::uint64_t total_bytes)
      : queue_(queue), hooks_(hooks), total_bytes_(total_bytes) {}
  ReadsInFlight(const ReadsInFlight&) = delete;
  ReadsInFlight& operator=(const ReadsInFlight&) = delete;
  ~ReadsInFlight() {
    for (const Read& read : reads_) queue_.cancel(read.id);
    for (const Read& read : reads_) queue_.wait(read.id, nullptr);  // does not throw after a cancel
  }

  void add(ReadId id, std::uint64_t bytes) { reads_.push_back({id, bytes}); }
  void wait_until_at_most(std::size_t count) {
    if (hooks_.stop != nullptr && hooks_.stop->stop_requested()) {
      throw Error(ErrorCode::cancelled, "stopped while reading the spine");
    }
    while (reads_.size() > count) {
      const Read read = reads_.front();
      reads_.pop_front();
      try {
        queue_.wait(read.id, hooks_.stop);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::cancelled) reads_.push_front(read);  // still live
        throw;
      }
      done_bytes_ += read.bytes;
      if (hooks_.progress) hooks_.progress(done_bytes_, total_bytes_);
    }
  }

 private:
  struct Read {
    ReadId id;
    std::uint64_t bytes;
  };

  ReadQueue& queue_;
  const LoadHooks& hooks_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::deque<Read> reads_;
};

}  // namespace

SpineStore::SpineStore(const TensorIndex& index, ReadQueue& queue,
                       const std::vector<SpineUnit>& units, const LoadHooks& hooks)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  std::vector<SpineSegment> segments = plan_segments(index, units);
  state.matrices.resize(units.size());
  state.memory.reserve(segments.size());
  ReadsInFlight reads(queue, hooks, payload_of(segments));
  for (SpineSegment& segment : segments) {
    reads.wait_until_at_most(kSegmentsInFlight - 1);
    const Buffer& memory =
        state.memory.emplace_back(static_cast<std::size_t>(segment.memory_bytes), "the spine");
    reads.add(submit(index, queue, segment, memory), segment.payload_bytes);
    const auto unit = static_cast<std::size_t>(segment.unit);
    for (const SegmentMatrix& located : segment.matrices) {
      const SpineMatrix& matrix = units[unit].matrices[state.matrices[unit].size()];
      WeightMatrix view;
      view.data = reinterpret_cast<const unsigned char*>(memory.data() + located.position);
      view.rows = matrix.rows;
      view.cols = matrix.cols;
      view.format = located.format;
      state.matrices[unit].push_back(view);
    }
    state.payload_bytes += segment.payload_bytes;
    state.memory_bytes += segment.memory_bytes;
  }
  reads.wait_until_at_most(0);
}

SpineStore::~SpineStore() = default;

LayerLease SpineStore::acquire(std::int32_t unit) const {
  return LayerLease(&state_->matrices[static_cast<std::size_t>(unit)]);
}

std::uint64_t SpineStore::payload_bytes() const {
  return state_->payload_bytes;
}

std::uint64_t SpineStore::memory_bytes() const {
  return state_->memory_bytes;
}

}  // namespace penstock

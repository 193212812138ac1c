// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/spine_segments.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_queue.h"
#include "engine/weights/sidecar.h"

namespace penstock {
namespace {

bool has_shape(const TensorInfo& info, std::int32_t rows, std::int32_t cols) {
  const std::int64_t expected[] = {rows, cols};
  return std::equal(info.shape.begin(), info.shape.end(), std::begin(expected), std::end(expected));
}

// The published tensor behind a matrix, when it is what the matrix says.
const TensorInfo& checked_tensor(const TensorIndex& index, const std::string& name,
                                 std::int32_t rows, std::int32_t cols) {
  const TensorInfo& info = index.get(name);
  const bool is_float = info.type == TensorType::f32 || info.type == TensorType::bf16;
  if (!is_float || !has_shape(info, rows, cols)) {
    throw Error(ErrorCode::model, index.source(info.source).name() + ": tensor " + name + " is " +
                                      describe_tensor(info.type, info.shape) +
                                      ", expected BF16 or F32 [" + std::to_string(rows) + ", " +
                                      std::to_string(cols) + "]");
  }
  return info;
}

WeightFormat published_format(const TensorInfo& info) {
  return info.type == TensorType::bf16 ? WeightFormat::bf16 : WeightFormat::f32;
}

// `count` items of `item_bytes` from item `first` on.
SegmentPart items(const TensorIndex& index, const TensorInfo& info, std::int64_t first,
                  std::int64_t count, std::uint64_t item_bytes) {
  return {.source = &index.source(info.source),
          .offset = info.offset + static_cast<std::uint64_t>(first) * item_bytes,
          .bytes = static_cast<std::uint64_t>(count) * item_bytes};
}

SegmentMatrix locate_published(const TensorIndex& index, const SpineMatrix& matrix) {
  const TensorInfo& info = checked_tensor(index, matrix.name, matrix.tensor_rows, matrix.cols);
  const WeightFormat format = published_format(info);
  return {.data = items(index, info, matrix.row_begin, matrix.rows,
                        row_data_bytes(format, matrix.cols)),
          .scales = {},
          .rows = matrix.rows,
          .cols = matrix.cols,
          .format = format};
}

SegmentMatrix locate_int8(const TensorIndex& sidecar, const TensorInfo& data,
                          const SpineMatrix& matrix) {
  const TensorInfo& scales = sidecar.get(sidecar_scales_name(matrix.name, WeightFormat::int8_rows));
  return {.data = items(sidecar, data, matrix.row_begin, matrix.rows,
                        static_cast<std::uint64_t>(matrix.cols)),
          .scales = items(sidecar, scales, matrix.row_begin, matrix.rows, sizeof(float)),
          .rows = matrix.rows,
          .cols = matrix.cols,
          .format = WeightFormat::int8_rows};
}

SegmentMatrix locate_bf12(const TensorIndex& sidecar, const TensorInfo& data,
                          const SpineMatrix& matrix) {
  const Bf12PieceRange range =
      sidecar_pieces(sidecar, {matrix.name, matrix.tensor_rows, matrix.cols}, matrix.row_begin,
                     matrix.row_begin + matrix.rows);
  const TensorInfo& pieces = sidecar.get(sidecar_scales_name(matrix.name, WeightFormat::bf12));
  return {.data = items(sidecar, data, matrix.row_begin, matrix.rows,
                        row_data_bytes(WeightFormat::bf12, matrix.cols)),
          .scales = items(sidecar, pieces, range.first, range.count, kBf12PieceBytes),
          .rows = matrix.rows,
          .cols = matrix.cols,
          .format = WeightFormat::bf12,
          .first_piece = range.first};
}

SegmentMatrix locate(const SpineFiles& files, const SpineMatrix& matrix) {
  assert(matrix.row_begin >= 0 && matrix.rows >= 1 &&
         matrix.rows <= matrix.tensor_rows - matrix.row_begin);
  if (files.sidecar != nullptr) {
    if (const TensorInfo* bf12 =
            files.sidecar->find(sidecar_data_name(matrix.name, WeightFormat::bf12))) {
      return locate_bf12(*files.sidecar, *bf12, matrix);
    }
    if (const TensorInfo* int8 =
            files.sidecar->find(sidecar_data_name(matrix.name, WeightFormat::int8_rows))) {
      return locate_int8(*files.sidecar, *int8, matrix);
    }
  }
  return locate_published(*files.published, matrix);
}

// Packs the parts into memory in the order of the files and sets their positions. Each read begins
// on a page.
void pack(SpineSegment& segment) {
  std::vector<SegmentPart*> parts;
  for (SegmentMatrix& matrix : segment.matrices) {
    parts.push_back(&matrix.data);
    if (matrix.scales.bytes > 0) parts.push_back(&matrix.scales);
  }
  std::sort(parts.begin(), parts.end(), [](const SegmentPart* a, const SegmentPart* b) {
    if (a->source != b->source) return std::less<>()(a->source, b->source);
    return a->offset < b->offset;
  });
  for (SegmentPart* part : parts) {
    const bool adjacent = !segment.reads.empty() && segment.reads.back().source == part->source &&
                          segment.reads.back().offset + segment.reads.back().bytes == part->offset;
    if (!adjacent) segment.reads.push_back({part->source, part->offset, 0, segment.memory_bytes});
    SegmentRead& read = segment.reads.back();
    part->position = read.base + read.offset % kPageBytes + read.bytes;
    read.bytes += part->bytes;
    segment.payload_bytes += part->bytes;
    segment.memory_bytes =
        read.base + widened_bytes(read.offset, static_cast<std::size_t>(read.bytes));
  }
}

}  // namespace

std::vector<SpineSegment> plan_segments(const SpineFiles& files,
                                        const std::vector<SpineUnit>& units) {
  std::vector<SpineSegment> segments;
  segments.reserve(units.size());
  for (const SpineUnit& unit : units) {
    SpineSegment& segment = segments.emplace_back();
    segment.name = unit.name;
    for (const SpineMatrix& matrix : unit.matrices) {
      segment.matrices.push_back(locate(files, matrix));
    }
    pack(segment);
  }
  return segments;
}

std::vector<SpineMatrix> cut_by_rows(const TensorIndex& index, const std::string& name,
                                     std::int32_t rows, std::int32_t cols,
                                     std::uint64_t max_bytes) {
  assert(rows >= 1 && cols >= 1);
  const TensorInfo& info = checked_tensor(index, name, rows, cols);
  const std::uint64_t row_bytes = row_data_bytes(published_format(info), cols);
  const std::uint64_t most = std::max<std::uint64_t>(max_bytes / row_bytes, 1);
  const auto count = static_cast<std::uint64_t>(rows);
  const std::uint64_t pieces = (count + most - 1) / most;
  std::vector<SpineMatrix> matrices;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const auto begin = static_cast<std::int32_t>(count * i / pieces);
    const auto end = static_cast<std::int32_t>(count * (i + 1) / pieces);
    matrices.push_back({name, rows, cols, begin, end - begin});
  }
  return matrices;
}

std::vector<std::uint64_t> segment_memory(const std::vector<SpineSegment>& segments) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(segments.size());
  for (const SpineSegment& segment : segments) bytes.push_back(segment.memory_bytes);
  return bytes;
}

std::vector<WeightMatrix> segment_views(const SpineSegment& segment, const std::byte* memory) {
  std::vector<WeightMatrix> views;
  views.reserve(segment.matrices.size());
  const auto at = [memory](const SegmentPart& part) {
    return part.bytes == 0 ? nullptr
                           : reinterpret_cast<const unsigned char*>(memory + part.position);
  };
  for (const SegmentMatrix& matrix : segment.matrices) {
    views.push_back(
        {.data = at(matrix.data),
         .scales = at(matrix.scales),
         .rows = matrix.rows,
         .cols = matrix.cols,
         .format = matrix.format,
         .first_piece = matrix.first_piece,
         .pieces = matrix.format == WeightFormat::bf12
                       ? static_cast<std::uint32_t>(matrix.scales.bytes / kBf12PieceBytes)
                       : 0});
  }
  return views;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Writes a sidecar (sidecar.h) of a checkpoint. Files that are complete and made from this
// checkpoint are kept, so that an interrupted conversion goes on where it stopped; a file appears
// only when it was written, read back and decoded. Plain functions; one conversion of a folder at
// a time, which is enforced.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/base/stop_flag.h"
#include "engine/weights/sidecar.h"

namespace penstock {

struct ConvertOptions {
  WeightFormat format;             // bf12 or int8_rows
  std::string dir;                 // created where it is missing
  std::uint64_t budget_bytes;      // of memory; below convert_floor_bytes() it is that
  SourceOpener opener;             // of what was written
  const StopFlag* stop = nullptr;  // ends the conversion with Error(cancelled)
  // Called by one thread at a time, of published bytes; may be empty.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress{};
};

struct ConvertResult {
  std::uint64_t published_bytes;  // of the matrices
  std::uint64_t sidecar_bytes;    // that they have become
  std::int32_t files_kept;
  std::int32_t files_written;
};

// Throws Error(model) for a value that is not finite (shard, tensor, row and column), Error(io)
// naming the file: a read or write failed, the disk is full or too small for what is missing,
// another conversion is under way, the folder has other safetensors files, bytes came back other
// than they were written. Whatever happens,
// only complete files are left.
ConvertResult convert_spine(const TensorIndex& model, std::span<const SidecarFile> files,
                            const ConvertOptions& options);

// Memory that one file at a time takes.
std::uint64_t convert_floor_bytes();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// A sidecar: matrices of a checkpoint in a smaller format, in safetensors files of a folder of
// their own, one per layer. Published X becomes
//   bf12:      X.bf12 U8 [rows][row_data_bytes] and X.bf12_pieces U8 [pieces][64],
//   int8_rows: X.int8 I8 [rows][cols] and X.int8_scale F32 [rows],
// neighbours in the file, matrices in order of use. `__metadata__` says what a file was made from.
// Plain functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/weights/bf12.h"
#include "engine/weights/tensor_index.h"
#include "kernels/formats.h"

namespace penstock {

// Bytes of a Kimi spine over those as published, about.
inline constexpr double kBf12SpineShare = 0.76;
inline constexpr double kInt8SpineShare = 0.516;

// A matrix that the sidecar holds: BF16 in the checkpoint (for int8_rows F32 as well).
struct SidecarMatrix {
  std::string name;  // of the published tensor
  std::int32_t rows;
  std::int32_t cols;
};

struct SidecarFile {
  std::string name;                     // "layer-0003.safetensors"
  std::vector<SidecarMatrix> matrices;  // in order of use
};

const char* sidecar_format_name(WeightFormat format);  // bf12: "bf12", int8_rows: "int8"
// The folder that `penstock convert` writes and --spine reads unless told otherwise.
std::string sidecar_dir(const std::string& model_dir, WeightFormat format);
// The names of the two tensors that a published one becomes.
std::string sidecar_data_name(const std::string& name, WeightFormat format);
std::string sidecar_scales_name(const std::string& name, WeightFormat format);

// Opens the files of `dir` and checks them against the model: they are those of `files`, complete,
// of this layout, made from a checkpoint with the same tensors in the same places; one row of every
// matrix is compared with what the checkpoint makes of it. Throws Error(model) naming file, tensor,
// expected and found, and what to do; Error(io).
TensorIndex open_sidecar(const TensorIndex& model, const std::string& dir, WeightFormat format,
                         std::span<const SidecarFile> files, const SourceOpener& opener);

// The pieces that rows [row_begin, row_end) of a bf12 matrix want, which is checked. Where these
// are not all rows, it reads rows until it finds one with pieces. Throws Error(model), Error(io).
Bf12PieceRange sidecar_pieces(const TensorIndex& sidecar, const SidecarMatrix& matrix,
                              std::int32_t row_begin, std::int32_t row_end);

// The same checks for one file. Throws Error(model), Error(io).
void check_sidecar_file(const TensorIndex& model, const ByteSource& source, WeightFormat format,
                        const SidecarFile& file);

// The published tensor of a matrix. Throws Error(model) when it is not what `matrix` and `format`
// say.
const TensorInfo& sidecar_origin(const TensorIndex& model, WeightFormat format,
                                 const SidecarMatrix& matrix);

// The header of a sidecar file whose matrices have `scale_rows[i]` rows in their second tensor
// (int8_rows ignores it), padded so that the data begin at a multiple of `unit`.
std::string sidecar_header(const TensorIndex& model, WeightFormat format, const SidecarFile& file,
                           std::span<const std::uint64_t> scale_rows, std::uint64_t unit);

}  // namespace penstock

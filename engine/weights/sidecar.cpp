// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/sidecar.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/weights/bf12.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/sidecar_rows.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLayout = "1";  // changes when the meaning of the bytes does

std::string advice(WeightFormat format) {
  return std::string("; run `penstock convert MODEL --spine ") + sidecar_format_name(format) +
         "` again";
}

[[noreturn]] void fail(const ByteSource& source, WeightFormat format, const std::string& problem) {
  throw Error(ErrorCode::model, source.name() + ": " + problem + advice(format));
}

// Tells checkpoints apart by where they have the file's matrices. Their values are compared too,
// when a sidecar is opened.
std::string origin_of(const TensorIndex& model, WeightFormat format, const SidecarFile& file) {
  std::string places;
  for (const SidecarMatrix& matrix : file.matrices) {
    const TensorInfo& info = sidecar_origin(model, format, matrix);
    const ByteSource& source = model.source(info.source);
    places += matrix.name + " " + describe_tensor(info.type, info.shape) + " " + source.name() +
              " " + std::to_string(source.size()) + " " + std::to_string(info.offset) + "\n";
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(hash_bytes(
                    {reinterpret_cast<const unsigned char*>(places.data()), places.size()}, 0)));
  return text.data();
}

using Metadata = std::map<std::string, std::string>;

Metadata metadata_for(const TensorIndex& model, WeightFormat format, const SidecarFile& file) {
  return {{"format", "penstock"},
          {"layout", kLayout},
          {"origin", origin_of(model, format, file)},
          {"spine", sidecar_format_name(format)}};
}

// `__metadata__` of a file whose header was read and found good.
Metadata metadata_of(const ByteSource& source) {
  std::uint64_t length = 0;
  source.read(0, std::as_writable_bytes(std::span(&length, 1)));
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(sizeof length, std::as_writable_bytes(std::span(text)));
  const nlohmann::json header = nlohmann::json::parse(text);
  Metadata metadata;
  const auto found = header.find("__metadata__");
  if (found == header.end()) return metadata;
  for (const auto& [key, value] : found->items()) {
    if (value.is_string()) metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void check_metadata(const TensorIndex& model, const ByteSource& source, WeightFormat format,
                    const SidecarFile& file) {
  Metadata found = metadata_of(source);
  const Metadata expected = metadata_for(model, format, file);
  for (const char* key : {"format", "spine", "layout"}) {
    if (found[key] != expected.at(key)) {
      fail(source, format,
           std::string("__metadata__ has \"") + found[key].substr(0, 32) + "\" as " + key +
               ", expected \"" + expected.at(key) + "\"");
    }
  }
  if (found["origin"] != expected.at("origin")) {
    fail(source, format,
         "was made from another checkpoint (origin \"" + found["origin"].substr(0, 32) +
             "\", expected \"" + expected.at("origin") + "\")");
  }
}

struct SidecarTensor {
  std::vector<std::int64_t> shape;
  std::uint64_t offset;
  TensorType type;
};
using SidecarTensors = std::map<std::string, SidecarTensor, std::less<>>;

// The tensor of that name, with `rows` rows (-1: any number) of `cols`; cols 0: one dimension.
const SidecarTensor& checked_tensor(const ByteSource& source, WeightFormat format,
                                    const SidecarTensors& tensors, const std::string& name,
                                    const SidecarTensor& expected) {
  const auto it = tensors.find(name);
  if (it == tensors.end()) fail(source, format, "tensor " + name + " is missing");
  const SidecarTensor& found = it->second;
  std::vector<std::int64_t> shape = expected.shape;
  if (shape.front() < 0 && !found.shape.empty()) shape.front() = found.shape.front();
  if (found.type != expected.type || found.shape != shape) {
    fail(source, format,
         "tensor " + name + " is " + describe_tensor(found.type, found.shape) + ", expected " +
             describe_tensor(expected.type, shape));
  }
  return found;
}

// The types and shapes of the two tensors of a matrix; -1: any number of rows.
std::pair<SidecarTensor, SidecarTensor> expected_tensors(WeightFormat format,
                                                         const SidecarMatrix& matrix) {
  if (format == WeightFormat::bf12) {
    const auto row_bytes = static_cast<std::int64_t>(row_data_bytes(format, matrix.cols));
    return {{{matrix.rows, row_bytes}, 0, TensorType::u8},
            {{-1, kBf12PieceBytes}, 0, TensorType::u8}};
  }
  return {{{matrix.rows, matrix.cols}, 0, TensorType::i8}, {{matrix.rows}, 0, TensorType::f32}};
}

std::vector<unsigned char> read_bytes(const ByteSource& source, std::uint64_t offset,
                                      std::size_t count) {
  std::vector<unsigned char> bytes(count);
  source.read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// One row of the matrix, another one in each, against what the checkpoint makes of it.
void compare_row(const TensorIndex& model, const ByteSource& source, WeightFormat format,
                 const SidecarMatrix& matrix, const SidecarTensor& data,
                 const SidecarTensor& scales) {
  const auto row = static_cast<std::uint64_t>(std::hash<std::string>{}(matrix.name) %
                                              static_cast<std::size_t>(matrix.rows));
  const std::size_t row_bytes = row_data_bytes(format, matrix.cols);
  const auto found_data = read_bytes(source, data.offset + row * row_bytes, row_bytes);
  Bf12PieceRange range{.first = static_cast<std::uint32_t>(row), .count = 1};
  std::size_t scale_bytes = sizeof(float);
  if (format == WeightFormat::bf12) {
    range = bf12_row_pieces(found_data.data(), matrix.cols);
    scale_bytes = kBf12PieceBytes;
  }
  if (std::uint64_t{range.first} + range.count > static_cast<std::uint64_t>(scales.shape[0])) {
    fail(source, format,
         "tensor " + sidecar_scales_name(matrix.name, format) + " has " +
             std::to_string(scales.shape[0]) + " pieces, but row " + std::to_string(row) +
             " wants those up to " + std::to_string(std::uint64_t{range.first} + range.count));
  }
  const auto found_scales =
      read_bytes(source, scales.offset + range.first * scale_bytes, range.count * scale_bytes);

  const TensorInfo& origin = sidecar_origin(model, format, matrix);
  PublishedRows published{{}, origin.type, matrix.cols};
  std::vector<std::byte> bytes(published.row_bytes());
  model.source(origin.source).read(origin.offset + row * bytes.size(), bytes);
  published.bytes = bytes;
  SidecarRows expected;
  const auto bad = encode_rows(format, published, range.first, expected);
  if (bad || expected.data != found_data || expected.scales != found_scales) {
    fail(source, format,
         "row " + std::to_string(row) + " of tensor " + sidecar_data_name(matrix.name, format) +
             " was not made from the checkpoint's");
  }
}

}  // namespace

const char* sidecar_format_name(WeightFormat format) {
  assert(format == WeightFormat::bf12 || format == WeightFormat::int8_rows);
  return format == WeightFormat::bf12 ? "bf12" : "int8";
}

std::string sidecar_dir(const std::string& model_dir, WeightFormat format) {
  return (fs::path(model_dir) / "penstock" / sidecar_format_name(format)).string();
}

std::string sidecar_data_name(const std::string& name, WeightFormat format) {
  return name + "." + sidecar_format_name(format);
}

std::string sidecar_scales_name(const std::string& name, WeightFormat format) {
  return name + (format == WeightFormat::bf12 ? ".bf12_pieces" : ".int8_scale");
}

const TensorInfo& sidecar_origin(const TensorIndex& model, WeightFormat format,
                                 const SidecarMatrix& matrix) {
  const TensorInfo& info = model.get(matrix.name);
  const bool type_fits = info.type == TensorType::bf16 ||
                         (format == WeightFormat::int8_rows && info.type == TensorType::f32);
  const std::vector<std::int64_t> shape = {matrix.rows, matrix.cols};
  if (!type_fits || info.shape != shape) {
    throw Error(ErrorCode::model, model.source(info.source).name() + ": tensor " + matrix.name +
                                      " is " + describe_tensor(info.type, info.shape) +
                                      ", expected " + describe_tensor(TensorType::bf16, shape));
  }
  return info;
}

std::string sidecar_header(const TensorIndex& model, WeightFormat format, const SidecarFile& file,
                           std::span<const std::uint64_t> scale_rows, std::uint64_t unit) {
  assert(scale_rows.size() == file.matrices.size());
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata_for(model, format, file);
  std::uint64_t offset = 0;
  const auto add = [&](const std::string& name, const SidecarTensor& tensor, std::uint64_t bytes) {
    header[name] = {{"dtype", tensor_type_name(tensor.type)},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  };
  for (std::size_t i = 0; i < file.matrices.size(); ++i) {
    const SidecarMatrix& matrix = file.matrices[i];
    auto [data, scales] = expected_tensors(format, matrix);
    const auto rows = static_cast<std::uint64_t>(matrix.rows);
    add(sidecar_data_name(matrix.name, format), data, rows * row_data_bytes(format, matrix.cols));
    const bool is_bf12 = format == WeightFormat::bf12;
    if (is_bf12) scales.shape[0] = static_cast<std::int64_t>(scale_rows[i]);
    add(sidecar_scales_name(matrix.name, format), scales,
        is_bf12 ? scale_rows[i] * kBf12PieceBytes : rows * sizeof(float));
  }
  std::string text = header.dump();
  const std::uint64_t bytes = sizeof(std::uint64_t) + text.size();
  text.append(static_cast<std::size_t>((unit - bytes % unit) % unit), ' ');
  std::uint64_t length = text.size();
  std::string whole(sizeof length, '\0');
  std::memcpy(whole.data(), &length, sizeof length);
  return whole + text;
}

void check_sidecar_file(const TensorIndex& model, const ByteSource& source, WeightFormat format,
                        const SidecarFile& file) {
  SidecarTensors tensors;
  try {
    read_safetensors_header(source, [&](const SafetensorsEntry& entry) {
      tensors[std::string(entry.name)] = {entry.shape, entry.offset, entry.type};
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::model) throw;
    throw Error(ErrorCode::model, error.what() + advice(format));
  }
  check_metadata(model, source, format, file);
  for (const SidecarMatrix& matrix : file.matrices) {
    const auto [data, scales] = expected_tensors(format, matrix);
    const std::string data_name = sidecar_data_name(matrix.name, format);
    const std::string scales_name = sidecar_scales_name(matrix.name, format);
    compare_row(model, source, format, matrix,
                checked_tensor(source, format, tensors, data_name, data),
                checked_tensor(source, format, tensors, scales_name, scales));
  }
  if (tensors.size() != 2 * file.matrices.size()) {
    fail(source, format,
         "has " + std::to_string(tensors.size()) + " tensors, expected " +
             std::to_string(2 * file.matrices.size()));
  }
}

Bf12PieceRange sidecar_pieces(const TensorIndex& sidecar, const SidecarMatrix& matrix,
                              std::int32_t row_begin, std::int32_t row_end) {
  constexpr std::size_t kReadBytes = std::size_t{1} << 20U;
  const TensorInfo& data = sidecar.get(sidecar_data_name(matrix.name, WeightFormat::bf12));
  const TensorInfo& scales = sidecar.get(sidecar_scales_name(matrix.name, WeightFormat::bf12));
  const auto all = static_cast<std::uint64_t>(scales.shape[0]);
  const auto rows = static_cast<std::size_t>(matrix.rows);
  const std::size_t row_bytes = row_data_bytes(WeightFormat::bf12, matrix.cols);
  const std::size_t step = std::max<std::size_t>(1, kReadBytes / row_bytes);
  const ByteSource& source = sidecar.source(data.source);
  // Pieces before a row: the first one that it or a later row wants.
  const auto before = [&](std::size_t row) -> std::uint64_t {
    if (row == 0 || all == 0) return 0;
    for (; row < rows; row += step) {
      const std::size_t count = std::min(step, rows - row);
      const auto bytes = read_bytes(source, data.offset + row * row_bytes, count * row_bytes);
      for (std::size_t r = 0; r < count; ++r) {
        const Bf12PieceRange range = bf12_row_pieces(bytes.data() + r * row_bytes, matrix.cols);
        if (range.count > 0) return range.first;
      }
    }
    return all;
  };
  const std::uint64_t first = before(static_cast<std::size_t>(row_begin));
  const std::uint64_t end = before(static_cast<std::size_t>(row_end));
  if (first > end || end > all) {
    fail(source, WeightFormat::bf12,
         "rows " + std::to_string(row_begin) + " to " + std::to_string(row_end - 1) +
             " of tensor " + sidecar_data_name(matrix.name, WeightFormat::bf12) + " want pieces " +
             std::to_string(first) + " to " + std::to_string(end) +
             ", expected ascending ones of " + std::to_string(all));
  }
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)};
}

TensorIndex open_sidecar(const TensorIndex& model, const std::string& dir, WeightFormat format,
                         std::span<const SidecarFile> files, const SourceOpener& opener) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    throw Error(ErrorCode::model, dir + ": there is no " + sidecar_format_name(format) +
                                      " sidecar; `penstock convert MODEL --spine " +
                                      sidecar_format_name(format) + "` makes it");
  }
  std::map<std::string, const SidecarFile*> expected;
  for (const SidecarFile& file : files) expected[file.name] = &file;
  try {
    TensorIndex index = TensorIndex::open(dir, opener);
    for (std::uint32_t i = 0; i < index.source_count(); ++i) {
      const auto it = expected.find(index.source(i).name());
      if (it == expected.end()) {
        throw Error(ErrorCode::model, index.source(i).name() + ": is no part of the sidecar in " +
                                          dir + "; remove it" + advice(format));
      }
      check_sidecar_file(model, index.source(i), format, *it->second);
      expected.erase(it);
    }
    if (expected.empty()) return index;
  } catch (const Error& caught) {
    const std::string message = caught.what();
    if (caught.code() != ErrorCode::model || message.ends_with(advice(format))) throw;
    throw Error(ErrorCode::model, message + advice(format));
  }
  throw Error(ErrorCode::model,
              dir + ": " + expected.begin()->first + " is missing" + advice(format));
}

}  // namespace penstock

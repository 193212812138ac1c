// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a safetensors header: refused with an Error, or entries that lie inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/base/error.h"
#include "engine/weights/safetensors.h"

namespace {

// The file's size is a part of the input; 48 bits are more than any disk has.
constexpr std::size_t kSizeBytes = 6;

void require(bool holds) {
  if (!holds) std::abort();
}

void fuzz(std::string_view json, std::uint64_t file_bytes) {
  std::uint64_t end = 8 + json.size();
  try {
    penstock::parse_safetensors_header(json, "fuzz", file_bytes,
                                       [&](const penstock::SafetensorsEntry& entry) {
                                         require(!entry.name.empty() && entry.offset == end);
                                         end += entry.bytes;
                                         std::uint64_t elements = 1;
                                         for (const std::int64_t dimension : entry.shape) {
                                           elements *= static_cast<std::uint64_t>(dimension);
                                         }
                                         require(elements <= entry.bytes);
                                       });
    require(end == file_bytes);
  } catch (const penstock::Error& error) {
    require(error.code() == penstock::ErrorCode::model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kSizeBytes) return 0;
  std::uint64_t data_bytes = 0;
  for (std::size_t i = 0; i < kSizeBytes; ++i) data_bytes = data_bytes << 8U | data[i];
  const std::string_view json(reinterpret_cast<const char*>(data) + kSizeBytes, size - kSizeBytes);
  fuzz(json, 8 + json.size() + data_bytes);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/memory_source.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace penstock {

MemorySource::MemorySource(std::string name, std::vector<std::byte> bytes)
    : name_(std::move(name)), bytes_(std::move(bytes)) {}

void MemorySource::read(std::uint64_t offset, std::span<std::byte> out) const {
  const std::uint64_t there = offset < bytes_.size() ? bytes_.size() - offset : 0;
  const std::size_t found = std::min<std::size_t>(out.size(), there);
  if (found != 0) std::copy_n(bytes_.data() + offset, found, out.data());
  if (found == out.size()) return;
  throw Error(ErrorCode::io, name_ + ": expected " + std::to_string(out.size()) + " bytes at " +
                                 std::to_string(offset) + ", found " + std::to_string(found));
}

std::vector<std::byte> counting_bytes(std::size_t count, std::uint64_t first_offset) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t offset = first_offset + i;
    // An odd multiplier spreads the word's number over its bytes.
    const std::uint64_t word = offset / 8 * 0x9E3779B97F4A7C15ULL;
    bytes[i] = static_cast<std::byte>(word >> (offset % 8 * 8) & 0xFFU);
  }
  return bytes;
}

}  // namespace penstock

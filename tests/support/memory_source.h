// SPDX-License-Identifier: Apache-2.0
//
// A source whose bytes lie in memory. Immutable after construction.
#pragma once

#include <string>
#include <vector>

#include "engine/io/byte_source.h"

namespace penstock {

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::vector<std::byte> bytes);

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  int direct_fd() const override { return -1; }

 private:
  std::string name_;
  std::vector<std::byte> bytes_;
};

// `count` bytes in which every 8-byte word says where it lies: a byte from the wrong offset shows.
std::vector<std::byte> counting_bytes(std::size_t count, std::uint64_t first_offset = 0);

}  // namespace penstock

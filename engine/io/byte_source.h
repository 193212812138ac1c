// SPDX-License-Identifier: Apache-2.0
//
// Where bytes come from. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/buffer.h"

namespace penstock {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual const std::string& name() const = 0;  // for messages: the file name without its folder
  virtual std::uint64_t size() const = 0;

  // Fills `out` from `offset`, at any alignment. Throws Error(io) naming the file, the offset, the
  // bytes expected and found (or the system's reason).
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // A descriptor for direct reads (offset, length and memory in multiples of direct_unit()) that
  // bypass the page cache, or -1: then read() is the only way.
  virtual int direct_fd() const = 0;
  virtual std::size_t direct_unit() const { return kPageBytes; }  // a divisor of kPageBytes

  // Which drive holds it: reads of different drives do not wait for one another.
  virtual std::uint64_t drive() const { return 0; }

  // The same bytes on several drives (mirrored_source.h); a plain source is its one replica.
  virtual std::size_t replica_count() const { return 1; }
  virtual const ByteSource& replica(std::size_t /*i*/) const { return *this; }
};

// Opens a file for reading. Direct I/O is proven by a real transfer first; where the file system
// refuses, direct_fd() is -1 and `direct_refused` (if not null) says why, in one line.
// Throws Error(model) when the file does not exist or cannot be opened.
std::unique_ptr<ByteSource> open_source(const std::string& path,
                                        std::string* direct_refused = nullptr);

}  // namespace penstock

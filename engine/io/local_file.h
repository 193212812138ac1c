// SPDX-License-Identifier: Apache-2.0
//
// A file of this machine as a source, and the read loop below every read of one. Plain functions,
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/buffer.h"
#include "engine/io/byte_source.h"

namespace penstock {

// As open_source: open_source.cpp sends every path here.
std::unique_ptr<ByteSource> open_local_file(const std::string& path, std::string* direct_refused);

// The type of the file system that holds an open file: "ext4".
std::string file_system_of(int fd);

// Where a read goes and what must come of it.
struct FileRead {
  std::uint64_t offset;
  std::span<std::byte> out;
  std::size_t needed;    // at least so many bytes must arrive: the file may end within `out`
  std::size_t unit = 1;  // offset, size and memory of `out` are multiples of it (direct reads)
};

// A Linux read ends at 2,147,479,552 bytes; this is a multiple of the page below it.
inline constexpr std::size_t kMaxReadBytes = 1UL << 30U;

// Adds what one read of the system gave for `read` (bytes, or -errno) to `found`, the bytes that
// have arrived. Returns the message of the failure, empty when there is none: then all is there
// once `found` has reached `needed`.
std::string count_read(const std::string& name, const FileRead& read, std::int64_t result,
                       std::size_t& found);

// Reads until `needed` bytes have arrived. `name` opens the message of the Error(io) thrown when
// the system refuses or the file ends before.
void read_file(int fd, const std::string& name, const FileRead& read);

// Reads `bytes` bytes past the page cache where the source lets us, else through it. Returns where
// they lie in `memory`, which grows when it must. Throws what source.read() throws.
std::span<std::byte> read_uncached(const ByteSource& source, std::uint64_t offset,
                                   std::size_t bytes, Buffer& memory);

}  // namespace penstock

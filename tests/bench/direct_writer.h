// SPDX-License-Identifier: Apache-2.0
//
// Writes a file of known size past the page cache, where the system can: what the page cache takes
// in leaves it at a fraction of the drive's rate. Plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace penstock {

// Fills bytes [begin, begin + out.size()) of the file; begin is a multiple of 4096.
using FillBytes = std::function<void(std::uint64_t begin, std::span<std::byte> out)>;

// Fills one piece while the one before is written. A file of that name is replaced. Throws
// Error(io) naming the file and the reason.
void write_direct(const std::string& path, std::uint64_t bytes, const FillBytes& fill);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// How fast this machine reads memory.
#pragma once

#include <cstddef>

namespace penstock {

// GB/s at which all cores together read `bytes` of memory from end to end, in plain loops: the
// median of nine passes. More bytes than any cache holds say something. Throws Error(memory).
double ram_read_gb_per_s(std::size_t bytes);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// One file that lies on several drives. The read queue spreads its pieces over the replicas;
// read() takes the first that delivers. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "engine/io/byte_source.h"

namespace penstock {

// Of at least one replica, all of the same name and size.
std::unique_ptr<ByteSource> make_mirrored_source(std::vector<std::unique_ptr<ByteSource>> replicas);

}  // namespace penstock

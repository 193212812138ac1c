// SPDX-License-Identifier: Apache-2.0
#include "engine/io/byte_source.h"
#include "engine/io/local_file.h"

namespace penstock {

std::unique_ptr<ByteSource> open_source(const std::string& path, std::string* direct_refused) {
  return open_local_file(path, direct_refused);
}

}  // namespace penstock

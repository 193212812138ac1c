// SPDX-License-Identifier: Apache-2.0
//
// In place of uring_backend.cpp where there is no liburing.
#include "engine/io/read_backend.h"

namespace penstock {

std::unique_ptr<ReadBackend> make_uring_backend(int /*pieces*/, std::string& refused) {
  refused = "this program was built without it";
  return nullptr;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// A file to measure a drive with, where there is no other. Plain function, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/base/stop_flag.h"
#include "engine/io/byte_source.h"

namespace penstock {

struct ScratchHooks {
  const StopFlag* stop = nullptr;
  std::function<void(std::uint64_t written_bytes)> progress{};
};

// A file of `bytes` random bytes below `dir` that lie on its drive and in no cache of the system.
// It has no name: the room is free again when the source dies, or the process. Throws Error(io)
// with the system's reason, Error(cancelled) when it was stopped.
std::unique_ptr<ByteSource> write_scratch_file(const std::string& dir, std::uint64_t bytes,
                                               const ScratchHooks& hooks = {});

}  // namespace penstock

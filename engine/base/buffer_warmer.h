// SPDX-License-Identifier: Apache-2.0
//
// Large buffers, allocated and touched in the background: the first touch of memory takes up to
// seconds per GiB on some virtual machines, which neither the engine nor the drive should wait for.
// One owner thread, which may be bound to a core, and one thread behind it, which is not.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>

#include "engine/base/buffer.h"

namespace penstock {

// Below this a buffer is made at once: it takes milliseconds.
inline constexpr std::size_t kWarmAtOnceBytes = 32UL << 20U;

class BufferWarmer {
 public:
  BufferWarmer();   // throws Error(memory) when the system gives no thread
  ~BufferWarmer();  // gives up what is not ready: nobody may wait for it any more
  BufferWarmer(const BufferWarmer&) = delete;
  BufferWarmer& operator=(const BufferWarmer&) = delete;

  // A buffer whose pages are all there, one after the other in the order of the calls. `purpose` is
  // static text. The future throws Error(memory) when the system refuses.
  std::future<Buffer> prepare(std::size_t bytes, const char* purpose);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// Whether it can be taken without waiting.
inline bool is_ready(const std::future<Buffer>& buffer) {
  return buffer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace penstock

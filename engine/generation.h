// SPDX-License-Identifier: Apache-2.0
//
// The queue with two ends between the engine thread and the caller of a generation. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "engine/base/stop_flag.h"
#include "engine/engine.h"

namespace penstock {

struct GenerationChannel {
  explicit GenerationChannel(GenerationRequest wanted) : request(std::move(wanted)) {}

  // The engine's end. A PrefillEvent or QueuedEvent that nobody has read yet is replaced by the
  // next one of its kind, so that a slow reader does not pile them up.
  void push(GenerationEvent event);
  void fail(std::exception_ptr error);

  const GenerationRequest request;  // read by the engine thread
  StopFlag stop;                    // set when the caller is gone, or the engine ends

 private:
  friend class Generation;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<GenerationEvent> events_;
  std::exception_ptr error_;
};

}  // namespace penstock

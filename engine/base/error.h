// SPDX-License-Identifier: Apache-2.0
//
// The one exception of Penstock. Thrown by engine and server, caught by main, the HTTP adapter, the
// engine loop and reader threads. Messages name the thing and the numbers, in one line.
#pragma once

#include <stdexcept>
#include <string>

namespace penstock {

enum class ErrorCode {
  usage,        // an option or argument is wrong
  bad_request,  // a request is wrong
  model,        // a model file is missing, damaged or not supported
  io,           // a read failed
  memory,       // the budget is too small
  queue_full,   // no room for one more request
  cancelled,    // stopped on request
  shutdown,     // the engine is going down
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace penstock

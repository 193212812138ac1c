// SPDX-License-Identifier: Apache-2.0
//
// What commands read: standard input and files, whole or line by line. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace penstock {

// All of standard input. `what` opens the message of an Error(io): "--ids -".
std::string read_stdin(const std::string& what);

// All of a file, or of standard input when `path` is "-". Throws Error(io) naming the path and the
// system's reason.
std::string read_text(const std::string& path);

// The lines of standard input as they are typed.
class LineReader {
 public:
  enum class End : std::uint8_t { line, interrupted, closed };
  // Waits for a line; `line` has it without its end. interrupted: soon after `is_interrupted` says
  // so, what was read is dropped. closed: nothing more comes. Throws Error(io).
  End next(std::string* line, const std::function<bool()>& is_interrupted);

 private:
  std::string buffer_;  // read, not yet handed out
  bool closed_ = false;
};

}  // namespace penstock

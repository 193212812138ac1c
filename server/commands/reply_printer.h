// SPDX-License-Identifier: Apache-2.0
//
// Prints a reply while it comes. On a terminal the thinking is shown too, dimmed, and control
// characters are left out; into a file or pipe goes the answer alone, as it is. Main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/conversation.h"

namespace penstock {

class ReplyPrinter {
 public:
  ReplyPrinter();  // looks at standard output

  // Both throw what write_stdout throws.
  void print(const Delta& delta);
  void finish();  // ends styles and the last line

 private:
  enum class Part : std::uint8_t { none, thinking, answer, call };

  void begin(Part part);
  void write(std::string_view text);

  bool terminal_;
  bool styles_;
  Part part_ = Part::none;
  bool line_open_ = false;  // the last character was no newline
};

}  // namespace penstock

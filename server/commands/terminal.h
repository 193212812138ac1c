// SPDX-License-Identifier: Apache-2.0
//
// What commands show to somebody who sits at a terminal, and to nobody else. Main thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace penstock {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stdout_has_styles();  // a terminal that is not "dumb", without NO_COLOR

// `text` (whole UTF-8) without the control characters that could move the cursor, change colours or
// worse; newlines and tabs stay.
std::string without_controls(std::string_view text);

// One line on standard error that says what goes on, written over itself. Does nothing when that is
// no terminal; shows nothing before half a second has passed, and at most ten lines a second.
class StatusLine {
 public:
  StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine();  // clears

  bool due() const;  // whether show() would write: saves making the text
  void show(const std::string& text);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  bool shown_ = false;
  Clock::time_point next_;
};

}  // namespace penstock

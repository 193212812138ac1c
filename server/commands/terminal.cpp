// SPDX-License-Identifier: Apache-2.0
#include "server/commands/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "engine/text/utf8.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kQuietTime{500};
constexpr std::chrono::milliseconds kRefreshTime{100};
constexpr std::size_t kUsualColumns = 80;

// A line that is wider than the terminal cannot be written over.
std::size_t columns() {
  winsize size = {};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : kUsualColumns;
}

bool is_control(char32_t c) {
  return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
}

}  // namespace

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

bool stdout_has_styles() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return stdout_is_terminal() && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

std::string without_controls(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const Utf8Sequence sequence = read_utf8(text);
    if (!is_control(sequence.code_point)) kept += text.substr(0, sequence.bytes);
    text.remove_prefix(sequence.bytes);
  }
  return kept;
}

StatusLine::StatusLine()
    : terminal_(::isatty(STDERR_FILENO) == 1), next_(Clock::now() + kQuietTime) {}

StatusLine::~StatusLine() {
  clear();
}

bool StatusLine::due() const {
  return terminal_ && Clock::now() >= next_;
}

void StatusLine::show(const std::string& text) {
  if (!due()) return;
  const std::string line = text.substr(0, columns() - 1);
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
  shown_ = true;
  next_ = Clock::now() + kRefreshTime;
}

void StatusLine::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace penstock

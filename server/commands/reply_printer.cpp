// SPDX-License-Identifier: Apache-2.0
#include "server/commands/reply_printer.h"

#include <variant>

#include "server/commands/output.h"
#include "server/commands/terminal.h"

namespace penstock {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

ReplyPrinter::ReplyPrinter() : terminal_(stdout_is_terminal()), styles_(stdout_has_styles()) {}

void ReplyPrinter::print(const Delta& delta) {
  if (const auto* reasoning = std::get_if<ReasoningDelta>(&delta)) {
    if (!terminal_) return;
    begin(Part::thinking);
    write(reasoning->text);
  } else if (const auto* content = std::get_if<ContentDelta>(&delta)) {
    begin(Part::answer);
    write(content->text);
  } else if (const auto* call = std::get_if<ToolCallDelta>(&delta)) {
    part_ = part_ == Part::call ? Part::none : part_;  // each call on a line of its own
    begin(Part::call);
    write("[call] " + call->name + " ");
  } else {
    write(std::get<ToolArgumentsDelta>(delta).text);
  }
}

void ReplyPrinter::finish() {
  if (part_ == Part::thinking && styles_) write_stdout(kPlain);
  if (line_open_) write_stdout("\n");
  part_ = Part::none;
  line_open_ = false;
}

void ReplyPrinter::begin(Part part) {
  if (part == part_) return;
  const bool thought = part_ == Part::thinking;
  finish();
  if (thought) write_stdout("\n");
  part_ = part;
  if (part == Part::thinking && styles_) write_stdout(kDim);
}

void ReplyPrinter::write(std::string_view text) {
  const std::string shown = terminal_ ? without_controls(text) : std::string(text);
  if (shown.empty()) return;
  write_stdout(shown);
  line_open_ = !shown.ends_with('\n');
}

}  // namespace penstock

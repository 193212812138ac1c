// SPDX-License-Identifier: Apache-2.0
#include "server/commands/token_ids.h"

#include <charconv>
#include <limits>

#include "engine/base/error.h"
#include "server/commands/input.h"

namespace penstock {
namespace {

constexpr std::size_t kShownChars = 40;  // of a wrong piece: the message stays one line

std::string_view trim(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string shown(std::string_view piece) {
  std::string text(1, '"');
  for (const char c : piece.substr(0, kShownChars)) {
    text += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return text + (piece.size() > kShownChars ? "\"..." : "\"");
}

Token parse_token_id(std::string_view piece, std::size_t position) {
  Token id = -1;
  const char* end = piece.data() + piece.size();
  const auto [stop, error] = std::from_chars(piece.data(), end, id);
  if (error != std::errc{} || stop != end || id < 0) {
    throw Error(ErrorCode::usage, "--ids: entry " + std::to_string(position) + " is " +
                                      shown(piece) + ", expected a number from 0 to " +
                                      std::to_string(std::numeric_limits<Token>::max()));
  }
  return id;
}

}  // namespace

std::vector<Token> parse_token_ids(std::string_view text) {
  text = trim(text);
  if (text.empty()) throw Error(ErrorCode::usage, "--ids: the list is empty");
  std::vector<Token> ids;
  for (;;) {
    const auto comma = text.find(',');
    ids.push_back(parse_token_id(trim(text.substr(0, comma)), ids.size() + 1));
    if (comma == std::string_view::npos) return ids;
    text.remove_prefix(comma + 1);
  }
}

std::vector<Token> read_token_ids(const std::string& ids) {
  return parse_token_ids(ids == "-" ? read_stdin("--ids -") : ids);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/text/tokenizer_bpe.h"

namespace penstock {
namespace {

constexpr std::streamoff kMaxFileBytes = std::streamoff{1} << 30U;

// Some revisions of the Python class register two more placeholders behind the 256, without an
// embedding row: tolerated and ignored.
constexpr Token kIgnoredSpecials = 2;

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw Error(ErrorCode::model, where + ": " + problem);
}

constexpr std::uint8_t kNotBase64 = 64;

constexpr std::array<std::uint8_t, 256> base64_values() {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::uint8_t, 256> values{};
  values.fill(kNotBase64);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}

// Standard base64 with padding (RFC 4648 section 4, unused bits zero); false if it is not.
bool decode_base64(std::string_view text, std::string* out) {
  static constexpr std::array<std::uint8_t, 256> kValues = base64_values();
  out->clear();
  if (text.size() % 4 != 0) return false;
  std::size_t digits = text.size();
  while (digits + 2 > text.size() && digits > 0 && text[digits - 1] == '=') --digits;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text.substr(0, digits)) {
    const std::uint32_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNotBase64) return false;
    bits = (bits << 6U | value) & 0xFFFU;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out->push_back(static_cast<char>(bits >> count & 0xFFU));
  }
  return (bits & ((1U << count) - 1)) == 0;
}

std::optional<Token> parse_rank(std::string_view text) {
  Token rank = 0;
  const char* end = text.data() + text.size();
  const auto [parsed_end, error] = std::from_chars(text.data(), end, rank);
  if (error != std::errc() || parsed_end != end || rank < 0) return std::nullopt;
  return rank;
}

// Adds the token of a line; returns what is wrong with it, or nothing.
std::string parse_line(std::string_view line, std::string* token, TokenRanks* ranks) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return "expected two fields, a token in base64 and its rank, with one space between";
  }
  if (space == 0) return "the token is empty";
  if (!decode_base64(line.substr(0, space), token)) return "the token is not valid base64";
  const std::optional<Token> rank = parse_rank(line.substr(space + 1));
  if (!rank) return "the rank is not a decimal number";
  if (*rank != ranks->size()) {
    return "rank " + std::to_string(*rank) + ", expected " + std::to_string(ranks->size()) +
           ": ranks ascend from 0 without gaps";
  }
  const Token before = ranks->add(*token);
  if (before == TokenRanks::kNone) return {};
  return "rank " + std::to_string(*rank) + " repeats the token of rank " + std::to_string(before);
}

std::string hex_byte(unsigned byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'0', 'x', kDigits[byte / 16], kDigits[byte % 16]};
}

// As a JSON string: control characters would break the line of a message.
std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump();
}

// Sorted, a name that is the start of another one stands right before one that it starts.
void check_distinct(const std::vector<std::string>& names, const std::string& file) {
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].substr(0, sorted[i - 1].size()) == sorted[i - 1]) {
      fail(file, "special token " + json_quoted(sorted[i - 1]) + " is also the start of " +
                     json_quoted(sorted[i]));
    }
  }
}

}  // namespace

std::string read_tokenizer_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file ? std::streamoff{file.tellg()} : -1;
  if (bytes < 0) fail(path, "cannot be opened");
  if (bytes > kMaxFileBytes) {
    fail(path, std::to_string(bytes) + " bytes are too many for a tokenizer file (limit " +
                   std::to_string(kMaxFileBytes) + ")");
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.seekg(0);
  if (!file.read(text.data(), bytes)) fail(path, "cannot be read");
  return text;
}

TokenRanks parse_ranks(std::string_view text, const std::string& file) {
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  if (lines > kMaxRanks) {
    fail(file,
         std::to_string(lines) + " lines, at most " + std::to_string(kMaxRanks) + " expected");
  }
  TokenRanks ranks(lines, text.size());
  std::string token;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    const std::string problem = parse_line(text.substr(0, line_end), &token, &ranks);
    if (!problem.empty()) fail(file + " line " + std::to_string(number), problem);
    text.remove_prefix(std::min(line_end + 1, text.size()));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (ranks.of_byte(static_cast<char>(byte)) == TokenRanks::kNone) {
      fail(file, "no line holds the single byte " + hex_byte(byte) + " (of " +
                     std::to_string(ranks.size()) + " tokens)");
    }
  }
  return ranks;
}

std::vector<std::string> parse_special_names(std::string_view json, const std::string& file,
                                             Token first_special) {
  std::vector<std::string> names(static_cast<std::size_t>(kSpecialTokens));
  const nlohmann::json config = parse_json(json, file);
  const nlohmann::json* decoder = JsonFields(config, file).find("added_tokens_decoder");
  if (decoder == nullptr) fail(file, "added_tokens_decoder is missing");
  if (!decoder->is_object()) fail(file, "added_tokens_decoder is not an object");
  for (const auto& [id_text, entry] : decoder->items()) {
    const std::string where = file + ": added_tokens_decoder[" + json_quoted(id_text) + "]";
    const std::optional<Token> id = parse_rank(id_text);
    const Token end = first_special + kSpecialTokens;
    if (!id || *id < first_special || *id >= end + kIgnoredSpecials) {
      fail(where, "specials have the ids " + std::to_string(first_special) + " to " +
                      std::to_string(end - 1) + ", behind the ranks of tiktoken.model");
    }
    if (*id >= end) continue;
    std::string name = JsonFields(entry, where).get_string("content");
    if (name.empty()) fail(where, "content is empty");
    names[static_cast<std::size_t>(*id - first_special)] = std::move(name);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) continue;
    names[i] = "<|reserved_token_" + std::to_string(first_special + static_cast<Token>(i)) + "|>";
  }
  check_distinct(names, file);
  return names;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxFileBytes = 1U << 20U;  // a config file is some lines, not a model shard

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool is_key(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

bool is_integer(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

class LineParser {
 public:
  LineParser(const std::string& file, int line)
      : where_(file + ":" + std::to_string(line) + ": ") {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::usage, where_ + problem);
  }

  // `text` starts behind the equals sign.
  std::string value(std::string_view text) const {
    text = trim(text);
    if (text.starts_with('"') || text.starts_with('\'')) return quoted(text);
    const std::string_view bare = trim(text.substr(0, text.find('#')));
    if (is_integer(bare) || bare == "true" || bare == "false") return std::string(bare);
    if (bare.empty()) fail("the value is missing");
    fail("the value " + std::string(bare) + " needs quotes: \"" + std::string(bare) + "\"");
  }

 private:
  // "text" with the escapes \" and \\, or 'text' without any; a comment may follow.
  std::string quoted(std::string_view text) const {
    const char quote = text[0];
    std::string value;
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] == quote) {
        const std::string_view rest = trim(text.substr(i + 1));
        if (!rest.empty() && rest[0] != '#') fail("text behind the closing quote");
        return value;
      }
      if (text[i] == '\\' && quote == '"') {
        ++i;
        if (i == text.size() || (text[i] != '"' && text[i] != '\\')) {
          fail("only \\\" and \\\\ may follow a backslash; or write the value in single quotes");
        }
      }
      value.push_back(text[i]);
    }
    fail("the closing quote is missing");
  }

  std::string where_;
};

ConfigEntry parse_line(std::string_view text, const std::string& file, int line) {
  const LineParser parser(file, line);
  if (text.starts_with('[')) {
    parser.fail("sections are not used: keys stand at the top level");
  }
  const auto equals = text.find('=');
  const std::string_view key = trim(text.substr(0, equals));
  if (equals == std::string_view::npos || !is_key(key)) parser.fail("expected key = value");
  return {std::string(key), parser.value(text.substr(equals + 1)), line};
}

}  // namespace

std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& file) {
  std::vector<ConfigEntry> entries;
  int line = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view content = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    ++line;
    if (content.empty() || content[0] == '#') continue;
    ConfigEntry entry = parse_line(content, file, line);
    for (const ConfigEntry& other : entries) {
      if (other.key == entry.key) {
        LineParser(file, line)
            .fail(entry.key + " is set twice, first in line " + std::to_string(other.line));
      }
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<ConfigEntry> read_config_file(const std::string& path) {
  const auto fail = [&path](const std::string& reason) {
    throw Error(ErrorCode::usage, path + ": cannot read the config file: " + reason);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) fail(std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) fail(std::strerror(errno));
  if (text.size() > kMaxFileBytes) fail("it is larger than 1 MiB");
  return parse_config(text, path);
}

}  // namespace penstock

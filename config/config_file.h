// SPDX-License-Identifier: Apache-2.0
//
// The config file: a flat TOML file of `key = value` lines. Read here and not by CLI11, whose
// messages name no line and whose file beats the environment. Plain functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ConfigEntry {
  std::string key;
  std::string value;  // without its quotes
  int line;           // from 1
};

// The entries of `text` in file order. `file` opens the message of every Error(usage) thrown:
// a [section], a line that is not `key = value`, a value that is neither an integer, a boolean nor
// a quoted string, a key given twice.
std::vector<ConfigEntry> parse_config(std::string_view text, const std::string& file);

// Reads and parses a file. Throws Error(usage) when it cannot be read.
std::vector<ConfigEntry> read_config_file(const std::string& path);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside: parsed with a cap on depth, read through getters that name the field.
// Plain functions, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr int kMaxJsonDepth = 64;

// Parses `text`. `what` (a file name, say) opens the message of every Error(model) thrown: bad
// syntax with its position, a number no double can hold, nesting deeper than kMaxJsonDepth. Of
// duplicate keys the last wins.
nlohmann::json parse_json(std::string_view text, const std::string& what);

// Reads the fields of one JSON object. `what` opens the messages. A field that is absent or null
// gives nullopt from find_*; a field of the wrong type or out of [min, max] throws Error(model):
// "config.json: hidden_size is 99999999, expected 1 to 1048576".
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string what);  // throws unless it is an object

  bool has(const char* field) const;  // present and not null
  std::optional<std::int64_t> find_int(const char* field, std::int64_t min, std::int64_t max) const;
  std::optional<double> find_number(const char* field, double min, double max) const;
  std::optional<bool> find_bool(const char* field) const;
  std::optional<std::string> find_string(const char* field) const;

  // As above, but absence is an error: "config.json: hidden_size is missing".
  std::int64_t get_int(const char* field, std::int64_t min, std::int64_t max) const;
  double get_number(const char* field, double min, double max) const;
  std::string get_string(const char* field) const;

  const nlohmann::json* find(const char* field) const;  // null when absent or null
  const std::string& what() const { return what_; }
  [[noreturn]] void fail(const char* field, const std::string& problem) const;

 private:
  const nlohmann::json& object_;
  std::string what_;
};

}  // namespace penstock

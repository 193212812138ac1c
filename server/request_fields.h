// SPDX-License-Identifier: Apache-2.0
//
// Reads the fields of one JSON object of a request. A field that is absent or null gives nullopt or
// null; one of the wrong type throws an ApiError that names it by its path: "messages[2].content".
// Plain values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/json_text.h"

namespace penstock {

class RequestFields {
 public:
  // `value` must be an object and outlive this; `path` is "" for the request itself.
  RequestFields(const JsonValue& value, std::string path);

  const JsonValue* find(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  // A number without fraction, however it is spelt; beyond 64 bits the nearest that fits.
  std::optional<std::int64_t> find_integer(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  const std::vector<JsonValue>* find_list(std::string_view key) const;
  std::optional<RequestFields> find_object(std::string_view key) const;

  // As above, but absence is an error.
  const JsonValue& get(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  const std::vector<JsonValue>& get_list(std::string_view key) const;
  RequestFields get_object(std::string_view key) const;

  std::string path(std::string_view key) const;
  static std::string item_path(std::string_view list, std::size_t index) {
    return std::string(list) + "[" + std::to_string(index) + "]";
  }

  // "PATH is VALUE, expected EXPECTED", code unsupported_value.
  [[noreturn]] void fail_value(std::string_view key, std::string_view expected) const;
  [[noreturn]] void fail_missing(std::string_view key) const;

 private:
  const JsonValue* object_;
  std::string path_;
};

// "PATH is a number, expected a string", code invalid_type.
[[noreturn]] void fail_type(std::string_view path, const JsonValue& value,
                            std::string_view expected);

// The number if it has no fraction, saturated to 64 bits.
std::optional<std::int64_t> integer_of(const JsonValue& number);

// A value as messages show it: one short line, containers by their kind.
std::string shown(const JsonValue& value);

}  // namespace penstock

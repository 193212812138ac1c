// SPDX-License-Identifier: Apache-2.0
#include "server/request_fields.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/text/utf8.h"
#include "server/api_error.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxShownBytes = 100;

std::string_view kind_name(JsonKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"null",     "a boolean", "a number",
                                                   "a string", "a list",    "an object"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string shown(const JsonValue& value) {
  if (value.is(JsonKind::array) || value.is(JsonKind::object)) {
    return std::string(kind_name(value.kind));
  }
  std::string text = write_json(value, kAsSpeltJson);
  if (text.size() <= kMaxShownBytes) return text;
  text.resize(kMaxShownBytes);
  text.resize(valid_utf8_prefix(text));
  return text + "...";
}

void fail_type(std::string_view path, const JsonValue& value, std::string_view expected) {
  throw wrong_field(
      path, "is " + std::string(kind_name(value.kind)) + ", expected " + std::string(expected),
      "invalid_type");
}

std::optional<std::int64_t> integer_of(const JsonValue& number) {
  using Limits = std::numeric_limits<std::int64_t>;
  const char* begin = number.text.data();
  const char* end = begin + number.text.size();
  std::int64_t integer = 0;
  const auto [stop, error] = std::from_chars(begin, end, integer);
  if (stop == end && error == std::errc{}) return integer;
  const double value = std::strtod(number.text.c_str(), nullptr);
  if (std::trunc(value) != value) return std::nullopt;
  // 2^63 is the least double that does not fit.
  if (value >= 0x1p63) return Limits::max();
  if (value < -0x1p63) return Limits::min();
  return static_cast<std::int64_t>(value);
}

RequestFields::RequestFields(const JsonValue& value, std::string path)
    : object_(&value), path_(std::move(path)) {
  if (!value.is(JsonKind::object)) {
    fail_type(path_.empty() ? "the request body" : path_, value, "an object");
  }
}

std::string RequestFields::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const JsonValue* RequestFields::find(std::string_view key) const {
  const JsonValue* value = object_->find(key);
  return value == nullptr || value->is(JsonKind::null) ? nullptr : value;
}

std::optional<bool> RequestFields::find_bool(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is(JsonKind::boolean)) fail_type(path(key), *value, "true or false");
  return value->boolean;
}

std::optional<std::int64_t> RequestFields::find_integer(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is(JsonKind::number)) fail_type(path(key), *value, "an integer");
  const std::optional<std::int64_t> integer = integer_of(*value);
  if (!integer) {
    throw wrong_field(path(key), "is " + shown(*value) + ", expected an integer", "invalid_type");
  }
  return integer;
}

std::optional<std::string> RequestFields::find_string(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is(JsonKind::string)) fail_type(path(key), *value, "a string");
  return value->text;
}

const std::vector<JsonValue>* RequestFields::find_list(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is(JsonKind::array)) fail_type(path(key), *value, "a list");
  return &value->items;
}

std::optional<RequestFields> RequestFields::find_object(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  return RequestFields(*value, path(key));
}

const JsonValue& RequestFields::get(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) fail_missing(key);
  return *value;
}

std::string RequestFields::get_string(std::string_view key) const {
  get(key);
  return *find_string(key);
}

const std::vector<JsonValue>& RequestFields::get_list(std::string_view key) const {
  get(key);
  return *find_list(key);
}

RequestFields RequestFields::get_object(std::string_view key) const {
  return RequestFields(get(key), path(key));
}

void RequestFields::fail_value(std::string_view key, std::string_view expected) const {
  throw wrong_field(path(key), "is " + shown(get(key)) + ", expected " + std::string(expected),
                    "unsupported_value");
}

void RequestFields::fail_missing(std::string_view key) const {
  throw wrong_field(path(key), "is missing", "missing_required_parameter");
}

}  // namespace penstock

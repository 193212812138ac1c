// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxQuotedBytes = 200;  // of foreign text in a message

[[noreturn]] void fail_model(const std::string& message) {
  throw Error(ErrorCode::model, message);
}

// At most kMaxQuotedBytes of `text`, cut between UTF-8 characters.
std::string shortened(std::string text) {
  if (text.size() <= kMaxQuotedBytes) return text;
  std::size_t end = kMaxQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  text.resize(end);
  return text + "...";
}

// The library's message without its "[json.exception.parse_error.101] ".
std::string problem_of(const json::exception& e) {
  const std::string_view text = e.what();
  const std::size_t bracket = text.find("] ");
  return shortened(
      std::string(bracket == std::string_view::npos ? text : text.substr(bracket + 2)));
}

// The value as a message shows it: one short line, a container by its kind.
std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::string not_expected(const json& value, const std::string& expected) {
  return "is " + shown(value) + ", expected " + expected;
}

std::string range_text(const json& min, const json& max) {
  return min.dump() + " to " + max.dump();
}

// The library parses without recursion, but copies and dumps recurse: deep values must not exist.
// A scan of its own, because the library's callback makes every object quadratic in its keys (a
// header of 300,000 tensors took more than nine minutes). Up to the first syntax error both agree
// on what is a string.
void check_depth(std::string_view text, const std::string& what) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        fail_model(what + ": nested deeper than " + std::to_string(kMaxJsonDepth) +
                   " levels at byte " + std::to_string(i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

template <typename T>
T required(std::optional<T> value, const JsonFields& fields, const char* field) {
  if (!value) fields.fail(field, "is missing");
  return *std::move(value);
}

}  // namespace

json parse_json(std::string_view text, const std::string& what) {
  check_depth(text, what);
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    fail_model(what + ": " + problem_of(e));
  }
}

JsonFields::JsonFields(const json& object, std::string what)
    : object_(object), what_(std::move(what)) {
  if (!object.is_object()) fail_model(what_ + ": " + not_expected(object, "an object"));
}

bool JsonFields::has(const char* field) const {
  return find(field) != nullptr;
}

const json* JsonFields::find(const char* field) const {
  const auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::fail(const char* field, const std::string& problem) const {
  fail_model(what_ + ": " + field + " " + problem);
}

std::optional<std::int64_t> JsonFields::find_int(const char* field, std::int64_t min,
                                                 std::int64_t max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) fail(field, not_expected(*value, "an integer"));
  // An integer above 2^63 - 1 is kept as unsigned and would come out negative.
  const bool too_big = value->is_number_unsigned() &&
                       value->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  const auto number = value->get<std::int64_t>();
  if (too_big || number < min || number > max) {
    fail(field, not_expected(*value, range_text(min, max)));
  }
  return number;
}

std::optional<double> JsonFields::find_number(const char* field, double min, double max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(field, not_expected(*value, "a number"));
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) fail(field, not_expected(*value, range_text(min, max)));
  return number;
}

std::optional<bool> JsonFields::find_bool(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(field, not_expected(*value, "true or false"));
  return value->get<bool>();
}

std::optional<std::string> JsonFields::find_string(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(field, not_expected(*value, "a string"));
  return value->get<std::string>();
}

std::int64_t JsonFields::get_int(const char* field, std::int64_t min, std::int64_t max) const {
  return required(find_int(field, min, max), *this, field);
}

double JsonFields::get_number(const char* field, double min, double max) const {
  return required(find_number(field, min, max), *this, field);
}

std::string JsonFields::get_string(const char* field) const {
  return required(find_string(field), *this, field);
}

}  // namespace penstock

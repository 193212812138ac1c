// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/text/json_text.h"

namespace penstock {
namespace {

void append_value(const JsonValue& value, const JsonStyle& style, std::string* out);

void append_member(const JsonMember& member, const JsonStyle& style, std::string* out) {
  append_json_string(member.key, out);
  out->append(style.key_separator);
  append_value(member.value, style, out);
}

void append_object(const JsonValue& value, const JsonStyle& style, std::string* out) {
  std::vector<const JsonMember*> members;
  members.reserve(value.members.size());
  for (const JsonMember& member : value.members) members.push_back(&member);
  if (style.sort_keys) {  // bytes of UTF-8 sort as code points do
    std::sort(members.begin(), members.end(),
              [](const JsonMember* a, const JsonMember* b) { return a->key < b->key; });
  }
  out->push_back('{');
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out->append(style.item_separator);
    append_member(*members[i], style, out);
  }
  out->push_back('}');
}

void append_array(const JsonValue& value, const JsonStyle& style, std::string* out) {
  out->push_back('[');
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out->append(style.item_separator);
    append_value(value.items[i], style, out);
  }
  out->push_back(']');
}

void append_value(const JsonValue& value, const JsonStyle& style, std::string* out) {
  switch (value.kind) {
    case JsonKind::null: out->append("null"); break;
    case JsonKind::boolean: out->append(value.boolean ? "true" : "false"); break;
    case JsonKind::number:
      out->append(style.python_numbers ? python_number(value.text) : value.text);
      break;
    case JsonKind::string: append_json_string(value.text, out); break;
    case JsonKind::array: append_array(value, style, out); break;
    case JsonKind::object: append_object(value, style, out); break;
  }
}

// Python's repr of a finite float from its shortest decimal digits d.ddd times ten to `exponent`.
std::string float_repr(std::string_view digits, int exponent) {
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out.append(".").append(digits.substr(1));
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    return out.append(std::to_string(std::abs(exponent)));
  }
  if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0');
    return out.append(digits);
  }
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  out += digits.substr(0, whole);
  if (digits.size() <= whole) return out.append(whole - digits.size(), '0').append(".0");
  return out.append(".").append(digits.substr(whole));
}

}  // namespace

std::string write_json(const JsonValue& value, const JsonStyle& style) {
  std::string out;
  append_value(value, style, &out);
  return out;
}

void append_json_escaped(std::string_view text, std::string* out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\n': out->append("\\n"); break;
      case '\r': out->append("\\r"); break;
      case '\t': out->append("\\t"); break;
      case '\b': out->append("\\b"); break;
      case '\f': out->append("\\f"); break;
      default:
        if (const auto byte = static_cast<unsigned char>(c); byte < 0x20) {
          out->append("\\u00");
          out->push_back(kHex[byte >> 4U]);
          out->push_back(kHex[byte & 0xFU]);
        } else {
          out->push_back(c);
        }
    }
  }
}

void append_json_string(std::string_view text, std::string* out) {
  out->push_back('"');
  append_json_escaped(text, out);
  out->push_back('"');
}

std::string python_number(std::string_view spelling) {
  if (spelling.find_first_of(".eE") == std::string_view::npos) {
    return std::string(spelling == "-0" ? "0" : spelling);
  }
  // strtod, as libc++ has no from_chars for doubles; the program never leaves the "C" locale.
  const double value = std::strtod(std::string(spelling).c_str(), nullptr);
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "Infinity";
  std::array<char, 32> buffer{};  // "d.dddddddddddddddde+ddd" is at most 23
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value),
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  return sign + float_repr(digits, std::atoi(std::string(text.substr(e + 1)).c_str()));
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// JSON whose text matters: requests and tool arguments. Keys keep their order and numbers their
// spelling (30-digit integers, 1e2), which nlohmann's values lose; the writers spell as Python's
// json.dumps(ensure_ascii=False) does, because the models were trained on its output.
// Plain functions and values, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace penstock {

enum class JsonKind : std::uint8_t { null, boolean, number, string, array, object };

struct JsonMember;

struct JsonValue {
  JsonKind kind = JsonKind::null;
  bool boolean = false;
  std::string text{};               // of a string: its UTF-8; of a number: its spelling
  std::vector<JsonValue> items{};   // of an array
  std::vector<JsonMember> members;  // of an object: in order, each key once

  bool is(JsonKind wanted) const noexcept { return kind == wanted; }
  const JsonValue* find(std::string_view key) const;  // null when absent or not an object
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

struct JsonLimits {
  int max_depth = kMaxJsonDepth;     // arrays and objects inside each other
  std::size_t max_keys = 4096;       // of one object
  std::size_t max_values = 1 << 20;  // in all: a value takes some 100 bytes
};

// Reads one JSON text (RFC 8259). Of equal keys the last value counts, at the first one's place. An
// escape that names half a surrogate pair is read as U+FFFD. Returns nullopt when the text is not
// JSON, not UTF-8 or over a limit; `problem` (may be null) then says what is wrong at which byte.
std::optional<JsonValue> read_json(std::string_view text, const JsonLimits& limits,
                                   std::string* problem);

struct JsonStyle {
  std::string_view item_separator;
  std::string_view key_separator;
  bool sort_keys;       // of every object, by code point
  bool python_numbers;  // as python_number(), else as spelt
};

inline constexpr JsonStyle kPythonJson{", ", ": ", false, true};  // json.dumps's default
inline constexpr JsonStyle kCompactJson{",", ":", false, true};   // in the given order
inline constexpr JsonStyle kCanonicalJson{",", ":", true, true};  // sorted, as K3 declares tools
inline constexpr JsonStyle kAsSpeltJson{",", ":", false, false};  // numbers untouched

std::string write_json(const JsonValue& value, const JsonStyle& style);

// Appends `text` with the escapes of a JSON string, without quotes. Pieces may be appended one by
// one when none cuts a code point.
void append_json_escaped(std::string_view text, std::string* out);
// Appends `text` as a JSON string, quotes included.
void append_json_string(std::string_view text, std::string* out);

// What Python prints for a JSON number after reading it: integers of any size as they are, floats
// in the shortest form that reads back ("1.0", "1e5" to "100000.0", "1e16" to "1e+16").
std::string python_number(std::string_view spelling);

}  // namespace penstock

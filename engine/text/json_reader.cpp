// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "engine/text/json_text.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

void append_utf8(std::uint32_t code_point, std::string* out) {
  const auto put = [out](std::uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | code_point >> 6U);
    put(0x80U | (code_point & 0x3FU));
  } else if (code_point < 0x10000) {
    put(0xE0U | code_point >> 12U);
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xF0U | code_point >> 18U);
    put(0x80U | (code_point >> 12U & 0x3FU));
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

// Of equal keys: the last value at the first place. Sorting keeps objects of thousands of keys
// cheap.
void merge_equal_keys(std::vector<JsonMember>* members) {
  if (members->size() < 2) return;
  std::vector<std::size_t> order(members->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [members](std::size_t a, std::size_t b) {
    return (*members)[a].key < (*members)[b].key;
  });
  std::vector<bool> dropped;
  for (std::size_t i = 0, end = 0; i < order.size(); i = end) {
    JsonMember& first = (*members)[order[i]];
    for (end = i + 1; end < order.size() && (*members)[order[end]].key == first.key; ++end) {
      dropped.resize(members->size());
      dropped[order[end]] = true;
    }
    if (end > i + 1) first.value = std::move((*members)[order[end - 1]].value);
  }
  if (dropped.empty()) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < members->size(); ++i) {
    if (dropped[i]) continue;
    if (kept != i) (*members)[kept] = std::move((*members)[i]);
    ++kept;
  }
  members->resize(kept);
}

class Reader {
 public:
  Reader(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool read(JsonValue* value) {
    const std::size_t valid = valid_utf8_prefix(text_);
    if (valid != text_.size()) {
      at_ = valid;
      return fail("ill-formed UTF-8");
    }
    if (!read_value(value, 0)) return false;
    skip_blanks();
    return at_ == text_.size() || fail("text after the end of the JSON value");
  }

  std::string problem() const { return problem_ + " at byte " + std::to_string(at_); }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }

  void skip_blanks() {
    while (more() && (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t')) ++at_;
  }

  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool read_value(JsonValue* value, int depth) {
    skip_blanks();
    if (!more()) return fail("unexpected end of the JSON text");
    if (++values_ > limits_.max_values) {
      return fail("more than " + std::to_string(limits_.max_values) + " JSON values");
    }
    switch (peek()) {
      case '{': return read_object(value, depth + 1);
      case '[': return read_array(value, depth + 1);
      case '"': value->kind = JsonKind::string; return read_string(&value->text);
      case 't': value->boolean = true; return read_word("true", JsonKind::boolean, value);
      case 'f': return read_word("false", JsonKind::boolean, value);
      case 'n': return read_word("null", JsonKind::null, value);
      default: value->kind = JsonKind::number; return read_number(&value->text);
    }
  }

  bool read_word(std::string_view word, JsonKind kind, JsonValue* value) {
    if (text_.substr(at_, word.size()) != word) return fail("a JSON value was expected");
    at_ += word.size();
    value->kind = kind;
    return true;
  }

  bool check_depth(int depth) {
    if (depth <= limits_.max_depth) return true;
    return fail("JSON nested deeper than " + std::to_string(limits_.max_depth));
  }

  bool read_array(JsonValue* value, int depth) {
    value->kind = JsonKind::array;
    if (!check_depth(depth)) return false;
    ++at_;
    skip_blanks();
    if (take(']')) return true;
    while (true) {
      if (!read_value(&value->items.emplace_back(), depth)) return false;
      skip_blanks();
      if (take(']')) return true;
      if (!take(',')) return fail("',' or ']' was expected");
    }
  }

  bool read_object(JsonValue* value, int depth) {
    value->kind = JsonKind::object;
    if (!check_depth(depth)) return false;
    ++at_;
    skip_blanks();
    if (take('}')) return true;
    while (true) {
      if (!read_member(&value->members, depth)) return false;
      skip_blanks();
      if (take('}')) break;
      if (!take(',')) return fail("',' or '}' was expected");
    }
    merge_equal_keys(&value->members);
    return true;
  }

  bool read_member(std::vector<JsonMember>* members, int depth) {
    skip_blanks();
    if (peek() != '"') return fail("a quoted key was expected");
    if (members->size() == limits_.max_keys) {
      return fail("a JSON object with more than " + std::to_string(limits_.max_keys) + " keys");
    }
    JsonMember& member = members->emplace_back();
    if (!read_string(&member.key)) return false;
    skip_blanks();
    if (!take(':')) return fail("':' was expected");
    return read_value(&member.value, depth);
  }

  bool read_string(std::string* out) {
    ++at_;
    while (true) {
      const std::size_t begin = at_;
      while (more() && peek() != '"' && peek() != '\\' &&
             static_cast<unsigned char>(peek()) >= 0x20)
        ++at_;
      out->append(text_.substr(begin, at_ - begin));
      if (!more()) return fail("a string without end");
      if (take('"')) return true;
      if (peek() != '\\') return fail("a control character inside a string");
      ++at_;
      if (!read_escape(out)) return false;
    }
  }

  bool read_escape(std::string* out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which = more() ? kNames.find(peek()) : std::string_view::npos;
    if (which != std::string_view::npos) {
      out->push_back(kMeanings[which]);
      ++at_;
      return true;
    }
    std::uint32_t unit = 0;
    if (peek() != 'u' || !read_hex(&unit)) return fail("a malformed escape");
    if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      const std::size_t back = at_++;
      std::uint32_t low = 0;
      if (!read_hex(&low)) return fail("a malformed escape");
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10U) + (low - 0xDC00);
      } else {
        at_ = back;  // it is read on its own
      }
    }
    // Clients that cut text between UTF-16 units send halves of pairs.
    append_utf8(unit >= 0xD800 && unit < 0xE000 ? 0xFFFD : unit, out);
    return true;
  }

  // At the 'u' of \uXXXX.
  bool read_hex(std::uint32_t* unit) {
    ++at_;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      std::uint32_t digit = 0;
      if (is_digit(c)) {
        digit = static_cast<std::uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        digit = static_cast<std::uint32_t>((c | 0x20) - 'a' + 10);
      } else {
        return false;
      }
      *unit = *unit << 4U | digit;
    }
    return true;
  }

  bool skip_digits() {
    const std::size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return at_ > begin;
  }

  bool read_number(std::string* out) {
    const std::size_t begin = at_;
    take('-');
    const bool zero = peek() == '0';
    const std::size_t digits = at_;
    if (!skip_digits()) return fail("a JSON value was expected");
    if (zero && at_ > digits + 1) return fail("a number with a leading zero");
    if (take('.') && !skip_digits()) return fail("a digit was expected");
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (!take('-')) take('+');
      if (!skip_digits()) return fail("a digit was expected");
    }
    out->assign(text_.substr(begin, at_ - begin));
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
  std::string problem_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto it = std::find_if(members.begin(), members.end(),
                               [key](const JsonMember& member) { return member.key == key; });
  return it == members.end() ? nullptr : &it->value;
}

std::optional<JsonValue> read_json(std::string_view text, const JsonLimits& limits,
                                   std::string* problem) {
  Reader reader(text, limits);
  JsonValue value;
  if (reader.read(&value)) return value;
  if (problem != nullptr) *problem = reader.problem();
  return std::nullopt;
}

}  // namespace penstock

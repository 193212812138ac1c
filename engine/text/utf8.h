// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 from outside: what is ill-formed is read as U+FFFD, one per maximal ill-formed subpart (as
// WHATWG decoders, Rust's lossy and Python's errors="replace" do).
// Plain functions, any thread; Utf8Stream: One owner thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Status : std::uint8_t {
  complete,    // a code point
  ill_formed,  // a maximal ill-formed subpart
  truncated,   // the text ends inside a sequence that is valid so far
};

// The first sequence of a text.
struct Utf8Sequence {
  char32_t code_point;  // U+FFFD unless complete
  std::uint8_t bytes;   // 1 to 4
  Utf8Status status;
};

// Reads the sequence at the start of `text`, which must not be empty.
Utf8Sequence read_utf8(std::string_view text) noexcept;

// Bytes of the longest prefix of `text` that is well-formed.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

// `text` with every ill-formed subpart, a truncated end included, replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Turns bytes that arrive in pieces into text. The concatenated results, flush() last, equal
// replace_invalid_utf8 of the concatenated input, however it was split.
class Utf8Stream {
 public:
  // The text that is complete after `bytes`; at most 3 bytes that may still become a code point are
  // held back.
  std::string feed(std::string_view bytes);
  // End of input: U+FFFD if bytes were held back, else empty. The stream can be used anew.
  std::string flush();
  bool holds_bytes() const noexcept { return !held_.empty(); }

 private:
  std::string held_;
};

}  // namespace penstock

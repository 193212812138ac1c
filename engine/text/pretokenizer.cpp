// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "engine/text/unicode_tables.h"

namespace penstock {
namespace {

using Latin1 = std::array<std::uint8_t, 256>;

constexpr std::size_t kChunkCodePoints = 400000;
constexpr std::size_t kRunCodePoints = 25000;
constexpr std::uint8_t kPieceOfItsOwn = kLetterClass | kNumberClass | kNewlineClass;
constexpr std::uint8_t kNotPunctuation = kSpaceClass | kLetterClass | kNumberClass;

unsigned byte_at(const char* p) noexcept {
  return static_cast<unsigned char>(*p);
}
bool is_ascii(const char* p) noexcept {
  return byte_at(p) < 0x80;
}
bool is_continuation(const char* p) noexcept {
  return (byte_at(p) & 0xC0U) == 0x80;
}
bool is_lower(const char* p) noexcept {
  return byte_at(p) - 'a' < 26U;
}
bool is_upper(const char* p) noexcept {
  return byte_at(p) - 'A' < 26U;
}

// The end of the run of a..z at p, found without a branch per letter: the length of a word is what
// a branch predictor cannot guess.
const char* skip_lower(const char* p, const char* end) noexcept {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  constexpr std::uint64_t kHigh = 0x80 * kOnes;
  for (std::uint64_t word = 0; end - p >= 8; p += 8) {
    std::memcpy(&word, p, sizeof word);
    const std::uint64_t low = word & ~kHigh;
    const std::uint64_t from_a = low + (0x80 - 'a') * kOnes;
    const std::uint64_t above_z = low + (0x7F - 'z') * kOnes;
    const std::uint64_t other = (~from_a | above_z | word) & kHigh;
    if (other != 0) return p + std::countr_zero(other) / 8;
  }
  while (p != end && is_lower(p)) ++p;
  return p;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)? at p. The letter s has a third form, U+017F (C5 BF).
const char* skip_contraction(const char* p, const char* end) noexcept {
  if (end - p < 2 || *p != '\'') return p;
  const auto lower = [](const char* at) { return byte_at(at) | 0x20U; };
  const unsigned first = lower(p + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (end - p < 3) return p;
  if (byte_at(p + 1) == 0xC5 && byte_at(p + 2) == 0xBF) return p + 3;
  const unsigned second = lower(p + 2);
  const bool match = second == 'e' ? first == 'r' || first == 'v' : second == 'l' && first == 'l';
  return match ? p + 3 : p;
}

// Alternatives 2 and 3 for a word of ASCII letters at p; null if what follows is not ASCII.
const char* match_ascii_word(const char* p, const char* end) noexcept {
  while (p != end && is_upper(p)) ++p;
  p = skip_lower(p, end);
  if (p == end) return p;
  if (!is_ascii(p)) return nullptr;
  return *p == '\'' ? skip_contraction(p, end) : p;
}

// Alternatives 6 to 8 where the run of blanks from begin ends at run_end, with the last newline of
// the run, if any, before newline_end, and its last blank at last_blank.
const char* blanks_end(const char* begin, const char* run_end, const char* newline_end,
                       const char* last_blank, const char* end) noexcept {
  if (newline_end != nullptr) return newline_end;
  return run_end == end || last_blank == begin ? run_end : last_blank;
}

const char* match_ascii_blanks(const Latin1& classes, const char* begin, const char* end) noexcept {
  const char* p = begin;
  const char* newline_end = nullptr;
  for (; p != end && is_ascii(p) && (classes[byte_at(p)] & kSpaceClass) != 0; ++p) {
    if ((classes[byte_at(p)] & kNewlineClass) != 0) newline_end = p + 1;
  }
  if (p != end && !is_ascii(p)) return nullptr;
  return blanks_end(begin, p, newline_end, p - 1, end);
}

// Alternative 5, p being its first character that is not a space.
const char* match_ascii_punctuation(const Latin1& classes, const char* p,
                                    const char* end) noexcept {
  while (p != end && is_ascii(p) && (classes[byte_at(p)] & kNotPunctuation) == 0) ++p;
  if (p != end && !is_ascii(p)) return nullptr;
  while (p != end && (*p == '\r' || *p == '\n')) ++p;
  return p;
}

const char* match_ascii_number(const Latin1& classes, const char* begin, const char* end) noexcept {
  const char* p = begin;
  while (p != end && p - begin < 3 && is_ascii(p) && (classes[byte_at(p)] & kNumberClass) != 0) ++p;
  return p != end && p - begin < 3 && !is_ascii(p) ? nullptr : p;
}

// The piece at begin as far as it can be told from ASCII alone; null if it takes more.
const char* match_ascii(const Latin1& classes, const char* begin, const char* end) noexcept {
  if (!is_ascii(begin)) return nullptr;
  const std::uint8_t first = classes[byte_at(begin)];
  if ((first & kLetterClass) != 0) return match_ascii_word(begin, end);
  if ((first & kNumberClass) != 0) return match_ascii_number(classes, begin, end);
  const char* second = begin + 1;
  if (second != end && (first & kNewlineClass) == 0) {
    if (!is_ascii(second)) return nullptr;
    const std::uint8_t next = classes[byte_at(second)];
    if ((next & kLetterClass) != 0) return match_ascii_word(second, end);
    if (*begin == ' ' && (next & kNotPunctuation) == 0) {
      return match_ascii_punctuation(classes, second, end);
    }
  }
  if ((first & kSpaceClass) != 0) return match_ascii_blanks(classes, begin, end);
  return match_ascii_punctuation(classes, begin, end);
}

struct Character {
  std::uint8_t classes;
  const char* next;  // behind it
};

// The pattern over code points.
class Matcher {
 public:
  Matcher(const UnicodeClasses& classes, const char* end) noexcept : classes_(classes), end_(end) {}

  const char* match(const char* begin) const noexcept {
    const Character first = read(begin);
    if ((first.classes & kHanClass) != 0) return skip(begin, kHanClass);
    if (const char* word = match_word(begin, first)) return skip_contraction(word, end_);
    if ((first.classes & kNumberClass) != 0) return match_number(begin);
    if ((first.classes & kNotPunctuation) == 0) return match_punctuation(begin);
    if (*begin == ' ' && first.next != end_ && (read(first.next).classes & kNotPunctuation) == 0) {
      return match_punctuation(first.next);
    }
    return match_blanks(begin);
  }

 private:
  Character read(const char* p) const noexcept {
    const auto low = [&](int i) -> char32_t { return byte_at(p + i) & 0x3FU; };
    const char32_t lead = byte_at(p);
    if (lead < 0x80) return {classes_[lead], p + 1};
    if (lead < 0xE0) return {classes_[(lead & 0x1FU) << 6U | low(1)], p + 2};
    if (lead < 0xF0) return {classes_[(lead & 0x0FU) << 12U | low(1) << 6U | low(2)], p + 3};
    return {classes_[(lead & 0x07U) << 18U | low(1) << 12U | low(2) << 6U | low(3)], p + 4};
  }

  const char* skip(const char* p, std::uint8_t wanted) const noexcept {
    while (p != end_) {
      const Character c = read(p);
      if ((c.classes & wanted) == 0) break;
      p = c.next;
    }
    return p;
  }

  struct Word {
    const char* lower;  // end of U* W+, null if it does not match
    const char* upper;  // end of U+, null if it does not match; for use when lower is null
  };

  // U* takes all it can and gives back until a W follows: the first character behind the run of U,
  // or else the last one of the run that is in both classes.
  Word read_word(const char* begin) const noexcept {
    const char* p = begin;
    const char* last_both = nullptr;  // end of that character
    while (p != end_) {
      const Character c = read(p);
      if ((c.classes & kUpperClass) == 0) {
        if ((c.classes & kLowerClass) != 0) return {skip(c.next, kLowerClass), nullptr};
        break;
      }
      p = c.next;
      if ((c.classes & kLowerClass) != 0) last_both = p;
    }
    return {last_both, p != begin ? p : nullptr};
  }

  // Alternatives 2 and 3 without the contraction, each with the leading character and then without
  // it. Null if neither matches.
  const char* match_word(const char* begin, Character first) const noexcept {
    Word behind{};
    if ((first.classes & kPieceOfItsOwn) == 0) behind = read_word(first.next);
    if (behind.lower != nullptr) return behind.lower;
    const Word here = read_word(begin);
    if (here.lower != nullptr) return here.lower;
    return behind.upper != nullptr ? behind.upper : here.upper;
  }

  const char* match_number(const char* p) const noexcept {
    for (int digits = 0; digits < 3 && p != end_; ++digits) {
      const Character c = read(p);
      if ((c.classes & kNumberClass) == 0) break;
      p = c.next;
    }
    return p;
  }

  const char* match_punctuation(const char* p) const noexcept {
    while (p != end_) {
      const Character c = read(p);
      if ((c.classes & kNotPunctuation) != 0) break;
      p = c.next;
    }
    return skip(p, kNewlineClass);
  }

  const char* match_blanks(const char* begin) const noexcept {
    const char* p = begin;
    const char* last = begin;
    const char* newline_end = nullptr;
    while (p != end_) {
      const Character c = read(p);
      if ((c.classes & kSpaceClass) == 0) break;
      if ((c.classes & kNewlineClass) != 0) newline_end = c.next;
      last = p;
      p = c.next;
    }
    return blanks_end(begin, p, newline_end, last, end_);
  }

  const UnicodeClasses& classes_;
  const char* end_;
};

// Bytes of the first `limit` code points of text.
std::size_t code_points_bytes(std::string_view text, std::size_t limit) noexcept {
  constexpr std::size_t kBlock = 64;
  if (text.size() <= limit) return text.size();
  std::size_t bytes = 0;
  std::size_t seen = 0;
  for (; text.size() - bytes >= kBlock && seen + kBlock <= limit; bytes += kBlock) {
    std::size_t leads = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      leads += is_continuation(text.data() + bytes + i) ? 0U : 1U;
    }
    seen += leads;
  }
  for (; bytes < text.size(); ++bytes) {
    if (is_continuation(text.data() + bytes)) continue;
    if (seen == limit) break;
    ++seen;
  }
  return bytes;
}

// Python's str.isspace, which counts four separators that \s leaves out.
bool is_python_space(const char* p) noexcept {
  const unsigned lead = byte_at(p);
  if (lead < 0x80) return lead - 0x1CU < 4U || (UnicodeClasses::get()[lead] & kSpaceClass) != 0;
  char32_t c = 0;
  if (lead < 0xE0) {
    c = (lead & 0x1FU) << 6U | (byte_at(p + 1) & 0x3FU);
  } else if (lead < 0xF0) {
    c = (lead & 0x0FU) << 12U | (byte_at(p + 1) & 0x3FU) << 6U | (byte_at(p + 2) & 0x3FU);
  }
  return (UnicodeClasses::get()[c] & kSpaceClass) != 0;  // no blank lies above U+FFFF
}

const char* code_point_start(const char* p) noexcept {
  while (is_continuation(p)) --p;
  return p;
}

const char* next_code_point(const char* p, const char* end) noexcept {
  do {
    ++p;
  } while (p != end && is_continuation(p));
  return p;
}

// Bytes of text before its first run of more than kRunCodePoints is cut. A run that long covers the
// window of as many bytes behind its start, so only the run at the window's end needs to be traced
// back, and in ordinary text that is one word.
std::size_t run_cut(std::string_view text) noexcept {
  const char* const end = text.data() + text.size();
  const char* begin = text.data();
  while (static_cast<std::size_t>(end - begin) > kRunCodePoints) {
    const char* p = code_point_start(begin + kRunCodePoints);
    const bool space = is_python_space(p);
    while (p != begin) {
      const char* before = code_point_start(p - 1);
      if (is_python_space(before) != space) break;
      p = before;
    }
    if (p == begin) {
      std::size_t run = 0;
      for (; p != end && is_python_space(p) == space; p = next_code_point(p, end)) {
        if (run == kRunCodePoints) return static_cast<std::size_t>(p - text.data());
        ++run;
      }
    }
    begin = p;
  }
  return text.size();
}

}  // namespace

Pieces::Pieces(std::string_view text) noexcept
    : classes_(UnicodeClasses::get()), begin_(text.data()), end_(text.data() + text.size()) {}

std::string_view Pieces::next() noexcept {
  const char* const begin = begin_;
  if (begin == end_) return {};
  begin_ = match_ascii(classes_.latin1(), begin, end_);
  if (begin_ == nullptr) begin_ = Matcher(classes_, end_).match(begin);
  return {begin, static_cast<std::size_t>(begin_ - begin)};
}

std::string_view SafetyCuts::next() noexcept {
  if (chunk_bytes_ == 0) chunk_bytes_ = code_points_bytes(rest_, kChunkCodePoints);
  const std::string_view part = rest_.substr(0, run_cut(rest_.substr(0, chunk_bytes_)));
  rest_.remove_prefix(part.size());
  chunk_bytes_ -= part.size();
  return part;
}

}  // namespace penstock

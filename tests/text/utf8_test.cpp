// SPDX-License-Identifier: Apache-2.0
#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {
namespace {

// Replacement written a second time, by the definition (Unicode, D93b): at each position the
// longest prefix of any well-formed sequence is one subpart. Prefixes are found by trying all code
// points' encodings, so nothing of the decoder's tables is used.
std::string encode(char32_t c) {
  std::string s;
  const auto put = [&](char32_t byte) { s.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6U);
    put(0x80 | (c & 0x3FU));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12U);
    put(0x80 | (c >> 6U & 0x3FU));
    put(0x80 | (c & 0x3FU));
  } else {
    put(0xF0 | c >> 18U);
    put(0x80 | (c >> 12U & 0x3FU));
    put(0x80 | (c >> 6U & 0x3FU));
    put(0x80 | (c & 0x3FU));
  }
  return s;
}

// Sorted prefixes of all well-formed sequences.
const std::vector<std::string>& sequence_prefixes() {
  static const std::vector<std::string> prefixes = [] {
    std::vector<std::string> all;
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const std::string s = encode(c);
      for (std::size_t n = 1; n <= s.size(); ++n) {
        if (all.empty() || all.back() != s.substr(0, n)) all.push_back(s.substr(0, n));
      }
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }();
  return prefixes;
}

bool is_prefix_of_sequence(std::string_view s) {
  const auto& all = sequence_prefixes();
  return std::binary_search(all.begin(), all.end(), std::string(s));
}

bool is_whole_sequence(std::string_view s) {
  const auto lead = static_cast<unsigned char>(s[0]);
  const std::size_t want = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return s.size() == want && is_prefix_of_sequence(s);
}

std::string replace_by_definition(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t n = 0;
    while (n < text.size() && n < 4 && is_prefix_of_sequence(text.substr(0, n + 1))) {
      ++n;
      if (is_whole_sequence(text.substr(0, n))) break;
    }
    if (n > 0 && is_whole_sequence(text.substr(0, n))) {
      out.append(text.substr(0, n));
    } else {
      out.append("\uFFFD");
      n = std::max<std::size_t>(n, 1);
    }
    text.remove_prefix(n);
  }
  return out;
}

// Bytes at the borders of every range of the encoding: the cases where decoders err.
std::string random_bytes(std::mt19937& random, std::size_t size) {
  static constexpr unsigned char kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                             0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                             0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  std::string s;
  while (s.size() < size) s.push_back(static_cast<char>(kEdges[random() % sizeof kEdges]));
  return s;
}

TEST(Utf8, ReplacesOneCharacterPerMaximalSubpart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"plain text, long enough for words", "plain text, long enough for words"},
      {"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x99\x82", "é中🙂"},
      {"\xF0\x9F\x99", "\uFFFD"},                        // cut at the end
      {"\xF0\x9F\x99x", "\uFFFDx"},                      // cut by another character
      {"\xF0\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xC0\xAF\xFE\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // never valid
      {"\xE4\xB8\xF0\x9F\xC3\xA9", "\uFFFD\uFFFDé"},     // two subparts, then text
      {"aaaaaaa\xFF"
       "bbbbbbbbb",
       "aaaaaaa\uFFFDbbbbbbbbb"},
      {"\xEF\xBF\xBD\xF4\x8F\xBF\xBF", "\uFFFD\U0010FFFF"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(replace_invalid_utf8(bytes), text);
    EXPECT_EQ(replace_by_definition(bytes), text);
  }
}

TEST(Utf8, ReadsEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string s = encode(c);
    const Utf8Sequence read = read_utf8(s);
    ASSERT_EQ(read.code_point, c);
    ASSERT_EQ(read.bytes, s.size());
    ASSERT_EQ(read.status, Utf8Status::complete);
    for (std::size_t n = 1; n < s.size(); ++n) {
      const Utf8Sequence cut = read_utf8(std::string_view(s).substr(0, n));
      ASSERT_EQ(cut.status, Utf8Status::truncated);
      ASSERT_EQ(cut.bytes, n);
    }
  }
}

TEST(Utf8, AgreesWithTheDefinitionOnRandomBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = random_bytes(random, random() % 24);
    const std::string expected = replace_by_definition(bytes);
    ASSERT_EQ(replace_invalid_utf8(bytes), expected);
    ASSERT_EQ(valid_utf8_prefix(expected), expected.size());
    ASSERT_EQ(valid_utf8_prefix(bytes) == bytes.size(), expected == bytes);
  }
}

TEST(Utf8Stream, GivesTheSameTextForEverySplit) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = random_bytes(random, random() % 11);
    const std::string expected = replace_invalid_utf8(bytes);
    const unsigned borders = bytes.empty() ? 0 : static_cast<unsigned>(bytes.size()) - 1;
    for (unsigned split = 0; split < 1U << borders; ++split) {
      Utf8Stream stream;
      std::string text;
      std::string part;
      for (std::size_t b = 0; b < bytes.size(); ++b) {
        part.push_back(bytes[b]);
        if (b == borders || (split >> b & 1U) != 0) {
          text += stream.feed(part);
          ASSERT_EQ(valid_utf8_prefix(text), text.size());
          part.clear();
        }
      }
      text += stream.flush();
      ASSERT_EQ(text, expected);
    }
  }
}

TEST(Utf8Stream, HoldsBackOnlyWhatMayStillBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("a\xF0\x9F"), "a");
  EXPECT_TRUE(stream.holds_bytes());
  EXPECT_EQ(stream.feed(""), "");
  EXPECT_EQ(stream.feed("\x99"), "");
  EXPECT_EQ(stream.feed("\x82"
                        "b"),
            "🙂b");
  EXPECT_FALSE(stream.holds_bytes());
  EXPECT_EQ(stream.feed("\xE4\xB8"), "");
  EXPECT_EQ(stream.feed("c"), "\uFFFDc");
  EXPECT_EQ(stream.feed("\xE4"), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.feed("\xED\xA0"), "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace penstock

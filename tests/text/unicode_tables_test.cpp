// SPDX-License-Identifier: Apache-2.0
#include "engine/text/unicode_tables.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace penstock {
namespace {

int count(std::uint8_t bits) {
  int n = 0;
  for (char32_t c = 0; c < 0x110000; ++c) n += (UnicodeClasses::get()[c] & bits) != 0 ? 1 : 0;
  return n;
}

// Counts of Unicode 16.0, from the specification.
TEST(UnicodeTables, HasTheCodePointsOfUnicode16) {
  EXPECT_EQ(count(kLetterClass), 141028);
  EXPECT_EQ(count(kNumberClass), 1911);
  EXPECT_EQ(count(kMarkClass), 2501);
  EXPECT_EQ(count(kHanClass), 99030);
  EXPECT_EQ(count(kSpaceClass), 25);
  EXPECT_EQ(count(kNewlineClass), 2);
}

TEST(UnicodeTables, HasHanIn22Ranges) {
  int ranges = 0;
  bool before = false;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const bool han = (UnicodeClasses::get()[c] & kHanClass) != 0;
    ranges += han && !before ? 1 : 0;
    before = han;
  }
  EXPECT_EQ(ranges, 22);
}

TEST(UnicodeTables, HasTheWhiteSpaceOfTheSpecification) {
  std::set<char32_t> expected = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  for (char32_t c = 0x09; c <= 0x0D; ++c) expected.insert(c);
  for (char32_t c = 0x2000; c <= 0x200A; ++c) expected.insert(c);
  for (char32_t c = 0; c < 0x110000; ++c) {
    ASSERT_EQ((UnicodeClasses::get()[c] & kSpaceClass) != 0, expected.count(c) == 1)
        << std::uint32_t{c};
  }
}

// U and W of the pattern hold every letter and mark that is not Han, cased letters one of them
// only.
TEST(UnicodeTables, SplitsLettersAndMarksByCase) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    const std::uint8_t bits = UnicodeClasses::get()[c];
    const bool word = (bits & (kLetterClass | kMarkClass)) != 0 && (bits & kHanClass) == 0;
    ASSERT_EQ((bits & (kUpperClass | kLowerClass)) != 0, word) << std::uint32_t{c};
  }
  constexpr std::uint8_t kBoth = kUpperClass | kLowerClass;
  const auto cases = [](char32_t c) -> std::uint8_t { return UnicodeClasses::get()[c] & kBoth; };
  EXPECT_EQ(cases(U'A'), kUpperClass);
  EXPECT_EQ(cases(U'a'), kLowerClass);
  EXPECT_EQ(cases(0x01C5), kUpperClass);  // titlecase letter
  EXPECT_EQ(cases(0x02B0), kBoth);        // modifier letter
  EXPECT_EQ(cases(0x05D0), kBoth);        // letter without case
  EXPECT_EQ(cases(0x0301), kBoth);        // mark
  EXPECT_EQ(cases(0x16D40), kBoth);       // Kirat Rai, new in 16.0
  EXPECT_EQ(cases(0x4E00), 0);
  EXPECT_EQ(UnicodeClasses::get()[0x3007], kNumberClass | kHanClass);
  EXPECT_EQ(UnicodeClasses::get()[0x2E80], kHanClass);
  EXPECT_EQ(UnicodeClasses::get()[0x10FFFF], 0);
}

}  // namespace
}  // namespace penstock

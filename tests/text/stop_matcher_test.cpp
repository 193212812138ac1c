// SPDX-License-Identifier: Apache-2.0
#include "engine/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace penstock {
namespace {

struct Result {
  std::string text;
  bool matched;
  bool operator==(const Result&) const = default;
};

Result run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Result result{};
  for (const std::string& piece : pieces) result.text += matcher.feed(piece);
  result.text += matcher.finish();
  result.matched = matcher.matched();
  return result;
}

// The stop string that is complete first ends the text; of several that end together, the longest.
Result search(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (!stop.empty() && stop.size() <= end &&
          text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, LetsTextThroughAtOnceWhenNothingCanMatch) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.feed("hello "), "hello ");
  EXPECT_EQ(matcher.feed("the E"), "the ");
  EXPECT_EQ(matcher.feed("N"), "");
  EXPECT_EQ(matcher.feed("TRY"), "ENTRY");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, EndsTheTextBeforeTheStopString) {
  EXPECT_EQ(run({"\n\n"}, {"one\n", "two\n", "\nthree"}), (Result{"one\ntwo", true}));
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.feed("axb"), "a");
  EXPECT_EQ(matcher.feed("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackAPartialMatchAtTheEnd) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.feed("xaa"), "x");
  EXPECT_EQ(matcher.feed("a"), "a");
  EXPECT_EQ(matcher.finish(), "aa");
}

TEST(StopMatcher, TakesTheStopStringThatIsCompleteFirst) {
  EXPECT_EQ(run({"abcd", "bc"}, {"zabcd"}), (Result{"za", true}));
  EXPECT_EQ(run({"c", "bc"}, {"abc"}), (Result{"a", true}));
}

TEST(StopMatcher, IgnoresEmptyStopStrings) {
  EXPECT_EQ(run({"", ""}, {"text"}), (Result{"text", false}));
  EXPECT_EQ(run({}, {"text"}), (Result{"text", false}));
}

TEST(StopMatcher, GivesTheSameForEverySplit) {
  std::mt19937 random(1);
  const auto letters = [&random](std::size_t length) {
    std::string text;
    while (text.size() < length) text += "ab"[random() % 2];
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(letters(3 + random() % 5));
    const std::string text = letters(random() % 24);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 4));
      at += pieces.back().size();
    }
    const Result expected = search(stops, text);
    ASSERT_EQ(run(stops, pieces), expected) << text;
    matches += expected.matched ? 1 : 0;
  }
  EXPECT_GT(matches, 500);
  EXPECT_LT(matches, 4500);
}

}  // namespace
}  // namespace penstock

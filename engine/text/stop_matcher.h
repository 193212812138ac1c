// SPDX-License-Identifier: Apache-2.0
//
// Finds stop strings in text that arrives in pieces: nothing of a stop string gets out, whatever
// the cuts. One owner thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class StopMatcher {
 public:
  explicit StopMatcher(const std::vector<std::string>& stops);  // empty ones are ignored

  // The text that may go out now: all but the longest end that may still become a stop string. The
  // first stop string to be complete ends the text before its beginning; later text is dropped.
  std::string feed(std::string_view text);
  // What was held back, at the end of the text. Empty after a match.
  std::string finish();
  bool matched() const noexcept { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  // [i]: longest proper prefix of text[0, i) that ends it
    std::size_t length = 0;           // of the longest prefix of text that ends the input
  };
  static bool advance(Pattern* pattern, char c);  // true when the whole pattern ends here

  std::vector<Pattern> patterns_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace penstock

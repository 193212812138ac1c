// SPDX-License-Identifier: Apache-2.0
#include "engine/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace penstock {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern{stop, std::vector<std::size_t>(stop.size() + 1, 0)};
    for (std::size_t i = 1; i < stop.size(); ++i) {
      std::size_t border = pattern.border[i];
      while (border > 0 && stop[border] != stop[i]) border = pattern.border[border];
      pattern.border[i + 1] = stop[border] == stop[i] ? border + 1 : 0;
    }
    patterns_.push_back(std::move(pattern));
  }
}

bool StopMatcher::advance(Pattern* pattern, char c) {
  std::size_t& length = pattern->length;
  while (length > 0 && pattern->text[length] != c) length = pattern->border[length];
  if (pattern->text[length] == c) ++length;
  return length == pattern->text.size();
}

std::string StopMatcher::feed(std::string_view text) {
  if (matched_) return {};
  for (const char c : text) {
    held_.push_back(c);
    std::size_t stop_bytes = 0;  // of the longest pattern that ends here
    for (Pattern& pattern : patterns_) {
      if (advance(&pattern, c)) stop_bytes = std::max(stop_bytes, pattern.text.size());
    }
    if (stop_bytes > 0) {
      matched_ = true;
      held_.resize(held_.size() - stop_bytes);
      return std::exchange(held_, {});
    }
  }
  std::size_t open = 0;
  for (const Pattern& pattern : patterns_) open = std::max(open, pattern.length);
  std::string out = held_.substr(0, held_.size() - open);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace penstock

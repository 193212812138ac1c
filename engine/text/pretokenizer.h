// SPDX-License-Identifier: Apache-2.0
//
// The pattern that cuts text into pieces before BPE (spec: tokenizer.md sections 3 and 4), as a
// hand-written matcher over Unicode 16 classes: ASCII goes through words of 8 bytes, the rest code
// point by code point. Text must be well-formed UTF-8 throughout.
// One owner thread. Both classes view the text, which must outlive them.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock {

class UnicodeClasses;

// The pieces of a text, one after the other. They cover it; it is looked at up to its end only, as
// the pattern looks ahead.
class Pieces {
 public:
  explicit Pieces(std::string_view text) noexcept;
  std::string_view next() noexcept;  // empty when the text is used up

 private:
  const UnicodeClasses& classes_;
  const char* begin_;
  const char* end_;
};

// The cuts of section 4: chunks of at most 400,000 code points, and within a chunk at most 25,000
// code points in a row of one class, blank or not. Every part is encoded as if it were the whole
// text.
class SafetyCuts {
 public:
  explicit SafetyCuts(std::string_view text) noexcept : rest_(text) {}
  std::string_view next() noexcept;  // the next part; empty when the text is used up

 private:
  std::string_view rest_;
  std::size_t chunk_bytes_ = 0;  // of rest_ that belong to the current chunk
};

}  // namespace penstock

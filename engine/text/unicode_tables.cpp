// SPDX-License-Identifier: Apache-2.0
#include "engine/text/unicode_tables.h"

#include <algorithm>

namespace penstock {

UnicodeClasses::UnicodeClasses() {
  const std::uint32_t* change = kClassStarts;
  const std::uint32_t* const last = kClassStarts + kClassStartCount - 1;
  for (std::uint32_t block = 0; block < index_.size(); ++block) {
    std::array<std::uint8_t, 256> classes{};
    for (std::uint32_t i = 0; i < classes.size(); ++i) {
      const std::uint32_t code_point = block * 256 + i;
      while (change != last && change[1] >> 8U <= code_point) ++change;
      classes[i] = static_cast<std::uint8_t>(*change & 0xFFU);
    }
    // Searched from the back: equal neighbours (the ideographs, the planes without characters) are
    // what makes blocks repeat.
    const auto same = std::find(blocks_.rbegin(), blocks_.rend(), classes);
    index_[block] = static_cast<std::uint16_t>(blocks_.rend() - same - 1);
    if (same == blocks_.rend()) {
      index_[block] = static_cast<std::uint16_t>(blocks_.size());
      blocks_.push_back(classes);
    }
  }
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace penstock

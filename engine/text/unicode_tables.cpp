// SPDX-License-Identifier: Apache-2.0
#include "engine/text/unicode_tables.h"

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
    // Equal neighbours (the ideographs, the planes without characters) share a block.
    if (blocks_.empty() || blocks_.back() != classes) blocks_.push_back(classes);
    index_[block] = static_cast<std::uint16_t>(blocks_.size() - 1);
  }
}

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

}  // namespace penstock

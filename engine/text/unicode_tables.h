// SPDX-License-Identifier: Apache-2.0
//
// The character classes of the tokenizer's pattern, Unicode 16.0 (spec: tokenizer.md section 3):
// written by scripts/unicode_tables as class changes, expanded once to a two-stage table.
// Immutable after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

// Bits of a class; a code point has any number of them.
inline constexpr std::uint8_t kLetterClass = 1;     // \p{L}
inline constexpr std::uint8_t kNumberClass = 2;     // \p{N}
inline constexpr std::uint8_t kMarkClass = 4;       // \p{M}
inline constexpr std::uint8_t kHanClass = 8;        // Script=Han
inline constexpr std::uint8_t kSpaceClass = 16;     // White_Space
inline constexpr std::uint8_t kUpperClass = 32;     // Lu, Lt, Lm, Lo, M, without Han
inline constexpr std::uint8_t kLowerClass = 64;     // Ll, Lm, Lo, M, without Han
inline constexpr std::uint8_t kNewlineClass = 128;  // CR, LF

class UnicodeClasses {
 public:
  static const UnicodeClasses& get();  // the one instance, made at first use

  std::uint8_t operator[](char32_t code_point) const noexcept {  // code_point < 0x110000
    return blocks_[index_[code_point >> 8U]][code_point & 0xFFU];
  }
  // Classes of U+0000 to U+00FF.
  const std::array<std::uint8_t, 256>& latin1() const noexcept { return blocks_[0]; }

 private:
  UnicodeClasses();
  std::array<std::uint16_t, 0x1100> index_{};  // block of each 256 code points
  std::vector<std::array<std::uint8_t, 256>> blocks_;
};

// Generated: first code point << 8 | class, ascending; each holds up to the next one's start.
extern const std::uint32_t kClassStarts[];
extern const std::size_t kClassStartCount;

}  // namespace penstock

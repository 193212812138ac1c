// SPDX-License-Identifier: Apache-2.0
//
// The mergeable tokens: rank to bytes and bytes to rank. Ranks are dense and given in the order of
// add(). Filled by one owner thread, Immutable afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace penstock {

class TokenRanks {
 public:
  static constexpr Token kNone = std::numeric_limits<Token>::max();  // above every rank

  // Room for `tokens` tokens of `bytes` bytes together; more is an error of the caller.
  TokenRanks(std::size_t tokens, std::size_t bytes);

  // Gives `token` (not empty) the next rank. Returns kNone, or the rank it already has: then
  // nothing is added.
  Token add(std::string_view token);

  Token size() const noexcept { return static_cast<Token>(starts_.size() - 1); }
  std::string_view bytes(Token rank) const noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return std::string_view(arena_).substr(starts_[r], starts_[r + 1] - starts_[r]);
  }
  // The rank of a single byte, or kNone.
  Token of_byte(char byte) const noexcept { return bytes_[static_cast<unsigned char>(byte)]; }

  // The rank of the bytes [p, p + n), n >= 1, or kNone. [p, readable_end) may be read.
  Token find(const char* p, std::size_t n, const char* readable_end) const noexcept;

 private:
  // A token of up to 8 bytes is compared within its slot, one cache line away.
  struct Slot {
    std::uint64_t head = 0;   // the first 8 bytes, little-endian, zero-padded
    std::uint32_t bytes = 0;  // 0: free
    Token rank = 0;
  };
  struct Key {
    std::uint64_t head;
    std::uint64_t hash;
  };
  static Key key_of(const char* p, std::size_t n, const char* readable_end) noexcept;
  const Slot& probe(const Key& key, const char* p, std::size_t n) const noexcept;

  std::array<Token, 256> bytes_;       // ranks of the single bytes
  std::string arena_;                  // all tokens, back to back
  std::vector<std::uint32_t> starts_;  // [tokens + 1]
  std::vector<Slot> slots_;            // a power of two, open addressing
  int shift_;                          // 64 - log2(slots)
  std::size_t longest_ = 0;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The mergeable tokens: rank to bytes and bytes to rank. Ranks are dense and given in the order of
// add(). Filled by one owner thread, Immutable afterwards.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

  // The rank of the two bytes at p, or kNone.
  Token of_pair(const char* p) const noexcept { return pairs_[pair_index(p)]; }

  // The rank of the bytes [p, p + n), n >= 1, or kNone. [p, readable_end) may be read.
  Token find(const char* p, std::size_t n, const char* readable_end) const noexcept;

 private:
  static constexpr std::size_t kHeadBytes = 8;
  // A token of up to 8 bytes is compared within its slot, one cache line away.
  struct Slot {
    std::uint64_t head = 0;   // the first 8 bytes, little-endian, zero-padded
    std::uint32_t bytes = 0;  // 0: free
    Token rank = kNone;
  };
  struct Key {
    std::uint64_t head;
    std::uint64_t hash;
  };
  static std::size_t pair_index(const char* p) noexcept {
    return std::size_t{static_cast<unsigned char>(p[0])} << 8U | static_cast<unsigned char>(p[1]);
  }
  static Key key_of(const char* p, std::size_t n, const char* readable_end) noexcept;
  const Slot& probe(const Key& key, const char* p, std::size_t n) const noexcept;

  std::vector<Token> pairs_;      // [65536], ranks of two bytes: half of all look-ups of merging
  std::array<Token, 256> bytes_;  // ranks of the single bytes
  std::string arena_;             // all tokens, back to back
  std::vector<std::uint32_t> starts_;  // [tokens + 1]
  std::vector<Slot> slots_;            // a power of two, open addressing
  int shift_;                          // 64 - log2(slots)
  std::size_t longest_ = 0;
};

// Inline, as the encoder spends most of its time here.

// The length takes part, so that zero padding and zero bytes differ; the last 8 bytes stand for
// what lies behind the head, the middle of longer tokens is left to the comparison.
inline TokenRanks::Key TokenRanks::key_of(const char* p, std::size_t n,
                                          const char* readable_end) noexcept {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::uint64_t kMix1 = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
  constexpr std::uint64_t kMix2 = 0xD6E8FEB86659FD93U;  // odd, half of its bits set
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  if (n >= kHeadBytes) {
    std::memcpy(&head, p, kHeadBytes);
    std::memcpy(&tail, p + n - kHeadBytes, kHeadBytes);
  } else if (readable_end - p >= static_cast<std::ptrdiff_t>(kHeadBytes)) {
    std::memcpy(&head, p, kHeadBytes);
    head &= (std::uint64_t{1} << (8 * n)) - 1;
  } else {
    std::memcpy(&head, p, n);
  }
  const std::uint64_t hash = (head ^ n << 56U) * kMix1;
  return {head, (hash ^ hash >> 32U ^ tail) * kMix2};
}

inline const TokenRanks::Slot& TokenRanks::probe(const Key& key, const char* p,
                                                 std::size_t n) const noexcept {
  for (std::size_t i = key.hash >> shift_;; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.bytes == 0) return slot;
    if (slot.head != key.head || slot.bytes != n) continue;
    if (n <= kHeadBytes) return slot;
    const char* token = arena_.data() + starts_[static_cast<std::size_t>(slot.rank)];
    if (std::memcmp(token + kHeadBytes, p + kHeadBytes, n - kHeadBytes) == 0) return slot;
  }
}

inline Token TokenRanks::find(const char* p, std::size_t n,
                              const char* readable_end) const noexcept {
  if (n > longest_) return kNone;
  return probe(key_of(p, n, readable_end), p, n).rank;
}

}  // namespace penstock

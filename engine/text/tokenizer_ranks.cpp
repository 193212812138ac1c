// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_ranks.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace penstock {
namespace {

constexpr std::size_t kHeadBytes = 8;

std::uint64_t load_word(const char* p, std::size_t n) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, p, n);
  return word;
}

}  // namespace

TokenRanks::TokenRanks(std::size_t tokens, std::size_t bytes)
    : slots_(std::bit_ceil(2 * tokens + 2)), shift_(64 - std::countr_zero(slots_.size())) {
  assert(bytes <= std::numeric_limits<std::uint32_t>::max());
  bytes_.fill(kNone);
  arena_.reserve(bytes);
  starts_.reserve(tokens + 1);
  starts_.push_back(0);
}

Token TokenRanks::add(std::string_view token) {
  assert(!token.empty() && starts_.size() < slots_.size());
  const Key key = key_of(token.data(), token.size(), token.data() + token.size());
  const Slot& found = probe(key, token.data(), token.size());
  if (found.bytes != 0) return found.rank;
  slots_[static_cast<std::size_t>(&found - slots_.data())] = {
      key.head, static_cast<std::uint32_t>(token.size()), size()};
  if (token.size() == 1) bytes_[static_cast<unsigned char>(token[0])] = size();
  arena_.append(token);
  starts_.push_back(static_cast<std::uint32_t>(arena_.size()));
  longest_ = std::max(longest_, token.size());
  return kNone;
}

Token TokenRanks::find(const char* p, std::size_t n, const char* readable_end) const noexcept {
  if (n > longest_) return kNone;
  const Slot& slot = probe(key_of(p, n, readable_end), p, n);
  return slot.bytes != 0 ? slot.rank : kNone;
}

// The length takes part, so that zero padding and zero bytes differ; the last 8 bytes stand for
// what lies behind the head, the middle of longer tokens is left to the comparison.
TokenRanks::Key TokenRanks::key_of(const char* p, std::size_t n,
                                   const char* readable_end) noexcept {
  constexpr std::uint64_t kMix1 = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
  constexpr std::uint64_t kMix2 = 0xD6E8FEB86659FD93U;  // odd, bits even
  Key key{};
  std::uint64_t tail = 0;
  if (n >= kHeadBytes) {
    key.head = load_word(p, kHeadBytes);
    tail = load_word(p + n - kHeadBytes, kHeadBytes);
  } else if (readable_end - p >= static_cast<std::ptrdiff_t>(kHeadBytes)) {
    key.head = load_word(p, kHeadBytes) & ((std::uint64_t{1} << (8 * n)) - 1);
  } else {
    key.head = load_word(p, n);
  }
  std::uint64_t hash = (key.head ^ n << 56U) * kMix1;
  hash = (hash ^ hash >> 32U ^ tail) * kMix2;
  key.hash = hash;
  return key;
}

const TokenRanks::Slot& TokenRanks::probe(const Key& key, const char* p,
                                          std::size_t n) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = key.hash >> shift_;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.bytes == 0) return slot;
    if (slot.head != key.head || slot.bytes != n) continue;
    if (n <= kHeadBytes) return slot;
    const std::string_view token = bytes(slot.rank);
    if (std::memcmp(token.data() + kHeadBytes, p + kHeadBytes, n - kHeadBytes) == 0) return slot;
  }
}

}  // namespace penstock

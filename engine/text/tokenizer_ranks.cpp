// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_ranks.h"

#include <algorithm>
#include <cassert>

namespace penstock {

TokenRanks::TokenRanks(std::size_t tokens, std::size_t bytes)
    : pairs_(std::size_t{1} << 16U, kNone),
      slots_(std::bit_ceil(2 * tokens + 2)),
      shift_(64 - std::countr_zero(slots_.size())) {
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
  if (token.size() == 2) pairs_[pair_index(token.data())] = size();
  arena_.append(token);
  starts_.push_back(static_cast<std::uint32_t>(arena_.size()));
  longest_ = std::max(longest_, token.size());
  return kNone;
}

}  // namespace penstock

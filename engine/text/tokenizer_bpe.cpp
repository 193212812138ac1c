// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_bpe.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>

namespace penstock {
namespace {

constexpr std::int32_t kShortBytes = 64;

// A piece of up to kShortBytes bytes. Everything is indexed by the first byte of a part; the key of
// a part is the rank of its merge with the next part, times kShortBytes, plus its place: the lowest
// key is the next merge, and the search for it has no branch.
class ShortPiece {
 public:
  ShortPiece(const TokenRanks& ranks, std::string_view piece, const char* readable_end) noexcept
      : ranks_(ranks), text_(piece.data()), readable_end_(readable_end), bytes_(piece.size()) {
    for (std::size_t i = 0; i < bytes_; ++i) {
      next_[i] = static_cast<std::uint8_t>(i + 1);
      previous_[i + 1] = static_cast<std::uint8_t>(i);
      own_[i] = ranks_.of_byte(text_[i]);
      keys_[i] = i + 1 < bytes_ ? key(i, ranks_.of_pair(text_ + i)) : kNoMerge;
    }
    for (std::size_t i = bytes_; i % kLanes != 0; ++i) keys_[i] = kNoMerge;
  }

  void merge_all() noexcept {
    while (true) {
      const std::int32_t lowest = lowest_key();
      if (lowest == kNoMerge) return;
      const auto left = static_cast<std::size_t>(lowest % kShortBytes);
      const std::size_t right = next_[left];
      own_[left] = lowest / kShortBytes;
      keys_[right] = kNoMerge;
      next_[left] = next_[right];
      previous_[next_[right]] = static_cast<std::uint8_t>(left);
      keys_[left] = key(left);
      if (left != 0) keys_[previous_[left]] = key(previous_[left]);
    }
  }

  void append_to(std::vector<Token>* out) const {
    for (std::size_t i = 0; i < bytes_; i = next_[i]) out->push_back(own_[i]);
  }

 private:
  // Signed, for SSE2 has no other comparison of 32 bits.
  static constexpr std::int32_t kNoMerge = std::numeric_limits<std::int32_t>::max();
  static constexpr std::size_t kLanes = 4;
  static_assert(kMaxRanks * kShortBytes <= kNoMerge);

  static std::int32_t key(std::size_t part, Token merged) noexcept {
    if (merged == TokenRanks::kNone) return kNoMerge;
    return merged * kShortBytes + static_cast<std::int32_t>(part);
  }

  std::int32_t key(std::size_t part) const noexcept {
    if (next_[part] == bytes_) return kNoMerge;
    return key(part, ranks_.find(text_ + part, next_[next_[part]] - part, readable_end_));
  }

  std::int32_t lowest_key() const noexcept {
    std::array<std::int32_t, kLanes> low{};
    low.fill(kNoMerge);
    for (std::size_t i = 0; i < bytes_; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        low[lane] = std::min(low[lane], keys_[i + lane]);
      }
    }
    return std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
  }

  const TokenRanks& ranks_;
  const char* text_;
  const char* readable_end_;
  std::size_t bytes_;
  std::array<std::int32_t, kShortBytes> keys_;
  std::array<Token, kShortBytes> own_;  // the rank of the part itself
  std::array<std::uint8_t, kShortBytes + 1> next_;
  std::array<std::uint8_t, kShortBytes + 1> previous_;
};

// A piece of any length: parts in a linked list, merges in a heap. Entries of the heap that a later
// merge made stale are recognised by their rank when they come up.
class LongPiece {
 public:
  LongPiece(const TokenRanks& ranks, std::string_view piece, const char* readable_end)
      : ranks_(ranks), text_(piece.data()), readable_end_(readable_end), parts_(piece.size()) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i] = {i + 1, i - 1, ranks_.of_byte(text_[i]), TokenRanks::kNone};
    }
    for (std::size_t i = 0; i + 1 < parts_.size(); ++i) push_merge(i);
  }

  void merge_all() {
    while (!heap_.empty()) {
      const Merge merge = heap_.top();
      heap_.pop();
      Part& left = parts_[merge.part];
      if (left.merged != merge.rank) continue;
      Part& right = parts_[left.next];
      right.merged = TokenRanks::kNone;
      left.own = merge.rank;
      left.next = right.next;
      if (left.next < parts_.size()) parts_[left.next].previous = merge.part;
      push_merge(merge.part);
      if (merge.part != 0) push_merge(left.previous);
    }
  }

  void append_to(std::vector<Token>* out) const {
    for (std::size_t i = 0; i < parts_.size(); i = parts_[i].next) out->push_back(parts_[i].own);
  }

 private:
  struct Part {
    std::size_t next;
    std::size_t previous;
    Token own;     // the rank of the part itself
    Token merged;  // of the part and the next one together
  };
  struct Merge {
    Token rank;
    std::size_t part;
    bool operator>(const Merge& other) const noexcept {
      return rank != other.rank ? rank > other.rank : part > other.part;
    }
  };

  void push_merge(std::size_t i) {
    Part& part = parts_[i];
    part.merged = TokenRanks::kNone;
    if (part.next == parts_.size()) return;
    part.merged = ranks_.find(text_ + i, parts_[part.next].next - i, readable_end_);
    if (part.merged != TokenRanks::kNone) heap_.push({part.merged, i});
  }

  const TokenRanks& ranks_;
  const char* text_;
  const char* readable_end_;
  std::vector<Part> parts_;  // indexed by first byte; [bytes of the piece]
  std::priority_queue<Merge, std::vector<Merge>, std::greater<>> heap_;
};

}  // namespace

void encode_piece(const TokenRanks& ranks, std::string_view piece, const char* readable_end,
                  std::vector<Token>* out) {
  const Token whole = ranks.find(piece.data(), piece.size(), readable_end);
  if (whole != TokenRanks::kNone) {
    out->push_back(whole);
    return;
  }
  if (piece.size() <= std::size_t{kShortBytes}) {
    ShortPiece parts(ranks, piece, readable_end);
    parts.merge_all();
    parts.append_to(out);
  } else {
    LongPiece parts(ranks, piece, readable_end);
    parts.merge_all();
    parts.append_to(out);
  }
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// A state of `own` bytes that shares named blocks of 100 bytes with others.
class FakeState final : public KeptState {
 public:
  FakeState(std::int64_t length, std::uint64_t own, bool has_logits = false,
            std::vector<const int*> blocks = {})
      : length_(length), own_(own), blocks_(std::move(blocks)), logits_(has_logits ? 4 : 0) {}
  std::int64_t length() const override { return length_; }
  std::uint64_t memory_bytes(std::unordered_set<const void*>* counted) const override {
    std::uint64_t bytes = own_;
    for (const int* block : blocks_) {
      if (counted->insert(block).second) bytes += 100;
    }
    return bytes;
  }
  std::span<const float> logits() const override { return logits_; }

 private:
  std::int64_t length_;
  std::uint64_t own_;
  std::vector<const int*> blocks_;
  std::vector<float> logits_;
};

using Ids = std::vector<Token>;

void insert(PrefixCache& cache, KeptKind kind, const Ids& ids, std::uint64_t own, bool has_tools,
            bool has_logits = false) {
  cache.insert(kind, ids,
               std::make_shared<FakeState>(static_cast<std::int64_t>(ids.size()), own, has_logits),
               has_tools);
}

std::int64_t found(PrefixCache& cache, const Ids& prompt) {
  const auto state = cache.find(prompt);
  return state ? state->length() : 0;
}

TEST(PrefixCache, FindsTheLongestPrefix) {
  PrefixCache cache(10'000);
  insert(cache, KeptKind::block, {1, 2}, 10, true);
  insert(cache, KeptKind::block, {1, 2, 3, 4}, 10, true);
  insert(cache, KeptKind::block, {1, 2, 9}, 10, true);
  EXPECT_EQ(found(cache, {1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(found(cache, {1, 2, 3, 5}), 2);
  EXPECT_EQ(found(cache, {1, 2, 9, 9}), 3);
  EXPECT_EQ(found(cache, {2, 1}), 0);
  EXPECT_EQ(found(cache, {1}), 0);
}

TEST(PrefixCache, AStateOfTheWholePromptNeedsLogits) {
  PrefixCache cache(10'000);
  insert(cache, KeptKind::reply, {1, 2, 3}, 10, false);
  insert(cache, KeptKind::block, {1}, 10, false);
  EXPECT_EQ(found(cache, {1, 2, 3}), 1);
  EXPECT_TRUE(cache.contains(Ids{1, 2, 3}, false));
  EXPECT_FALSE(cache.contains(Ids{1, 2, 3}, true));
  insert(cache, KeptKind::prompt, {1, 2, 3}, 10, false, true);
  EXPECT_EQ(found(cache, {1, 2, 3}), 3);
  EXPECT_TRUE(cache.contains(Ids{1, 2, 3}, true));
  EXPECT_EQ(cache.size(), 2U);  // replaced
}

TEST(PrefixCache, DropsTheLeastRecentlyUsed) {
  PrefixCache cache(3'100);
  insert(cache, KeptKind::prompt, {1}, 1'000, false);
  insert(cache, KeptKind::prompt, {2}, 1'000, false);
  insert(cache, KeptKind::prompt, {3}, 1'000, false);
  EXPECT_EQ(found(cache, {1, 5}), 1);  // used now
  insert(cache, KeptKind::prompt, {4}, 1'000, false);
  EXPECT_EQ(found(cache, {2, 5}), 0);
  EXPECT_EQ(found(cache, {1, 5}), 1);
  EXPECT_EQ(found(cache, {3, 5}), 1);
  EXPECT_EQ(found(cache, {4, 5}), 1);
  EXPECT_LE(cache.memory_bytes(), 3'100U);
}

TEST(PrefixCache, KeepsLastPromptLastReplyAndTwoBlocksLongest) {
  PrefixCache cache(5'200);
  insert(cache, KeptKind::block, {1}, 1'000, true);
  insert(cache, KeptKind::block, {1, 2}, 1'000, true);
  for (Token turn = 3; turn < 20; ++turn) {
    insert(cache, KeptKind::prompt, {1, 2, turn}, 1'000, true);
    insert(cache, KeptKind::reply, {1, 2, turn, 99}, 1'000, true);
  }
  EXPECT_EQ(cache.size(), 5U);
  EXPECT_EQ(found(cache, {1, 2, 50}), 2);
  EXPECT_EQ(found(cache, {1, 50}), 1);
  EXPECT_EQ(found(cache, {1, 2, 19, 99, 5}), 4);
  EXPECT_EQ(found(cache, {1, 2, 19, 5}), 3);
}

TEST(PrefixCache, ARequestWithoutToolsDropsNothingOfOneWithTools) {
  PrefixCache cache(4'200);
  insert(cache, KeptKind::block, {1}, 1'000, true);
  insert(cache, KeptKind::prompt, {1, 2}, 1'000, true);
  insert(cache, KeptKind::reply, {1, 2, 3}, 1'000, true);
  for (Token title = 10; title < 15; ++title) {
    insert(cache, KeptKind::prompt, {title}, 1'000, false);
    EXPECT_EQ(cache.size(), 4U);
    EXPECT_EQ(found(cache, {title, 5}), 1);
    EXPECT_EQ(found(cache, {1, 2, 3, 4}), 3);
  }
  EXPECT_FALSE(cache.make_room(2'000, false));
  EXPECT_TRUE(cache.make_room(2'000, true));
  EXPECT_FALSE(cache.make_room(5'000, true));
}

TEST(PrefixCache, KeepsNothingWithoutRoom) {
  PrefixCache none(0);
  insert(none, KeptKind::prompt, {1}, 1'000, true);
  EXPECT_EQ(none.size(), 0U);
  EXPECT_FALSE(none.make_room(1, true));
  PrefixCache small(2'100);
  insert(small, KeptKind::block, {1}, 1'000, true);
  insert(small, KeptKind::prompt, {2}, 1'500, false);  // may not drop the block
  EXPECT_EQ(found(small, {1, 5}), 1);
  EXPECT_EQ(found(small, {2, 5}), 0);
}

TEST(PrefixCache, CountsSharedBlocksOnce) {
  PrefixCache cache(10'000);
  const int a = 0;
  const int b = 0;
  cache.insert(KeptKind::block, Ids{1},
               std::make_shared<FakeState>(1, 10, false, std::vector<const int*>{&a}), true);
  cache.insert(KeptKind::prompt, Ids{1, 2},
               std::make_shared<FakeState>(2, 10, false, std::vector<const int*>{&a, &b}), true);
  EXPECT_EQ(cache.memory_bytes(), 10 + 10 + 200 + 3 * sizeof(Token));
}

}  // namespace
}  // namespace penstock

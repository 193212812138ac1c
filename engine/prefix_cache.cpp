// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

namespace penstock {
namespace {

// How many states of a kind outlive others as long as others can go.
constexpr int kProtectedBlocks = 2;
constexpr int kProtectedOthers = 1;

bool is_prefix(std::span<const Token> ids, std::span<const Token> of) {
  return ids.size() <= of.size() && std::equal(ids.begin(), ids.end(), of.begin());
}

}  // namespace

std::shared_ptr<const KeptState> PrefixCache::find(std::span<const Token> prompt) {
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!is_prefix(entry->ids, prompt)) continue;
    if (entry->ids.size() == prompt.size() && entry->state->logits().empty()) continue;
    if (best == entries_.end() || entry->ids.size() > best->ids.size()) best = entry;
  }
  if (best == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, best);
  return best->state;
}

bool PrefixCache::contains(std::span<const Token> ids, bool need_logits) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return std::equal(ids.begin(), ids.end(), entry.ids.begin(), entry.ids.end()) &&
           (!need_logits || !entry.state->logits().empty());
  });
}

// The entry to drop next, or end() when none may go.
PrefixCache::Entries::iterator PrefixCache::victim(bool has_tools) {
  auto unprotected = entries_.end();
  auto any = entries_.end();
  int seen[3] = {0, 0, 0};
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {  // newest first
    const int count = ++seen[static_cast<int>(entry->kind)];
    if (entry->has_tools && !has_tools) continue;
    any = entry;
    if (count > (entry->kind == KeptKind::block ? kProtectedBlocks : kProtectedOthers)) {
      unprotected = entry;
    }
  }
  return unprotected != entries_.end() ? unprotected : any;
}

bool PrefixCache::make_room(std::uint64_t bytes, bool has_tools) {
  if (bytes > budget_bytes_) return false;
  while (memory_bytes() > budget_bytes_ - bytes) {
    const auto entry = victim(has_tools);
    if (entry == entries_.end()) return false;
    entries_.erase(entry);
  }
  return true;
}

void PrefixCache::set_budget(std::uint64_t budget_bytes) {
  budget_bytes_ = budget_bytes;
  make_room(0, true);
}

void PrefixCache::insert(KeptKind kind, std::span<const Token> ids,
                         std::shared_ptr<const KeptState> state, bool has_tools) {
  entries_.remove_if([&](const Entry& entry) {
    return std::equal(ids.begin(), ids.end(), entry.ids.begin(), entry.ids.end());
  });
  entries_.push_front({kind, has_tools, {ids.begin(), ids.end()}, std::move(state)});
  const auto added = entries_.begin();
  // The new entry is not a candidate: it goes only when nothing else may.
  Entries alone;
  while (memory_bytes() > budget_bytes_) {
    alone.splice(alone.begin(), entries_, added);
    const auto entry = victim(has_tools);
    if (entry == entries_.end()) return;
    entries_.erase(entry);
    entries_.splice(entries_.begin(), alone, added);
  }
}

std::uint64_t PrefixCache::memory_bytes() const {
  std::unordered_set<const void*> counted;
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.state->memory_bytes(&counted) + entry.ids.size() * sizeof(Token);
  }
  return bytes;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// States of earlier requests, found again by their ids: a new prompt starts from the longest one
// whose ids are its prefix (architecture section 8). Bounded by a budget; the least recently used
// go first. One owner thread: the engine thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/token.h"
#include "engine/model/model.h"

namespace penstock {

enum class KeptKind : std::uint8_t {
  block,   // leading: declared tools, system messages
  prompt,  // a whole prompt
  reply,   // a prompt and what was generated
};

class PrefixCache {
 public:
  explicit PrefixCache(std::uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  // Drops what no longer fits, the last of its kind too.
  void set_budget(std::uint64_t budget_bytes);

  // The longest state whose ids are a prefix of `prompt`; one as long as the prompt only if it
  // holds logits. Null when there is none. It counts as used now.
  std::shared_ptr<const KeptState> find(std::span<const Token> prompt);

  // Whether a state of exactly these ids is there. With `need_logits`, one that holds logits.
  bool contains(std::span<const Token> ids, bool need_logits) const;

  // Drops states until `bytes` more fit, and tells whether they do. Never dropped as long as others
  // can go: the last prompt, the last reply and the two blocks used last. What asks for no tools
  // (`has_tools` false) drops nothing of a request with tools.
  bool make_room(std::uint64_t bytes, bool has_tools);

  // Keeps a state; one of the same ids is replaced. Makes room first, and keeps nothing when there
  // is none.
  void insert(KeptKind kind, std::span<const Token> ids, std::shared_ptr<const KeptState> state,
              bool has_tools);

  std::uint64_t memory_bytes() const;  // latent blocks that states share are counted once
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    KeptKind kind;
    bool has_tools;
    std::vector<Token> ids;
    std::shared_ptr<const KeptState> state;
  };
  using Entries = std::list<Entry>;  // the one used last comes first

  Entries::iterator victim(bool has_tools);

  std::uint64_t budget_bytes_;
  Entries entries_;
};

}  // namespace penstock

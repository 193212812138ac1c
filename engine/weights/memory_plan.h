// SPDX-License-Identifier: Apache-2.0
//
// What fits into a memory budget. Arithmetic only: no model, no system calls. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// Bytes unless the name says otherwise.
struct MemoryNeeds {
  std::vector<std::uint64_t> spine_segments;  // memory of each, in order of use
  std::uint64_t vector_bytes = 0;             // small tensors kept as fp32
  std::uint64_t state_bytes = 0;              // one sequence: two KDA buffers, conv rows
  std::uint64_t latent_bytes_per_token = 0;   // MLA cache
  std::uint64_t scratch_bytes_fixed = 0;      // a sweep, whatever its length
  std::uint64_t scratch_bytes_per_token = 0;
  std::uint64_t tile_bytes_per_token = 0;  // more scratch, for the first tile_tokens of a sweep
  std::int32_t tile_tokens = 0;
  std::uint64_t process_bytes = 0;     // program, index, threads
  std::uint64_t kept_state_bytes = 0;  // one kept state, without its latents
  std::uint64_t expert_slot_bytes = 0;
  std::int32_t top_k = 0;          // routed experts of one token in one layer
  std::int64_t total_experts = 0;  // of all layers
};

struct MemoryOptions {
  std::uint64_t budget_bytes = 0;
  std::int64_t context_tokens = 0;  // latents are planned for
  std::int32_t chunk_tokens = 0;    // tokens per sweep; 0: as many as fit, at most kMaxSweepTokens
  std::int64_t expert_slots = 0;    // 0: what the budget leaves
};

inline constexpr std::int32_t kMaxSweepTokens = 4096;
// Kept states that are planned for: tools, system message, prompt and reply of two chats. Those of
// one chat share its latents.
inline constexpr std::uint64_t kKeptChats = 2;
inline constexpr std::uint64_t kKeptStatesPerChat = 4;

struct MemoryPlan {
  std::uint64_t budget_bytes;
  std::uint64_t spine_bytes;      // pins and windows
  std::uint64_t all_spine_bytes;  // if every segment were pinned
  std::uint64_t vector_bytes;
  std::uint64_t state_bytes;
  std::uint64_t latent_bytes;
  std::uint64_t scratch_bytes;
  std::uint64_t process_bytes;
  std::uint64_t kept_bytes;    // kept states: a use of spare memory, not part of the floor
  std::uint64_t expert_bytes;  // all slots
  std::int64_t expert_slots;
  std::int32_t chunk_tokens;
  std::uint64_t floor_bytes;  // the least this model runs in: two windows of spine, one token per
                              // sweep and top_k slots, or the numbers asked for
  bool fits;                  // floor_bytes <= budget_bytes
};

// Floor first, then sweep length and kept states (up to a quarter each of what is left), then pins
// of the spine, then expert slots.
MemoryPlan plan_memory(const MemoryNeeds& needs, const MemoryOptions& options);

// The sum, one line per term, for `penstock plan`.
std::string describe_plan(const MemoryPlan& plan);

// "needs at least 114.9 GiB (spine 106.5 + state 0.9 + ... ) but the budget is 24.0 GiB; ..."
std::string describe_shortage(const MemoryPlan& plan);

std::string format_bytes(std::uint64_t bytes);  // "17.5 MB", "1.56 TB": decimal units, three digits

}  // namespace penstock

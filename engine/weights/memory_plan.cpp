// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/memory_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "engine/weights/pin_plan.h"

namespace penstock {
namespace {

// Sums and products that stay at the largest value instead of wrapping: absurd needs must not fit.
std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

std::uint64_t positive(std::int64_t n) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 0));
}

std::uint64_t scratch_bytes(const MemoryNeeds& needs, std::int32_t chunk_tokens) {
  const std::uint64_t tile =
      multiply(needs.tile_bytes_per_token, positive(std::min(chunk_tokens, needs.tile_tokens)));
  return add(needs.scratch_bytes_fixed,
             add(tile, multiply(needs.scratch_bytes_per_token, positive(chunk_tokens))));
}

// The longest sweep, at least one token, whose scratch takes no more than `bytes`.
std::int32_t longest_sweep(const MemoryNeeds& needs, std::uint64_t bytes) {
  std::int32_t fits = 1;
  std::int32_t too_long = kMaxSweepTokens + 1;
  while (too_long - fits > 1) {
    const std::int32_t middle = fits + (too_long - fits) / 2;
    (scratch_bytes(needs, middle) <= bytes ? fits : too_long) = middle;
  }
  return fits;
}

struct Term {
  std::string name;
  std::uint64_t bytes;
};

std::vector<Term> terms(const MemoryPlan& plan) {
  return {{"spine", plan.spine_bytes},          {"small tensors", plan.vector_bytes},
          {"sequence state", plan.state_bytes}, {"latents", plan.latent_bytes},
          {"scratch", plan.scratch_bytes},      {"process", plan.process_bytes},
          {"kept states", plan.kept_bytes},     {"expert slots", plan.expert_bytes}};
}

std::uint64_t sum(const MemoryPlan& plan) {
  std::uint64_t total = 0;
  for (const Term& term : terms(plan)) total = add(total, term.bytes);
  return total;
}

void set_slots(const MemoryNeeds& needs, std::int64_t slots, MemoryPlan& plan) {
  plan.expert_slots = slots;
  plan.expert_bytes = multiply(needs.expert_slot_bytes, positive(slots));
}

void set_chunk(const MemoryNeeds& needs, std::int32_t tokens, MemoryPlan& plan) {
  plan.chunk_tokens = tokens;
  plan.scratch_bytes = scratch_bytes(needs, tokens);
}

// "all of it" or "of 114 GB: what is not pinned is streamed for every token".
std::string describe_spine(const MemoryPlan& plan) {
  if (plan.spine_bytes == plan.all_spine_bytes) return "all of it";
  return "of " + format_bytes(plan.all_spine_bytes) + ": the rest is streamed for every token";
}

}  // namespace

MemoryPlan plan_memory(const MemoryNeeds& needs, const MemoryOptions& options) {
  MemoryPlan plan{};
  plan.budget_bytes = options.budget_bytes;
  plan.spine_bytes = spine_floor(needs.spine_segments);
  for (const std::uint64_t bytes : needs.spine_segments) {
    plan.all_spine_bytes = add(plan.all_spine_bytes, bytes);
  }
  plan.vector_bytes = needs.vector_bytes;
  plan.state_bytes = needs.state_bytes;
  plan.latent_bytes = multiply(needs.latent_bytes_per_token, positive(options.context_tokens));
  plan.process_bytes = needs.process_bytes;
  const bool slots_given = options.expert_slots > 0;
  const bool chunk_given = options.chunk_tokens > 0;
  const std::int64_t least_slots = slots_given ? options.expert_slots : needs.top_k;
  set_slots(needs, std::min(least_slots, needs.total_experts), plan);
  set_chunk(needs, chunk_given ? options.chunk_tokens : 1, plan);

  plan.floor_bytes = sum(plan);
  plan.fits = plan.floor_bytes <= plan.budget_bytes;
  if (!plan.fits) return plan;
  if (!chunk_given) {
    const std::uint64_t quarter = (plan.budget_bytes - plan.floor_bytes) / 4;
    set_chunk(needs, longest_sweep(needs, plan.scratch_bytes + quarter), plan);
  }
  const std::uint64_t chat =
      add(multiply(needs.kept_state_bytes, kKeptStatesPerChat), plan.latent_bytes);
  plan.kept_bytes = std::min((plan.budget_bytes - sum(plan)) / 4, multiply(chat, kKeptChats));
  const std::uint64_t for_spine = plan.budget_bytes - (sum(plan) - plan.spine_bytes);
  plan.spine_bytes = plan_pins(needs.spine_segments, for_spine).bytes;
  if (!slots_given && needs.expert_slot_bytes > 0) {
    const std::uint64_t left = plan.budget_bytes - sum(plan);
    const std::uint64_t room = positive(needs.total_experts - plan.expert_slots);
    const std::uint64_t more = std::min(left / needs.expert_slot_bytes, room);
    set_slots(needs, plan.expert_slots + static_cast<std::int64_t>(more), plan);
  }
  return plan;
}

std::string describe_plan(const MemoryPlan& plan) {
  std::string text;
  const auto line = [&](const std::string& name, std::uint64_t bytes, const std::string& note) {
    std::array<char, 64> row;
    std::snprintf(row.data(), row.size(), "%-16s%10s", name.c_str(), format_bytes(bytes).c_str());
    text += row.data() + (note.empty() ? note : "  " + note) + "\n";
  };
  for (const Term& term : terms(plan)) {
    std::string note;
    if (term.name == "scratch") note = std::to_string(plan.chunk_tokens) + " tokens per sweep";
    if (term.name == "expert slots") note = std::to_string(plan.expert_slots) + " experts";
    if (term.name == "spine") note = describe_spine(plan);
    line(term.name, term.bytes, note);
  }
  line("sum", sum(plan), "");
  line("floor", plan.floor_bytes, "the least this model runs in");
  line("budget", plan.budget_bytes, plan.fits ? "" : "too small");
  return text;
}

std::string describe_shortage(const MemoryPlan& plan) {
  std::string needed = format_bytes(plan.floor_bytes);
  std::string budget = format_bytes(plan.budget_bytes);
  if (needed == budget) {  // a near miss: "needs 24.0 GB but has 24.0 GB" would help nobody
    needed = std::to_string(plan.floor_bytes) + " B";
    budget = std::to_string(plan.budget_bytes) + " B";
  }
  std::string text = "needs at least " + needed + " (";
  const char* separator = "";
  for (const Term& term : terms(plan)) {
    if (term.bytes == 0) continue;
    text += separator + term.name + " " + format_bytes(term.bytes);
    separator = " + ";
  }
  return text + ") but the budget is " + budget +
         "; raise the budget, or ask for a shorter context, a shorter sweep or fewer expert slots";
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  // 999.5 would be printed with four digits.
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, kUnits[unit]);
  return text.data();
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/memory_plan.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

constexpr std::uint64_t kGb = 1'000'000'000;

// Numbers of the size of K3's.
MemoryNeeds k3_needs() {
  return {.spine_segments = std::vector<std::uint64_t>(112, kGb),
          .vector_bytes = 50'000'000,
          .state_bytes = 930'000'000,
          .latent_bytes_per_token = 55'296,
          .scratch_bytes_fixed = 100'000'000,
          .scratch_bytes_per_token = 258'048,
          .process_bytes = 200'000'000,
          .expert_slot_bytes = 17'551'360,
          .top_k = 16,
          .total_experts = 82'432};
}

std::uint64_t sum(const MemoryPlan& plan) {
  return plan.spine_bytes + plan.vector_bytes + plan.state_bytes + plan.latent_bytes +
         plan.scratch_bytes + plan.process_bytes + plan.kept_bytes + plan.expert_bytes;
}

TEST(MemoryPlan, FloorHoldsOneTokenAndTopKExperts) {
  const MemoryNeeds needs = k3_needs();
  const std::uint64_t floor = 2 * kGb + 50'000'000 + 930'000'000 + 55'296ULL * 32'768 +
                              100'000'000 + 258'048 + 200'000'000 + 16ULL * 17'551'360;
  const MemoryPlan plan = plan_memory(needs, {.budget_bytes = floor, .context_tokens = 32'768});
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.floor_bytes, floor);
  EXPECT_EQ(plan.chunk_tokens, 1);
  EXPECT_EQ(plan.expert_slots, 16);
  const MemoryPlan less = plan_memory(needs, {.budget_bytes = floor - 1, .context_tokens = 32'768});
  EXPECT_FALSE(less.fits);
  EXPECT_EQ(less.floor_bytes, floor);
}

TEST(MemoryPlan, PinsComeBeforeSlots) {
  const MemoryNeeds needs = k3_needs();
  MemoryOptions options{.budget_bytes = 64 * kGb, .chunk_tokens = 1};
  MemoryPlan plan = plan_memory(needs, options);
  EXPECT_EQ(plan.spine_bytes, 62 * kGb);
  EXPECT_EQ(plan.all_spine_bytes, 112 * kGb);
  // What is too small for another pin goes to slots.
  EXPECT_GT(plan.expert_slots, 16);
  EXPECT_LT(plan.expert_bytes, kGb);
  EXPECT_LE(sum(plan), options.budget_bytes);
  options.budget_bytes = 150 * kGb;
  plan = plan_memory(needs, options);
  EXPECT_EQ(plan.spine_bytes, 112 * kGb);
  EXPECT_GT(plan.expert_bytes, 36 * kGb);
}

TEST(MemoryPlan, SweepTakesAQuarterOfTheRestAndSlotsTheRemainder) {
  MemoryNeeds needs = k3_needs();
  needs.spine_segments = {};
  const MemoryPlan floor = plan_memory(needs, {.budget_bytes = 200 * kGb});
  const std::uint64_t extra = 400 * needs.scratch_bytes_per_token;
  const MemoryPlan plan = plan_memory(needs, {.budget_bytes = floor.floor_bytes + extra});
  EXPECT_EQ(plan.chunk_tokens, 101);
  const std::uint64_t left = extra - 100 * needs.scratch_bytes_per_token;
  EXPECT_EQ(plan.expert_slots, 16 + static_cast<std::int64_t>(left / needs.expert_slot_bytes));
  EXPECT_LE(sum(plan), plan.budget_bytes);
  EXPECT_GT(sum(plan) + needs.expert_slot_bytes, plan.budget_bytes);
}

TEST(MemoryPlan, TheFirstTileOfASweepTakesMore) {
  MemoryNeeds needs = k3_needs();
  needs.spine_segments = {};
  needs.tile_bytes_per_token = 600'000;
  needs.tile_tokens = 256;
  const auto plan = [&](std::uint64_t extra) {
    const std::uint64_t floor = plan_memory(needs, {.budget_bytes = 200 * kGb}).floor_bytes;
    return plan_memory(needs, {.budget_bytes = floor + 4 * extra});
  };
  const std::uint64_t both = needs.scratch_bytes_per_token + needs.tile_bytes_per_token;
  EXPECT_EQ(plan(0).scratch_bytes, needs.scratch_bytes_fixed + both);
  EXPECT_EQ(plan(99 * both).chunk_tokens, 100);
  EXPECT_EQ(plan(99 * both - 1).chunk_tokens, 99);
  EXPECT_EQ(plan(255 * both + 44 * needs.scratch_bytes_per_token).chunk_tokens, 300);
  EXPECT_EQ(plan(255 * both + 44 * needs.scratch_bytes_per_token - 1).chunk_tokens, 299);
}

TEST(MemoryPlan, KeptStatesTakeSpareMemoryOnly) {
  MemoryNeeds needs = k3_needs();
  needs.kept_state_bytes = 1000;
  MemoryOptions options{.budget_bytes = UINT64_C(1) << 40U, .context_tokens = 10};
  EXPECT_EQ(plan_memory(needs, options).kept_bytes,
            2 * (4 * 1000 + 10 * needs.latent_bytes_per_token));
  options.budget_bytes = plan_memory(needs, options).floor_bytes;
  const MemoryPlan tight = plan_memory(needs, options);
  EXPECT_TRUE(tight.fits);
  EXPECT_EQ(tight.kept_bytes, 0U);
  options.budget_bytes += 2000;
  options.chunk_tokens = 1;
  EXPECT_EQ(plan_memory(needs, options).kept_bytes, 500U);
}

TEST(MemoryPlan, SweepAndSlotsHaveAnEnd) {
  const MemoryPlan plan = plan_memory(k3_needs(), {.budget_bytes = 4000 * kGb});
  EXPECT_EQ(plan.chunk_tokens, kMaxSweepTokens);
  EXPECT_EQ(plan.expert_slots, 82'432);
  EXPECT_EQ(plan.expert_bytes, 82'432ULL * 17'551'360);
  EXPECT_LE(sum(plan), plan.budget_bytes);
}

TEST(MemoryPlan, HonoursWhatIsAskedForOrRefuses) {
  const MemoryNeeds needs = k3_needs();
  MemoryOptions options{.budget_bytes = 10 * kGb, .chunk_tokens = 7, .expert_slots = 1};
  MemoryPlan plan = plan_memory(needs, options);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.chunk_tokens, 7);
  EXPECT_EQ(plan.expert_slots, 1);
  options.budget_bytes = plan.floor_bytes;
  EXPECT_EQ(sum(plan_memory(needs, options)), plan.floor_bytes);
  options.budget_bytes = 10 * kGb;

  options.expert_slots = 1000;  // 17.6 GB
  plan = plan_memory(needs, options);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.expert_slots, 1000);

  options.expert_slots = 0;
  options.chunk_tokens = 100'000;  // 25.8 GB
  plan = plan_memory(needs, options);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.chunk_tokens, 100'000);

  options = {.budget_bytes = 2000 * kGb, .expert_slots = 1'000'000};
  EXPECT_EQ(plan_memory(needs, options).expert_slots, needs.total_experts);
}

TEST(MemoryPlan, DoesNotWrapAround) {
  MemoryNeeds needs = k3_needs();
  needs.latent_bytes_per_token = UINT64_MAX / 2;
  EXPECT_FALSE(plan_memory(needs, {.budget_bytes = 200 * kGb, .context_tokens = 1'000'000}).fits);
  needs = k3_needs();
  needs.spine_segments = {UINT64_MAX - 5};
  const MemoryPlan plan = plan_memory(needs, {.budget_bytes = 200 * kGb});
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.floor_bytes, UINT64_MAX);
  needs = k3_needs();
  EXPECT_TRUE(plan_memory(needs, {.budget_bytes = UINT64_MAX}).fits);
}

TEST(MemoryPlan, PlansAModelWithoutExperts) {
  const MemoryPlan plan = plan_memory({.spine_segments = {10}}, {.budget_bytes = 100'000});
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.expert_slots, 0);
  EXPECT_EQ(plan.chunk_tokens, kMaxSweepTokens);
}

TEST(MemoryPlan, DescribesTheSum) {
  const MemoryPlan plan = plan_memory(
      k3_needs(), {.budget_bytes = 120 * kGb, .context_tokens = 32'768, .chunk_tokens = 7});
  const std::string text = describe_plan(plan);
  EXPECT_NE(text.find("spine               112 GB  all of it\n"), std::string::npos) << text;
  EXPECT_NE(text.find("7 tokens per sweep"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(plan.expert_slots) + " experts"), std::string::npos) << text;
  EXPECT_NE(text.find("budget              120 GB\n"), std::string::npos) << text;
}

TEST(MemoryPlan, DescribesTheShortageInOneLine) {
  const MemoryPlan plan =
      plan_memory(k3_needs(), {.budget_bytes = 4 * kGb, .context_tokens = 32'768});
  EXPECT_EQ(
      describe_shortage(plan),
      "needs at least 5.37 GB (spine 2.00 GB + small tensors 50.0 MB + sequence state 930 MB + "
      "latents 1.81 GB + scratch 100 MB + process 200 MB + expert slots 281 MB) but the "
      "budget is 4.00 GB; raise the budget, or ask for a shorter context, a shorter sweep or "
      "fewer expert slots");
}

TEST(MemoryPlan, ShowsANearMissInBytes) {
  MemoryNeeds needs{.spine_segments = {1'000'000'001}};
  const std::string text = describe_shortage(plan_memory(needs, {.budget_bytes = kGb}));
  EXPECT_NE(text.find("needs at least 1000000001 B"), std::string::npos) << text;
  EXPECT_NE(text.find("the budget is 1000000000 B"), std::string::npos) << text;
}

TEST(MemoryPlan, FormatsBytesWithThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(9'994), "9.99 kB");
  EXPECT_EQ(format_bytes(9'996), "10.0 kB");
  EXPECT_EQ(format_bytes(99'960), "100 kB");
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'600), "1.00 MB");
  EXPECT_EQ(format_bytes(17'547'264), "17.5 MB");
  EXPECT_EQ(format_bytes(1'560'936'091'448), "1.56 TB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
}

}  // namespace
}  // namespace penstock

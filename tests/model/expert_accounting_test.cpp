// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the drive, exactly: distinct experts that were not cached, segments of the spine
// that are not pinned, and a page more a read.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/buffer.h"
#include "engine/model/kimi.h"
#include "engine/model/moe.h"
#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

class ExpertAccountingTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    prompt_ = read_oracle(GetParam()).prompt;
    plan_ = plan_model(oracle_options(GetParam()));
  }
  std::unique_ptr<Model> load(std::int64_t slots) const {
    ModelOptions options = oracle_options(GetParam());
    options.memory.expert_slots = slots;
    return load_model(options);
  }
  static const std::vector<SpineSegment>& segments(const Model& model) {
    return dynamic_cast<const KimiModel&>(model).parts().files.segments;
  }
  static std::uint64_t spine_payload(const Model& model) {
    std::uint64_t bytes = 0;
    for (const SpineSegment& segment : segments(model)) bytes += segment.payload_bytes;
    return bytes;
  }
  // At most a page per read; where a drive takes no less than pages, experts of these sizes touch
  // part of one at either end.
  std::uint64_t widening() const {
    const std::string dir = oracle_dir(GetParam());
    const auto shard = open_source(
        dir + "/" +
        read_json(dir + "/model.safetensors.index.json")["weight_map"].begin()->get<std::string>());
    return std::max(kPageBytes, 2 * shard->direct_unit());
  }
  std::int64_t all_slots() const { return std::int64_t{plan_.moe_layers} * plan_.experts; }
  static std::size_t distinct(std::span<const Token> ids) {
    return std::set<Token>(ids.begin(), ids.end()).size();
  }
  // With the whole spine pinned: its segments are read once.
  void expect_exact(const Model& model, std::uint64_t reads) const {
    const ModelStats stats = model.stats();
    EXPECT_EQ(stats.expert_reads, reads);
    EXPECT_EQ(stats.expert_bytes, reads * plan_.expert_bytes);
    EXPECT_GE(stats.drive_bytes, stats.expert_bytes + stats.spine_bytes);
    std::uint64_t all_reads = reads;
    for (const SpineSegment& segment : segments(model)) all_reads += segment.reads.size();
    EXPECT_LE(stats.drive_bytes, stats.expert_bytes + stats.spine_bytes + all_reads * widening());
  }

  std::vector<Token> prompt_;
  ModelPlan plan_;
};

TEST_P(ExpertAccountingTest, ASweepReadsEachDistinctExpertOnce) {
  const auto model = load(all_slots());
  run_prompt(*model, prompt_, prompt_.size());
  const ModelStats first = model->stats();
  expect_exact(*model, first.expert_reads);
  EXPECT_EQ(first.expert_hits, 0U);
  EXPECT_GE(first.expert_reads, static_cast<std::uint64_t>(plan_.moe_layers * plan_.top_k));
  EXPECT_LE(first.expert_reads, static_cast<std::uint64_t>(all_slots()));
  const std::uint64_t rows = distinct(prompt_) * static_cast<std::size_t>(model->info().hidden) * 2;
  EXPECT_EQ(first.spine_bytes, spine_payload(*model) + rows);

  // All of them are cached now: nothing but embedding rows is read, every use is a hit.
  run_prompt(*model, prompt_, prompt_.size());
  expect_exact(*model, first.expert_reads);
  EXPECT_EQ(model->stats().expert_hits, first.expert_reads);
  EXPECT_EQ(model->stats().spine_bytes, first.spine_bytes + rows);

  // One slot: the same distinct experts, each read once, none found.
  const auto small = load(1);
  run_prompt(*small, prompt_, prompt_.size());
  expect_exact(*small, first.expert_reads);
  EXPECT_EQ(small->stats().expert_hits, 0U);
}

TEST_P(ExpertAccountingTest, TokenByTokenWithoutCacheReadsTopKPerLayer) {
  const auto model = load(1);
  const std::span<const Token> tokens(prompt_.data(), 5);
  run_prompt(*model, tokens, 1);
  const auto per_token = static_cast<std::uint64_t>(plan_.moe_layers * plan_.top_k);
  const ModelStats stats = model->stats();
  EXPECT_EQ(stats.expert_reads + stats.expert_hits, 5 * per_token);
  expect_exact(*model, stats.expert_reads);
}

// At the floor no segment stays: every sweep reads each of them once.
TEST_P(ExpertAccountingTest, AtTheFloorEverySweepStreamsTheSpine) {
  ModelOptions options = oracle_options(GetParam());
  options.memory.chunk_tokens = 1;
  options.memory.budget_bytes = plan_model(options).memory.floor_bytes;
  const auto model = load_model(options);
  const std::span<const Token> tokens(prompt_.data(), 4);
  run_prompt(*model, tokens, 1);
  const std::uint64_t row = static_cast<std::size_t>(model->info().hidden) * 2;
  EXPECT_EQ(model->stats().spine_bytes, 4 * (spine_payload(*model) + row));
  EXPECT_LE(dynamic_cast<const KimiModel&>(*model).parts().spine.memory_bytes(),
            plan_model(options).memory.spine_bytes);
}

TEST_P(ExpertAccountingTest, TwoSequencesInOneSweepShareTheirExperts) {
  const auto model = load(1);
  run_prompt(*model, prompt_, prompt_.size());
  const std::uint64_t alone = model->stats().expert_reads;
  const auto a = model->new_sequence();
  const auto b = model->new_sequence();
  const auto sweep =
      model->begin({{.sequence = a.get(), .tokens = prompt_, .logits_from = 0, .keep_at = {}},
                    {.sequence = b.get(), .tokens = prompt_, .logits_from = 0, .keep_at = {}}},
                   {});
  while (sweep->step()) {
  }
  const std::uint64_t together = model->stats().expert_reads - alone;
  EXPECT_EQ(together, alone);  // the same tokens want the same experts
}

// Sweeps shorter than a tile, and longer: neither more than the plan gives one of that length, nor
// much less. Its fixed part is for threads that are not there.
TEST_P(ExpertAccountingTest, ScratchIsWhatThePlanSays) {
  for (const std::int32_t tokens : {1, 7, kTileTokens + 44}) {
    ModelOptions options = oracle_options(GetParam());
    options.memory.chunk_tokens = tokens;
    const auto model = load_model(options);
    std::vector<Token> ids(size(tokens));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = prompt_[i % prompt_.size()];
    run_prompt(*model, ids, ids.size());
    const KimiParts& parts = dynamic_cast<const KimiModel&>(*model).parts();
    const std::uint64_t planned =
        plan_model(options).memory.scratch_bytes - scratch_bytes_fixed(parts.files.config);
    EXPECT_LE(parts.scratch.peak_bytes(), planned) << tokens;
    EXPECT_GE(parts.scratch.peak_bytes(), planned * 2 / 3) << tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Oracles, ExpertAccountingTest, ::testing::ValuesIn(kOracles),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace penstock::testing

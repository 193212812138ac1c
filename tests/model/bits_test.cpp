// SPDX-License-Identifier: Apache-2.0
//
// The same bits however a model is run: chunking, threads, cache slots, batches, cancelled sweeps,
// kept states, builds.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

class BitsTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    oracle_ = std::get<0>(GetParam());
    prompt_ = read_oracle(oracle_).prompt;
    model_ = load_model(options());
    whole_ = run_prompt(*model_, prompt_, prompt_.size());
    vocab_ = static_cast<std::size_t>(model_->info().vocab);
  }

  ModelOptions options() const {
    ModelOptions result = oracle_options(oracle_);
    result.isa = std::get<1>(GetParam());
    return result;
  }

  // The logits of `whole_` from a position on.
  std::span<const float> whole_from(std::size_t position) const {
    return std::span(whole_).subspan(position * vocab_);
  }

  std::string oracle_;
  std::vector<Token> prompt_;
  std::unique_ptr<Model> model_;
  std::vector<float> whole_;  // of one sweep
  std::size_t vocab_ = 0;
};

TEST_P(BitsTest, DoNotDependOnTheChunk) {
  for (const std::size_t chunk : {1U, 2U, 7U}) {
    expect_same_bits(run_prompt(*model_, prompt_, chunk), whole_, "chunk " + std::to_string(chunk));
  }
}

TEST_P(BitsTest, DoNotDependOnThreads) {
  for (const int threads : {1, 2, 5}) {
    ModelOptions other = options();
    other.threads = threads;
    expect_same_bits(run_prompt(*load_model(other), prompt_, prompt_.size()), whole_,
                     "threads " + std::to_string(threads));
  }
}

TEST_P(BitsTest, DoNotDependOnExpertSlots) {
  const ModelPlan plan = plan_model(options());
  for (const std::int64_t slots :
       {std::int64_t{1}, std::int64_t{plan.top_k}, std::int64_t{plan.experts} * plan.moe_layers}) {
    ModelOptions other = options();
    other.memory.expert_slots = slots;
    const auto model = load_model(other);
    for (const std::size_t chunk : {std::size_t{1}, prompt_.size()}) {
      expect_same_bits(run_prompt(*model, prompt_, chunk), whole_,
                       std::to_string(slots) + " slots, chunk " + std::to_string(chunk));
    }
  }
}

// A sweep may find another budget after every layer; backends, and what is read ahead, differ too.
TEST_P(BitsTest, DoNotDependOnABudgetThatChangesMeanwhile) {
  ModelOptions some = options();
  some.memory.chunk_tokens = static_cast<std::int32_t>(prompt_.size());
  const MemoryPlan plan = plan_model(some).memory;
  for (const ReadBackendChoice backend : {ReadBackendChoice::automatic, ReadBackendChoice::pread}) {
    some.read_backend = backend;
    some.look_ahead = backend == ReadBackendChoice::automatic;
    const auto model = load_model(some);
    for (const std::size_t chunk : {prompt_.size(), std::size_t{1}}) {
      const auto sequence = model->new_sequence();
      std::vector<float> logits;
      std::uint64_t step = 0;
      for (std::size_t begin = 0; begin < prompt_.size(); begin += chunk) {
        const auto sweep = model->begin({{.sequence = sequence.get(),
                                          .tokens = std::span(prompt_).subspan(begin, chunk),
                                          .logits_from = 0,
                                          .keep_at = {}}},
                                        {});
        do {
          model->set_budget(plan.floor_bytes + plan.all_spine_bytes * 2 * (++step * 7 % 11) / 10);
        } while (sweep->step());
        sweep->commit();
        const std::span<const float> rows = sweep->logits(0);
        logits.insert(logits.end(), rows.begin(), rows.end());
      }
      expect_same_bits(logits, whole_, "with a budget that changes");
    }
  }
}

// From everything streamed to everything pinned.
TEST_P(BitsTest, DoNotDependOnTheBudgetOfTheSpine) {
  ModelOptions some = options();
  some.memory.chunk_tokens = static_cast<std::int32_t>(prompt_.size());
  some.memory.expert_slots = 3;
  const MemoryPlan plan = plan_model(some).memory;
  for (const std::uint64_t eighths : {0U, 1U, 3U, 5U, 8U}) {
    some.memory.budget_bytes = plan.floor_bytes + 2 * plan.all_spine_bytes * eighths / 8;
    const auto model = load_model(some);
    const std::string what = std::to_string(eighths) + " eighths more than the floor";
    expect_same_bits(run_prompt(*model, prompt_, prompt_.size()), whole_, what);
    expect_same_bits(run_prompt(*model, prompt_, 5), whole_, what + ", again");
  }
}

TEST_P(BitsTest, DoNotDependOnWhatElseIsInTheSweep) {
  std::vector<Token> other(prompt_.rbegin(), prompt_.rend());
  other.resize(other.size() / 2);
  const auto alone = run_prompt(*model_, other, other.size());
  const auto a = model_->new_sequence();
  const auto b = model_->new_sequence();
  const auto sweep =
      model_->begin({{.sequence = b.get(), .tokens = other, .logits_from = 0, .keep_at = {}},
                     {.sequence = a.get(), .tokens = prompt_, .logits_from = 0, .keep_at = {}}},
                    {});
  while (sweep->step()) {
  }
  expect_same_bits(sweep->logits(0), alone, "the first sequence");
  expect_same_bits(sweep->logits(1), whole_, "the second sequence");
  sweep->commit();
  EXPECT_EQ(a->length(), static_cast<std::int64_t>(prompt_.size()));
  EXPECT_EQ(b->length(), static_cast<std::int64_t>(other.size()));
}

TEST_P(BitsTest, PrefillOfOneAndDecodeOfAnotherShareASweep) {
  const std::span<const Token> prompt(prompt_);
  const auto a = model_->new_sequence();
  const auto b = model_->new_sequence();
  run_tokens(*model_, *a, prompt.first(prompt.size() - 1), 5);
  const auto sweep = model_->begin(
      {{.sequence = a.get(), .tokens = prompt.last(1), .logits_from = 0, .keep_at = {}},
       {.sequence = b.get(), .tokens = prompt.first(9), .logits_from = 8, .keep_at = {}}},
      {});
  while (sweep->step()) {
  }
  expect_same_bits(sweep->logits(0), whole_from(prompt.size() - 1), "one token");
  expect_same_bits(sweep->logits(1), whole_from(8).first(vocab_), "a prompt piece");
}

TEST_P(BitsTest, ACancelledSweepLeavesNothingBehind) {
  const std::span<const Token> prompt(prompt_);
  const auto sequence = model_->new_sequence();
  run_tokens(*model_, *sequence, prompt.first(10), 10);
  for (std::int32_t steps = 1; steps <= model_->info().layers; ++steps) {
    StopFlag stop;
    const auto sweep = model_->begin({{.sequence = sequence.get(),
                                       .tokens = prompt.subspan(12, 9),
                                       .logits_from = 0,
                                       .keep_at = {}}},
                                     {.stop = &stop});
    for (std::int32_t i = 0; i < steps; ++i) ASSERT_TRUE(sweep->step());
    stop.request_stop();
    EXPECT_THROW(sweep->step(), Error) << "after " << steps << " steps";
    EXPECT_EQ(sequence->length(), 10);
  }
  expect_same_bits(run_tokens(*model_, *sequence, prompt.subspan(10), 1000), whole_from(10),
                   "after cancelled sweeps");
}

TEST_P(BitsTest, ADroppedSweepLeavesNothingBehind) {
  const std::span<const Token> prompt(prompt_);
  const auto sequence = model_->new_sequence();
  run_tokens(*model_, *sequence, prompt.first(4), 4);
  {
    const auto sweep = model_->begin({{.sequence = sequence.get(),
                                       .tokens = prompt.subspan(20),
                                       .logits_from = 0,
                                       .keep_at = {}}},
                                     {});
    while (sweep->step()) {
    }
  }
  expect_same_bits(run_tokens(*model_, *sequence, prompt.subspan(4), 1000), whole_from(4),
                   "after a dropped sweep");
}

// Prompts of 300 tokens, so that states are kept on, before and behind borders of latent blocks.
TEST_P(BitsTest, KeptStatesContinueLikeTheWhole) {
  std::vector<Token> tokens;
  while (tokens.size() < 300) tokens.insert(tokens.end(), prompt_.begin(), prompt_.end());
  tokens.resize(300);
  const auto whole = run_prompt(*model_, tokens, 300);
  const std::vector<std::int64_t> lengths{1, 3, 127, 128, 129, 200, 256, 300};
  const auto sequence = model_->new_sequence();
  std::vector<std::shared_ptr<const KeptState>> kept;
  const std::span<const Token> all(tokens);
  for (const auto& [begin, end] : {std::pair{0, 130}, {130, 300}}) {
    std::vector<std::int64_t> here;
    for (const std::int64_t length : lengths) {
      if (length > begin && length <= end) here.push_back(length);
    }
    const auto sweep = model_->begin({{.sequence = sequence.get(),
                                       .tokens = all.subspan(static_cast<std::size_t>(begin),
                                                             static_cast<std::size_t>(end - begin)),
                                       .logits_from = end - begin - 1,
                                       .keep_at = here}},
                                     {});
    while (sweep->step()) {
    }
    sweep->commit();
    for (auto& state : sweep->take_kept(0)) kept.push_back(std::move(state));
  }
  ASSERT_EQ(kept.size(), lengths.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i]->length(), lengths[i]);
    const auto from = static_cast<std::size_t>(lengths[i]);
    if (from == tokens.size()) continue;
    const auto next = model_->new_sequence(*kept[i]);
    expect_same_bits(run_tokens(*model_, *next, all.subspan(from), 1000),
                     std::span(whole).subspan(from * vocab_),
                     "from a kept length of " + std::to_string(from));
  }
  expect_same_bits(kept.back()->logits(), std::span(whole).last(vocab_), "the kept logits");
  EXPECT_TRUE(kept.front()->logits().empty());
}

TEST_P(BitsTest, OneKeptStateFeedsTwoContinuations) {
  const std::span<const Token> prompt(prompt_);
  const auto sequence = model_->new_sequence();
  const auto sweep = model_->begin({{.sequence = sequence.get(),
                                     .tokens = prompt.first(20),
                                     .logits_from = 20,
                                     .keep_at = {15}}},
                                   {});
  while (sweep->step()) {
  }
  sweep->commit();
  const auto kept = sweep->take_kept(0);
  std::vector<Token> other(prompt.begin(), prompt.begin() + 15);
  other.insert(other.end(), prompt.rbegin(), prompt.rbegin() + 9);
  const auto other_whole = run_prompt(*model_, other, other.size());

  const auto a = model_->new_sequence(*kept[0]);
  const auto b = model_->new_sequence(*kept[0]);
  const auto both = model_->begin(
      {{.sequence = a.get(), .tokens = prompt.subspan(15), .logits_from = 0, .keep_at = {}},
       {.sequence = b.get(),
        .tokens = std::span(other).subspan(15),
        .logits_from = 0,
        .keep_at = {}}},
      {});
  while (both->step()) {
  }
  expect_same_bits(both->logits(0), whole_from(15), "the first continuation");
  expect_same_bits(both->logits(1), std::span(other_whole).subspan(15 * vocab_),
                   "the second continuation");
  expect_same_bits(run_tokens(*model_, *sequence, prompt.subspan(20), 3), whole_from(20),
                   "the sequence that was kept");
}

// FNV-1a over the bits of the logits: what any build of any exact fp32 table must give. The scalar
// table is the specification, so a change of these numbers is a change of the model's output.
TEST_P(BitsTest, AreThoseOfEveryBuild) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const float value : whole_) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((bits >> shift) & 0xFFU)) * 1099511628211ULL;
    }
  }
  const std::uint64_t expected = oracle_ == "k3-a"   ? 15544698880105119244ULL
                                 : oracle_ == "k3-b" ? 9074554639796932182ULL
                                                     : 17171386581011460822ULL;
  EXPECT_EQ(hash, expected) << oracle_;
}

std::string test_name(const ::testing::TestParamInfo<BitsTest::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(AllTables, BitsTest,
                         ::testing::Combine(::testing::ValuesIn(kOracles),
                                            ::testing::ValuesIn(isa_names())),
                         test_name);

}  // namespace
}  // namespace penstock::testing

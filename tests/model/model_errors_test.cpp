// SPDX-License-Identifier: Apache-2.0
//
// Faults under a whole model, and checkpoints cut otherwise than the published ones.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "engine/base/error.h"
#include "tests/model/model_test_support.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/faulty_source.h"
#include "tests/support/temp_dir.h"

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;

// A model whose files are all FaultySources.
class FaultyModel {
 public:
  explicit FaultyModel(const std::string& oracle) {
    ModelOptions options = oracle_options(oracle);
    options.memory.expert_slots = 2;
    options.opener = [this](const std::string& path) {
      auto source = std::make_unique<FaultySource>(open_source(path));
      const std::lock_guard lock(mutex_);  // shards are opened by several threads
      if (path.ends_with(".safetensors")) sources_.push_back(source.get());  // they live on
      return source;
    };
    model_ = load_model(options);
  }
  Model& model() { return *model_; }
  template <typename Action>
  void all(const Action& action) {
    for (FaultySource* source : sources_) action(*source);
  }

 private:
  std::mutex mutex_;
  std::vector<FaultySource*> sources_;
  std::unique_ptr<Model> model_;
};

class ModelFaultsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    prompt_ = read_oracle(GetParam()).prompt;
    whole_ = run_prompt(*load_model(oracle_options(GetParam())), prompt_, prompt_.size());
  }
  std::vector<Token> prompt_;
  std::vector<float> whole_;
};

TEST_P(ModelFaultsTest, AFailingSpineIsOneErrorAndTheNextRunIsRight) {
  FaultyModel faulty(GetParam());
  faulty.all([&](FaultySource& source) {
    if (source.name().starts_with("model-00003")) source.inject({.fault = Fault::eio});
  });
  try {
    run_prompt(faulty.model(), prompt_, prompt_.size());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_TRUE(std::string(error.what()).starts_with("layer 2 attention: model-00003"))
        << error.what();
  }
  faulty.all([](FaultySource& source) { source.clear_faults(); });
  expect_same_bits(run_prompt(faulty.model(), prompt_, prompt_.size()), whole_, "after the fault");
}

TEST_P(ModelFaultsTest, ReadsThatFailForeverAreOneErrorAndTheNextRunIsRight) {
  FaultyModel faulty(GetParam());
  run_prompt(faulty.model(), prompt_, prompt_.size());  // pins the spine
  for (const Fault fault : {Fault::eio, Fault::short_read}) {
    faulty.all([&](FaultySource& source) {
      const bool is_layer_2 = source.name().starts_with("model-00003");
      if (is_layer_2) source.inject({.fault = fault, .first = 2});
    });
    try {
      run_prompt(faulty.model(), prompt_, prompt_.size());
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      const std::string message = error.what();
      EXPECT_NE(message.find("layer 2 "), std::string::npos) << message;
      EXPECT_NE(message.find("expert "), std::string::npos) << message;
      EXPECT_NE(message.find("model-00003"), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    faulty.all([](FaultySource& source) { source.clear_faults(); });
    expect_same_bits(run_prompt(faulty.model(), prompt_, prompt_.size()), whole_,
                     "after the fault");
  }
}

// A prompt of two sweeps: what the first has spoiled must not be committed, kept or pinned.
TEST_P(ModelFaultsTest, DamagedBytesAreOneErrorAndTheNextRunIsRight) {
  const std::span<const Token> prompt(prompt_);
  for (const std::uint64_t good_reads : {0U, 1U, 2U}) {
    FaultyModel faulty(GetParam());
    faulty.all([&](FaultySource& source) {
      const bool is_layer_2 = source.name().starts_with("model-00003");
      if (is_layer_2) source.inject({.fault = Fault::ones, .first = good_reads});
    });
    const auto sequence = faulty.model().new_sequence();
    try {
      const auto sweep = faulty.model().begin({{.sequence = sequence.get(),
                                                .tokens = prompt.first(4),
                                                .logits_from = 4,
                                                .keep_at = {}}},
                                              {});
      while (sweep->step()) {
      }
      ADD_FAILURE() << "no error with " << good_reads << " good reads";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::model);
      EXPECT_TRUE(std::string(error.what()).starts_with("layer 2 ")) << error.what();
    }
    EXPECT_EQ(sequence->length(), 0);
    faulty.all([](FaultySource& source) { source.clear_faults(); });
    expect_same_bits(run_prompt(faulty.model(), prompt_, prompt_.size()), whole_,
                     "after the damage");
  }
}

TEST_P(ModelFaultsTest, AReadThatFailsOnceIsRetried) {
  FaultyModel faulty(GetParam());
  faulty.all([](FaultySource& source) { source.inject({.first = 3, .times = 1}); });
  expect_same_bits(run_prompt(faulty.model(), prompt_, prompt_.size()), whole_, "with retries");
}

TEST_P(ModelFaultsTest, FilesThatVanishAndComeBack) {
  FaultyModel faulty(GetParam());
  const auto sequence = faulty.model().new_sequence();
  const std::span<const Token> prompt(prompt_);
  run_tokens(faulty.model(), *sequence, prompt.first(3), 3);
  faulty.all([](FaultySource& source) { source.vanish(); });
  EXPECT_THROW(run_tokens(faulty.model(), *sequence, prompt.subspan(3), 4), Error);
  EXPECT_EQ(sequence->length(), 3);
  faulty.all([](FaultySource& source) { source.clear_faults(); });
  const auto vocab = static_cast<std::size_t>(faulty.model().info().vocab);
  expect_same_bits(run_tokens(faulty.model(), *sequence, prompt.subspan(3), 4),
                   std::span(whole_).subspan(3 * vocab), "after the files came back");
}

TEST_P(ModelFaultsTest, AHungReadIsLeftWithinASecond) {
  FaultyModel faulty(GetParam());
  faulty.all([](FaultySource& source) { source.hang(); });
  StopFlag stop;
  std::thread canceller([&] {
    std::this_thread::sleep_for(100ms);
    stop.request_stop();
  });
  const auto sequence = faulty.model().new_sequence();
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto sweep = faulty.model().begin(
        {{.sequence = sequence.get(), .tokens = prompt_, .logits_from = 0, .keep_at = {}}},
        {.stop = &stop});
    while (sweep->step()) {
    }
    ADD_FAILURE() << "was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);  // the drive would hang for ever
  canceller.join();
  faulty.all([](FaultySource& source) {
    source.release();
    source.clear_faults();
  });
  expect_same_bits(run_prompt(faulty.model(), prompt_, 5), whole_, "after the drive came back");
}

TEST_P(ModelFaultsTest, ExpertsAtEightOffsetsAndAcrossShardsGiveTheSameBits) {
  std::vector<BuiltShard> shards = read_checkpoint(oracle_dir(GetParam()));
  spread_residues(shards);
  const TempDir dir;
  dir.write("config.json", read_file(oracle_dir(GetParam()) + "/config.json"));
  write_checkpoint(dir.path(), shards);
  ModelOptions options = oracle_options(GetParam());
  options.dir = dir.path();
  expect_same_bits(run_prompt(*load_model(options), prompt_, prompt_.size()), whole_,
                   "at eight offsets");
  for (const auto& [layer, expert] : {std::pair{1, 3}, {2, 0}, {4, 9}}) {
    split_expert(shards, layer, expert);
  }
  const TempDir cut;
  cut.write("config.json", read_file(oracle_dir(GetParam()) + "/config.json"));
  write_checkpoint(cut.path(), shards);
  options.dir = cut.path();
  expect_same_bits(run_prompt(*load_model(options), prompt_, 7), whole_, "across shards");
}

INSTANTIATE_TEST_SUITE_P(Oracles, ModelFaultsTest, ::testing::Values("k3-a", "kimi-linear-a"),
                         [](const auto& test) {
                           return test.param == "k3-a" ? "k3_a" : "kimi_linear_a";
                         });

TEST(ModelErrors, RefuseABudgetBelowTheFloorWithTheSum) {
  ModelOptions options = oracle_options("k3-a");
  options.memory.budget_bytes = 1 << 20;
  try {
    load_model(options);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_NE(std::string(error.what()).find("spine"), std::string::npos) << error.what();
  }
}

TEST(ModelErrors, RefuseIdsOutsideOfTheVocabulary) {
  const auto model = load_model(oracle_options("k3-a"));
  const auto sequence = model->new_sequence();
  for (const Token id : {-1, 512}) {
    EXPECT_THROW(
        model->begin(
            {{.sequence = sequence.get(), .tokens = {&id, 1}, .logits_from = 0, .keep_at = {}}},
            {}),
        Error);
  }
}

TEST(ModelErrors, RefuseSweepsThatCannotBe) {
  ModelOptions options = oracle_options("k3-a");
  options.memory.chunk_tokens = 4;
  const auto model = load_model(options);
  const auto sequence = model->new_sequence();
  const std::vector<Token> ids(5, 1);
  const auto slice = [&](std::size_t tokens, std::int32_t logits_from,
                         std::vector<std::int64_t> keep_at) {
    return Slice{.sequence = sequence.get(),
                 .tokens = std::span(ids).first(tokens),
                 .logits_from = logits_from,
                 .keep_at = std::move(keep_at)};
  };
  EXPECT_THROW(model->begin({}, {}), Error);
  EXPECT_THROW(model->begin({slice(0, 0, {})}, {}), Error);
  EXPECT_THROW(model->begin({slice(5, 0, {})}, {}), Error);  // more than the plan grants
  EXPECT_THROW(model->begin({slice(2, 3, {})}, {}), Error);
  EXPECT_THROW(model->begin({slice(2, 0, {3})}, {}), Error);
  EXPECT_THROW(model->begin({slice(2, 0, {0})}, {}), Error);
  EXPECT_THROW(model->begin({slice(2, 0, {2, 1})}, {}), Error);
  EXPECT_THROW(model->begin({slice(1, 0, {}), slice(1, 0, {})}, {}), Error);
  EXPECT_NO_THROW(model->begin({slice(4, 4, {1, 4})}, {}));
}

TEST(ModelErrors, NameAnUnknownInstructionSet) {
  ModelOptions options = oracle_options("k3-a");
  options.isa = "avx1024";
  try {
    load_model(options);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
  }
}

// A tensor of the spine with another shape or name is refused before anything large is allocated.
TEST(ModelErrors, NameAWrongSpineTensor) {
  std::vector<BuiltShard> shards = read_checkpoint(oracle_dir("k3-a"));
  const std::string name = "language_model.model.layers.2.self_attn.q_proj.weight";
  for (BuiltShard& shard : shards) {
    for (BuiltTensor& tensor : shard.tensors) {
      if (tensor.name == name) std::swap(tensor.shape[0], tensor.shape[1]);
    }
  }
  const TempDir dir;
  dir.write("config.json", read_file(oracle_dir("k3-a") + "/config.json"));
  write_checkpoint(dir.path(), shards);
  ModelOptions options = oracle_options("k3-a");
  options.dir = dir.path();
  try {
    load_model(options);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace penstock::testing

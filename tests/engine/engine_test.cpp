// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "tests/model/model_test_support.h"
#include "tests/support/faulty_source.h"

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;

// A source of the engine that the test keeps as well: it may still be released when the engine has
// gone.
class SharedSource final : public ByteSource {
 public:
  explicit SharedSource(std::shared_ptr<const ByteSource> inner) : inner_(std::move(inner)) {}
  const std::string& name() const override { return inner_->name(); }
  std::uint64_t size() const override { return inner_->size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    inner_->read(offset, out);
  }
  int direct_fd() const override { return inner_->direct_fd(); }

 private:
  const std::shared_ptr<const ByteSource> inner_;
};

// An engine on k3-a whose reads can be made to hang or fail.
class EngineTest : public ::testing::Test {
 protected:
  EngineOptions options() {
    EngineOptions result;
    result.model = oracle_options("k3-a");
    result.model.memory.expert_slots = 1;
    result.model.opener = [this](const std::string& path) {
      auto source = std::make_shared<FaultySource>(open_source(path));
      const std::lock_guard lock(mutex_);
      sources_.push_back(source);
      return std::make_unique<SharedSource>(std::move(source));
    };
    result.max_waiting = 3;
    return result;
  }
  template <typename Action>
  void all(const Action& action) {
    for (const auto& source : sources_) action(*source);
  }
  void hang() {
    all([](FaultySource& source) { source.hang(); });
  }
  void release() {
    all([](FaultySource& source) { source.release(); });
  }

  static GenerationRequest request(std::int64_t max_tokens) {
    return {.prompt = read_oracle("k3-a").prompt, .max_tokens = max_tokens, .ignore_stop = true};
  }

  struct Outcome {
    std::vector<Token> ids;
    std::optional<DoneEvent> done;
    std::vector<float> prompt_logits;
    std::size_t most_logits = 0;  // that came at a time
    std::vector<float> layer_outputs;
    std::int64_t prefill_events = 0;
  };
  static Outcome collect(Generation& generation) {
    Outcome outcome;
    while (!outcome.done) {
      const auto event = generation.next(10s);
      if (!event) throw std::runtime_error("no event within 10 s");
      if (const auto* token = std::get_if<TokenEvent>(&*event)) outcome.ids.push_back(token->token);
      if (const auto* logits = std::get_if<PromptLogitsEvent>(&*event)) {
        outcome.prompt_logits.insert(outcome.prompt_logits.end(), logits->logits.begin(),
                                     logits->logits.end());
        outcome.most_logits = std::max(outcome.most_logits, logits->logits.size());
      }
      if (const auto* layers = std::get_if<LayerOutputsEvent>(&*event)) {
        outcome.layer_outputs = layers->outputs;
      }
      if (std::holds_alternative<PrefillEvent>(*event)) ++outcome.prefill_events;
      if (const auto* done = std::get_if<DoneEvent>(&*event)) outcome.done = *done;
    }
    return outcome;
  }
  static ErrorCode error_of(Generation& generation) {
    try {
      while (true) {
        if (!generation.next(10s)) throw std::runtime_error("no event within 10 s");
      }
    } catch (const Error& error) {
      return error.code();
    }
  }
  static void wait_idle(const Engine& engine) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!engine.idle() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(engine.idle());
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<FaultySource>> sources_;
};

TEST_F(EngineTest, DecodesGreedilyLikeTheOracle) {
  Engine engine(options());
  const Oracle oracle = read_oracle("k3-a");
  Generation generation = engine.submit(request(static_cast<std::int64_t>(oracle.greedy.size())));
  const Outcome outcome = collect(generation);
  EXPECT_EQ(outcome.ids, oracle.greedy);
  EXPECT_EQ(outcome.done->reason, FinishReason::length);
  const GenerationStats& stats = outcome.done->stats;
  EXPECT_EQ(stats.prompt_tokens, static_cast<std::int64_t>(oracle.prompt.size()));
  EXPECT_EQ(stats.generated_tokens, static_cast<std::int64_t>(oracle.greedy.size()));
  EXPECT_GT(stats.expert_reads, 0U);
  EXPECT_GT(stats.prefill_s, 0);
  EXPECT_GT(outcome.prefill_events, 0);
}

TEST_F(EngineTest, EndsAtAStopIdAndGivesIt) {
  Engine engine(options());
  const Oracle oracle = read_oracle("k3-a");
  GenerationRequest wanted = request(40);
  wanted.ignore_stop = false;
  wanted.stop_ids = {oracle.greedy[5]};
  Generation generation = engine.submit(std::move(wanted));
  const Outcome outcome = collect(generation);
  EXPECT_EQ(outcome.ids, std::vector<Token>(oracle.greedy.begin(), oracle.greedy.begin() + 6));
  EXPECT_EQ(outcome.done->reason, FinishReason::stop);
  EXPECT_EQ(outcome.done->stats.generated_tokens, 6);
}

TEST_F(EngineTest, IgnoresStopIdsWhenTold) {
  Engine engine(options());
  const Oracle oracle = read_oracle("k3-a");
  GenerationRequest wanted = request(10);
  wanted.stop_ids = {oracle.greedy[2]};
  Generation generation = engine.submit(std::move(wanted));
  EXPECT_EQ(collect(generation).ids.size(), 10U);
}

TEST_F(EngineTest, GivesPromptLogitsAndLayers) {
  EngineOptions small = options();
  small.model.memory.chunk_tokens = 5;
  Engine engine(small);
  GenerationRequest wanted = request(1);
  wanted.prompt_logits = true;
  wanted.layer_outputs = true;
  const auto model = load_model(oracle_options("k3-a"));
  const auto whole = run_prompt(*model, wanted.prompt, wanted.prompt.size());
  Generation generation = engine.submit(std::move(wanted));
  const Outcome outcome = collect(generation);
  expect_same_bits(outcome.prompt_logits, whole, "prompt logits");
  EXPECT_EQ(outcome.most_logits, 5U * static_cast<std::size_t>(model->info().vocab));
  EXPECT_EQ(outcome.layer_outputs.size(), 7U * 128U);
}

TEST_F(EngineTest, PromptLogitsTakeNoMoreThanThePlanLeaves) {
  EngineOptions tight = options();
  tight.model.memory.chunk_tokens = 5;
  tight.model.memory.budget_bytes = plan_model(tight.model).memory.floor_bytes;
  Engine engine(tight);
  GenerationRequest wanted = request(1);
  wanted.prompt_logits = true;
  const auto model = load_model(oracle_options("k3-a"));
  const auto whole = run_prompt(*model, wanted.prompt, wanted.prompt.size());
  Generation generation = engine.submit(std::move(wanted));
  const Outcome outcome = collect(generation);
  expect_same_bits(outcome.prompt_logits, whole, "prompt logits");
  EXPECT_EQ(outcome.most_logits, static_cast<std::size_t>(model->info().vocab));
}

TEST_F(EngineTest, ClampsMaxTokensToTheContext) {
  EngineOptions small = options();
  small.model.memory.context_tokens = 40;
  Engine engine(small);
  Generation generation = engine.submit(request(1'000'000));
  const Outcome outcome = collect(generation);
  EXPECT_EQ(outcome.ids.size(), 40U - 37U);
  EXPECT_EQ(outcome.done->reason, FinishReason::length);
}

TEST_F(EngineTest, RefusesWrongRequests) {
  EngineOptions small = options();
  small.model.memory.context_tokens = 37;
  Engine engine(small);
  const auto code_of = [&](GenerationRequest wanted) {
    try {
      engine.submit(std::move(wanted));
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::cancelled;
  };
  EXPECT_EQ(code_of(request(1)), ErrorCode::bad_request);  // fills the context
  EXPECT_EQ(code_of({.prompt = {}, .max_tokens = 1}), ErrorCode::bad_request);
  EXPECT_EQ(code_of({.prompt = {512}, .max_tokens = 1}), ErrorCode::bad_request);
  EXPECT_EQ(code_of({.prompt = {-1}, .max_tokens = 1}), ErrorCode::bad_request);
  EXPECT_EQ(code_of({.prompt = {1}, .max_tokens = 0}), ErrorCode::bad_request);
  EXPECT_TRUE(engine.idle());
}

TEST_F(EngineTest, ServesInOrderAndRefusesWhenTheQueueIsFull) {
  Engine engine(options());
  hang();
  Generation running = engine.submit(request(3));
  while (!std::holds_alternative<PrefillEvent>(running.next(10s).value())) {
  }
  std::vector<Generation> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(engine.submit(request(2 + i)));
  try {
    engine.submit(request(1));
    FAIL() << "the queue was full";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::queue_full);
  }
  const auto position = waiting[2].next(10s);
  ASSERT_TRUE(position.has_value());
  EXPECT_EQ(std::get<QueuedEvent>(*position).ahead, 3);
  release();
  EXPECT_EQ(collect(running).ids.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(collect(waiting[i]).ids.size(), 2 + i);
}

TEST_F(EngineTest, DroppingCancelsInPrefillDecodeAndQueue) {
  Engine engine(options());
  hang();
  {
    const Generation in_prefill = engine.submit(request(5));
    const Generation in_queue = engine.submit(request(5));
    std::this_thread::sleep_for(20ms);
  }
  wait_idle(engine);  // although the drive still hangs
  release();
  {
    Generation in_decode = engine.submit(request(1'000'000));
    while (!std::holds_alternative<TokenEvent>(in_decode.next(10s).value())) {
    }
  }
  wait_idle(engine);
  Generation after = engine.submit(request(48));
  EXPECT_EQ(collect(after).ids, read_oracle("k3-a").greedy);
}

TEST_F(EngineTest, AFailedReadIsOneErrorAndTheNextRequestIsAnswered) {
  Engine engine(options());
  all([](FaultySource& source) { source.inject({.fault = Fault::eio, .first = 10}); });
  Generation failing = engine.submit(request(48));
  Generation waiting = engine.submit(request(48));
  EXPECT_EQ(error_of(failing), ErrorCode::io);
  EXPECT_EQ(error_of(waiting), ErrorCode::io);
  all([](FaultySource& source) { source.clear_faults(); });
  Generation after = engine.submit(request(48));
  EXPECT_EQ(collect(after).ids, read_oracle("k3-a").greedy);
}

TEST_F(EngineTest, TheEndTellsThoseThatRunAndWait) {
  auto engine = std::make_unique<Engine>(options());
  hang();
  Generation running = engine->submit(request(5));
  Generation waiting = engine->submit(request(5));
  std::thread releaser([&] {
    std::this_thread::sleep_for(200ms);
    release();
  });
  engine.reset();
  EXPECT_EQ(error_of(running), ErrorCode::shutdown);
  EXPECT_EQ(error_of(waiting), ErrorCode::shutdown);
  releaser.join();
}

// What the reuse of states saves, and that it changes nothing. The prompts stand for: a chat with
// tools and a system text, its next turn, the same prompt again, another chat behind the same
// tools, a request without tools in between.
TEST_F(EngineTest, StartsFromKeptStatesWithTheSameTokens) {
  const std::vector<Token> base = read_oracle("k3-a").prompt;
  const auto ask = [&](Engine& engine, std::vector<Token> prompt, std::int64_t tools_end,
                       std::int64_t leading_end) {
    Generation generation = engine.submit({.prompt = std::move(prompt),
                                           .max_tokens = 12,
                                           .ignore_stop = true,
                                           .tools_end = tools_end,
                                           .leading_end = leading_end});
    return collect(generation);
  };
  const auto fresh = [&](const std::vector<Token>& prompt) {
    Engine engine(options());
    const Outcome outcome = ask(engine, prompt, 0, 0);
    EXPECT_EQ(outcome.done->stats.cached_tokens, 0);
    return outcome.ids;
  };
  Engine engine(options());
  const Outcome first = ask(engine, base, 10, 20);
  EXPECT_EQ(first.done->stats.cached_tokens, 0);
  EXPECT_EQ(first.ids, fresh(base));

  const Outcome again = ask(engine, base, 10, 20);  // regenerate
  EXPECT_EQ(again.done->stats.cached_tokens, static_cast<std::int64_t>(base.size()));
  EXPECT_EQ(again.ids, first.ids);

  const std::vector<Token> title(base.rbegin(), base.rbegin() + 15);
  EXPECT_EQ(ask(engine, title, 0, 0).done->stats.cached_tokens, 0);

  std::vector<Token> turn = base;  // what was generated but the last id was run
  turn.insert(turn.end(), first.ids.begin(), first.ids.end());
  turn.insert(turn.end(), {5, 6, 7});
  const Outcome next = ask(engine, turn, 10, 20);
  EXPECT_EQ(next.done->stats.cached_tokens, static_cast<std::int64_t>(base.size()) + 11);
  EXPECT_EQ(next.ids, fresh(turn));

  std::vector<Token> without_reply = base;  // a client that drops what the model wrote
  without_reply.insert(without_reply.end(), {9, 9, 9});
  const Outcome dropped = ask(engine, without_reply, 10, 20);
  EXPECT_EQ(dropped.done->stats.cached_tokens, static_cast<std::int64_t>(base.size()));
  EXPECT_EQ(dropped.ids, fresh(without_reply));

  std::vector<Token> other(base.begin(), base.begin() + 10);  // same tools, another system text
  other.insert(other.end(), {300, 301, 302, 303});
  const Outcome second_chat = ask(engine, other, 10, 14);
  EXPECT_EQ(second_chat.done->stats.cached_tokens, 10);
  EXPECT_EQ(second_chat.ids, fresh(other));
}

TEST_F(EngineTest, KeepsWhatACancelledRequestHadCommitted) {
  EngineOptions small = options();
  small.model.memory.chunk_tokens = 8;
  Engine engine(small);
  {
    Generation generation = engine.submit(request(1'000'000));
    while (!std::holds_alternative<TokenEvent>(generation.next(10s).value())) {
    }
  }
  wait_idle(engine);
  Generation after = engine.submit(request(48));
  const Outcome outcome = collect(after);
  EXPECT_EQ(outcome.done->stats.cached_tokens, 37);
  EXPECT_EQ(outcome.ids, read_oracle("k3-a").greedy);
}

TEST_F(EngineTest, ManyThreadsAskAtOnce) {
  EngineOptions wide = options();
  wide.max_waiting = 64;
  Engine engine(wide);
  const Oracle oracle = read_oracle("k3-a");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 3; ++k) {
        Generation generation = engine.submit(request(4));
        if ((i + k) % 3 == 0) continue;  // dropped at once
        const Outcome outcome = collect(generation);
        if (std::equal(outcome.ids.begin(), outcome.ids.end(), oracle.greedy.begin())) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16);
  wait_idle(engine);
}

}  // namespace
}  // namespace penstock::testing

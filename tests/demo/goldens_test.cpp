// SPDX-License-Identifier: Apache-2.0
//
// The demo model end to end: what renderer, tokenizer and engine make of the prompts of
// goldens.json, against the fp32 reference that trained it. Each test runs once per kernel table.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "tests/model/model_test_support.h"
#include "tests/text/chat_fixtures.h"

namespace penstock::testing {
namespace {

const std::string kDemoDir = PENSTOCK_SOURCE_DIR "/config/demo-model";

// Logits: error over the largest magnitude (measured: 3e-7). Both sides round in fp32.
constexpr double kLogitsBar = 1e-5;
constexpr double kLayersBar = 1e-5;  // relative, of the norm of a layer's output

const nlohmann::json& golden_cases() {
  static const nlohmann::json goldens = read_json(kDemoDir + "/goldens.json");
  return goldens.at("cases");
}

const std::vector<JsonValue>& eval_cases() {
  static const JsonValue cases = read_fixture(kDemoDir + "/eval.json");
  return cases.items;
}

const ChatFormat& demo_format() {
  static const auto format = make_chat_format("kimi-k3", demo_tokenizer());
  return *format;
}

std::vector<Token> ids_at(const nlohmann::json& golden, const char* key) {
  return golden.at(key).get<std::vector<Token>>();
}

std::string text_of(const std::vector<Token>& ids) {
  std::string text;
  for (const Token id : ids) text += demo_tokenizer().bytes(id);
  return text;
}

struct Outcome {
  std::vector<Token> ids;
  std::vector<float> last_logits;    // [vocab]
  std::vector<float> layer_outputs;  // [layers][hidden] at the last prompt token
};

Outcome run(Engine& engine, const nlohmann::json& golden) {
  GenerationRequest request;
  request.prompt = ids_at(golden, "prompt_ids");
  request.max_tokens = static_cast<std::int64_t>(golden.at("greedy_ids").size());
  request.stop_ids = demo_format().stop_ids();
  request.prompt_logits = request.layer_outputs = golden.contains("last_logits");
  Generation generation = engine.submit(std::move(request));
  const auto vocab = static_cast<std::ptrdiff_t>(engine.model().vocab);
  for (Outcome outcome;;) {
    const auto event = generation.next(std::chrono::minutes(10));
    if (!event) throw std::runtime_error("nothing came for ten minutes");
    if (const auto* token = std::get_if<TokenEvent>(&*event)) outcome.ids.push_back(token->token);
    if (const auto* rows = std::get_if<PromptLogitsEvent>(&*event)) {
      outcome.last_logits.assign(rows->logits.end() - vocab, rows->logits.end());
    }
    if (const auto* layers = std::get_if<LayerOutputsEvent>(&*event)) {
      outcome.layer_outputs = layers->outputs;
    }
    if (std::holds_alternative<DoneEvent>(*event)) return outcome;
  }
}

double largest_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error = std::max(error, std::abs(double{actual[i]} - double{expected[i]}));
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return error / largest;
}

double norm(const float* values, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double{values[i]} * double{values[i]};
  return std::sqrt(sum);
}

TEST(DemoPrompts, AreRenderedToTheIdsOfTheTrainer) {
  std::size_t rendered = 0;
  for (const auto& golden : golden_cases()) {
    if (!golden.contains("eval_index")) continue;
    const JsonValue& request = eval_cases().at(golden.at("eval_index").get<std::size_t>());
    EXPECT_EQ(demo_format().render(conversation_of(request)).ids, ids_at(golden, "prompt_ids"))
        << golden.at("topic");
    ++rendered;
  }
  EXPECT_EQ(rendered, 20U);
}

TEST(DemoPrompts, RawTextsAreOrdinaryIds) {
  const std::vector<std::string> texts = {"Once upon a time there was a little fox",
                                          "The capital of France is", "1, 2, 3, 4,"};
  std::size_t next = 0;
  for (const auto& golden : golden_cases()) {
    if (golden.at("topic") != "raw") continue;
    EXPECT_EQ(demo_tokenizer().encode_ordinary(texts.at(next++)), ids_at(golden, "prompt_ids"));
  }
  EXPECT_EQ(next, texts.size());
}

// Slower tables compute the cases that tell most: logits, and the narrowest choices of an id.
bool is_telling(const nlohmann::json& golden) {
  constexpr double kNarrow = 0.02;
  return golden.contains("last_logits") || golden.value("min_margin", 1.0) < kNarrow;
}

class DemoGoldens : public ::testing::TestWithParam<std::string> {};

TEST_P(DemoGoldens, GiveTheIdsAndLogitsOfTheReference) {
  EngineOptions options;
  options.model.dir = kDemoDir;
  options.model.isa = GetParam();
  options.model.threads = 2;
  options.model.memory.budget_bytes = 1ULL << 30U;
  Engine engine(options);
  const auto hidden = static_cast<std::size_t>(engine.model().hidden);
  const bool best = GetParam() == isa_names().front();
  int with_logits = 0;
  for (const auto& golden : golden_cases()) {
    if (!best && !is_telling(golden)) continue;
    SCOPED_TRACE(golden.at("topic").get<std::string>());
    const Outcome outcome = run(engine, golden);
    EXPECT_EQ(outcome.ids, ids_at(golden, "greedy_ids"));
    EXPECT_EQ(text_of(outcome.ids), golden.at("greedy_text").get<std::string>());
    if (!golden.contains("last_logits")) continue;
    ++with_logits;
    const double error =
        largest_error(outcome.last_logits, golden.at("last_logits").get<std::vector<float>>());
    std::printf("logits of %s: %.1e\n", golden.at("topic").get<std::string>().c_str(), error);
    EXPECT_LE(error, kLogitsBar);
    const auto norms = golden.at("layer_output_norms").get<std::vector<double>>();
    ASSERT_EQ(outcome.layer_outputs.size(), norms.size() * hidden);
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double actual = norm(&outcome.layer_outputs[i * hidden], hidden);
      EXPECT_NEAR(actual / norms[i], 1, kLayersBar) << "layer " << i;
    }
  }
  EXPECT_EQ(golden_cases().size(), 23U);
  EXPECT_EQ(with_logits, 3);
}

INSTANTIATE_TEST_SUITE_P(Tables, DemoGoldens, ::testing::ValuesIn(isa_names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace penstock::testing

// SPDX-License-Identifier: Apache-2.0
#include "tests/model/model_test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace penstock::testing {

std::string golden_path(const std::string& name) {
  return std::string(PENSTOCK_GOLDEN) + "/" + name;
}

std::string oracle_dir(const std::string& oracle) {
  return golden_path("oracle/" + oracle);
}

std::string published_dir(const std::string& model) {
  return std::string(PENSTOCK_SOURCE_DIR) + "/config/models/" + model;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

nlohmann::json read_json(const std::string& path) {
  return nlohmann::json::parse(read_file(path));
}

std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<std::string> isa_names() {
  const KernelList list = supported_kernels();
  std::vector<std::string> names;
  for (int i = 0; i < list.count; ++i) names.emplace_back(list.tables[i]->name);
  return names;
}

ModelOptions oracle_options(const std::string& oracle) {
  ModelOptions options;
  options.dir = oracle_dir(oracle);
  options.threads = 2;
  options.memory.budget_bytes = 1ULL << 30U;
  options.memory.context_tokens = 1024;
  return options;
}

Oracle read_oracle(const std::string& oracle) {
  const nlohmann::json golden = read_json(oracle_dir(oracle) + "/golden.json");
  return {golden["prompt_ids"].get<std::vector<Token>>(),
          golden["greedy_ids"].get<std::vector<Token>>()};
}

std::vector<float> run_tokens(Model& model, SequenceState& sequence, std::span<const Token> tokens,
                              std::size_t chunk) {
  std::vector<float> all;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(chunk, tokens.size()));
    const auto sweep =
        model.begin({{.sequence = &sequence, .tokens = part, .logits_from = 0, .keep_at = {}}}, {});
    while (sweep->step()) {
    }
    const auto logits = sweep->logits(0);
    all.insert(all.end(), logits.begin(), logits.end());
    sweep->commit();
    tokens = tokens.subspan(part.size());
  }
  return all;
}

std::vector<float> run_prompt(Model& model, std::span<const Token> tokens, std::size_t chunk) {
  const auto sequence = model.new_sequence();
  return run_tokens(model, *sequence, tokens, chunk);
}

void expect_same_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  ASSERT_FALSE(a.empty()) << what;
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << ": value " << i << " is " << a[i] << " and " << b[i];
  }
}

}  // namespace penstock::testing

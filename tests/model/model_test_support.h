// SPDX-License-Identifier: Apache-2.0
//
// What the model tests share: the oracle checkpoints, models loaded on them, and ways to run ids.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/load_model.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

namespace penstock::testing {

inline const std::vector<std::string> kOracles = {"k3-a", "k3-b", "kimi-linear-a"};

std::string golden_path(const std::string& name);     // below tests/golden
std::string oracle_dir(const std::string& oracle);    // "k3-a" to its folder
std::string published_dir(const std::string& model);  // "kimi-k3" to the one of its config.json
std::string read_file(const std::string& path);       // throws when it cannot be read
nlohmann::json read_json(const std::string& path);
std::vector<float> read_floats(const std::string& path);
std::vector<std::string> isa_names();  // tables of this machine

// Options for an oracle that leave nothing to the machine: 1 GiB, two threads, whole-prompt sweeps.
ModelOptions oracle_options(const std::string& oracle);

struct Oracle {
  std::vector<Token> prompt;
  std::vector<Token> greedy;
};
Oracle read_oracle(const std::string& oracle);

// Logits after every token [tokens][vocab], in sweeps of at most `chunk` tokens.
std::vector<float> run_tokens(Model& model, SequenceState& sequence, std::span<const Token> tokens,
                              std::size_t chunk);
// The same for a new sequence.
std::vector<float> run_prompt(Model& model, std::span<const Token> tokens, std::size_t chunk);

// Equal bits, and the first difference in the message when not.
void expect_same_bits(std::span<const float> a, std::span<const float> b, const std::string& what);

}  // namespace penstock::testing

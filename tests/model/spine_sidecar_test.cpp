// SPDX-License-Identifier: Apache-2.0
#include "engine/model/spine_sidecar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/kimi_weights.h"
#include "engine/model/model_config.h"
#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

struct Files {
  explicit Files(const std::string& oracle)
      : index(TensorIndex::open(oracle_dir(oracle),
                                [](const std::string& path) { return open_source(path); })),
        config(read_model_config(oracle_dir(oracle))),
        units(spine_units(index, config).units) {}

  TensorIndex index;
  ModelConfig config;
  std::vector<SpineUnit> units;
};

TEST(SpineSidecar, HoldsEveryBf16MatrixInBf12InOrderOfUse) {
  for (const std::string& oracle : kOracles) {
    const Files model(oracle);
    const std::vector<SidecarFile> files =
        sidecar_files(model.index, model.units, WeightFormat::bf12);
    ASSERT_EQ(files.size(), static_cast<std::size_t>(model.config.layers) + 1);
    EXPECT_EQ(files.front().name, "layer-0000.safetensors");
    EXPECT_EQ(files.back().name, "lm_head.safetensors");
    std::vector<std::string> names;
    std::uint64_t bytes = 0;
    for (const SidecarFile& file : files) {
      for (const SidecarMatrix& matrix : file.matrices) {
        names.push_back(matrix.name);
        bytes += std::uint64_t{2} * static_cast<std::uint64_t>(matrix.rows) *
                 static_cast<std::uint64_t>(matrix.cols);
      }
    }
    std::vector<std::string> want;
    for (const SpineUnit& unit : model.units) {
      for (const SpineMatrix& matrix : unit.matrices) {
        if (want.empty() || want.back() != matrix.name) want.push_back(matrix.name);
      }
    }
    EXPECT_EQ(names, want);
    EXPECT_EQ(published_spine_bytes(model.index, model.units), bytes);
  }
}

// The names behind "layers.N." and "lm_head" of all files.
std::set<std::string> names_in(const Files& model, WeightFormat format) {
  std::set<std::string> names;
  for (const SidecarFile& file : sidecar_files(model.index, model.units, format)) {
    for (const SidecarMatrix& matrix : file.matrices) {
      std::string name = matrix.name.substr(model.config.prefix.size());
      if (name.starts_with("model.layers.")) name.erase(0, name.find('.', 13) + 1);
      name.erase(name.rfind(".weight"));
      names.insert(name);
    }
  }
  return names;
}

TEST(SpineSidecar, LeavesRoutersAndLowRankGatesOutOfInt8) {
  for (const std::string& oracle : kOracles) {
    const Files model(oracle);
    const std::set<std::string> all = names_in(model, WeightFormat::bf12);
    const std::set<std::string> held = names_in(model, WeightFormat::int8_rows);
    std::set<std::string> left;
    std::set_difference(all.begin(), all.end(), held.begin(), held.end(),
                        std::inserter(left, left.end()));
    std::set<std::string> want = {"block_sparse_moe.gate", "self_attn.b_proj", "self_attn.f_a_proj",
                                  "self_attn.f_b_proj"};
    if (!model.config.kda.full_rank_gate) want.insert({"self_attn.g_a_proj", "self_attn.g_b_proj"});
    EXPECT_EQ(left, want) << oracle;
    EXPECT_EQ(held.count("lm_head"), 1U);
  }
}

// An lm_head beyond a segment comes in ranges of rows, but is one matrix of a sidecar.
TEST(SpineSidecar, JoinsTheRangesOfALargeMatrix) {
  const Files model("k3-a");
  const std::string head = model.config.prefix + "lm_head.weight";
  const std::int32_t rows = model.config.vocab;
  std::vector<SpineUnit> units;
  for (SpineMatrix& piece :
       cut_by_rows(model.index, head, rows, model.config.hidden, std::uint64_t{1} << 15U)) {
    units.push_back({"piece", {std::move(piece)}});
  }
  ASSERT_GT(units.size(), 2U);
  const auto files = sidecar_files(model.index, units, WeightFormat::int8_rows);
  ASSERT_EQ(files.size(), 1U);
  ASSERT_EQ(files[0].matrices.size(), 1U);
  EXPECT_EQ(files[0].matrices[0].rows, rows);
  EXPECT_EQ(published_spine_bytes(model.index, units), model.index.get(head).bytes);
}

}  // namespace
}  // namespace penstock::testing

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/checkpoint_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/kimi_weights.h"
#include "tests/model/model_test_support.h"
#include "tests/support/expect_error.h"
#include "tests/support/published_k3.h"

namespace penstock::testing {
namespace {

TensorIndex layout_of(const std::string& dir) {
  return TensorIndex::from_layout(checkpoint_layout(read_model_config(dir)));
}

TensorIndex files_of(const std::string& dir) {
  return TensorIndex::open(dir, [](const std::string& path) { return open_source(path); });
}

TEST(CheckpointLayout, PutsKimiK3WhereItIsPublished) {
  const ModelConfig config = read_model_config(published_dir("kimi-k3"));
  const TensorIndex index = layout_of(published_dir("kimi-k3"));
  expect_published_k3(index, ExpertStore(index, expert_shape(config), config.is_moe));
}

void expect_same_spine(const TensorIndex& layout, const TensorIndex& files, bool same_places) {
  EXPECT_EQ(layout.tensors().size(), files.tensors().size());
  for (const auto& [name, expected] : files.tensors()) {
    const TensorInfo* found = layout.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(describe_tensor(found->type, found->shape),
              describe_tensor(expected.type, expected.shape))
        << name;
    if (!same_places) continue;
    EXPECT_EQ(found->offset, expected.offset) << name;
    EXPECT_EQ(found->source, expected.source) << name;
  }
}

void expect_same_experts(const TensorIndex& layout, const TensorIndex& files, bool same_places) {
  const auto fields = [&](const ExpertTensor& t) {
    return std::tuple(expert_tensor_key(t), t.rows, t.cols, t.type, same_places ? t.source : 0U,
                      same_places ? t.offset : 0U);
  };
  ASSERT_EQ(layout.expert_tensors().size(), files.expert_tensors().size());
  for (std::size_t i = 0; i < files.expert_tensors().size(); ++i) {
    const ExpertTensor& expected = files.expert_tensors()[i];
    ASSERT_EQ(fields(layout.expert_tensors()[i]), fields(expected)) << expert_tensor_name(expected);
  }
}

// The oracles of K3 are files as published; the one of Kimi-Linear is cut by layer instead.
TEST(CheckpointLayout, IsTheOneOfTheOracles) {
  for (const std::string& oracle : kOracles) {
    const TensorIndex layout = layout_of(oracle_dir(oracle));
    const TensorIndex files = files_of(oracle_dir(oracle));
    const bool same_places = oracle != "kimi-linear-a";
    expect_same_spine(layout, files, same_places);
    expect_same_experts(layout, files, same_places);
    if (!same_places) continue;
    ASSERT_EQ(layout.source_count(), files.source_count());
    for (std::uint32_t i = 0; i < files.source_count(); ++i) {
      EXPECT_EQ(layout.source(i).name(), files.source(i).name());
      EXPECT_EQ(layout.source(i).size(), files.source(i).size());
    }
  }
}

// What is known of the published files (spec: checkpoint.md section 3): their sizes without headers
// and tensors, and which experts lie in two of them.
TEST(CheckpointLayout, FillsTheFilesOfKimiLinearAsPublished) {
  const std::vector<LayoutFile> files =
      checkpoint_layout(read_model_config(published_dir("kimi-linear")));
  ASSERT_EQ(files.size(), 20U);
  EXPECT_EQ(files[0].name, "model-00001-of-00020.safetensors");
  EXPECT_EQ(files[19].name, "model-00020-of-00020.safetensors");
  constexpr std::array<std::size_t, 20> kTensors = {877,  1056, 1061, 1063, 1056, 1061, 1063,
                                                    1056, 1061, 1063, 1056, 1061, 1063, 1056,
                                                    1061, 1063, 1056, 1061, 1058, 541};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(files[i].tensors.size(), kTensors[i]) << files[i].name;
    for (const LayoutTensor& tensor : files[i].tensors) {
      bytes += tensor_bytes(tensor.type, tensor.shape);
    }
  }
  EXPECT_EQ(bytes, 98'245'528'576U);
}

TEST(CheckpointLayout, CutsTheExpertsOfKimiLinearThatArePublishedInTwoFiles) {
  const TensorIndex index = layout_of(published_dir("kimi-linear"));
  EXPECT_EQ(index.tensors().size() + index.expert_tensors().size(), 20'493U);
  using Sources = std::array<std::uint32_t, kExpertParts>;
  std::map<std::pair<int, int>, Sources> experts;
  for (const ExpertTensor& t : index.expert_tensors()) {
    EXPECT_EQ(t.type, TensorType::bf16);
    experts[{t.layer, t.expert}][static_cast<std::size_t>(t.part)] = t.source;
  }
  std::map<std::pair<int, int>, Sources> cut;
  for (const auto& [expert, s] : experts) {
    if (s[0] == s[2]) continue;
    cut[expert] = {0, s[1] - s[0], s[2] - s[0]};
  }
  const std::map<std::pair<int, int>, Sources> published = {
      {{4, 199}, {0, 1, 1}},  {{8, 209}, {0, 1, 1}},  {{12, 219}, {0, 1, 1}},
      {{16, 229}, {0, 1, 1}}, {{20, 239}, {0, 1, 1}}, {{24, 249}, {0, 1, 1}},
      {{26, 78}, {0, 0, 1}}};
  EXPECT_EQ(cut, published);
}

TEST(CheckpointLayout, HasNoBytesToRead) {
  const TensorIndex index = layout_of(published_dir("kimi-linear"));
  std::array<std::byte, 1> byte;
  const Error error = error_of([&] { index.source(3).read(0, byte); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  EXPECT_EQ(std::string(error.what()),
            "model-00004-of-00020.safetensors: is not here, only its layout is known");
  EXPECT_LT(index.source(3).direct_fd(), 0);
}

}  // namespace
}  // namespace penstock::testing

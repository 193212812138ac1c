// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/io/read_queue.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

ExpertShape shape_of(const ExpertFixture& fixture) {
  return {fixture.layers, fixture.experts, fixture.input, fixture.intermediate};
}

std::vector<bool> moe_layers(const ExpertFixture& fixture) {
  std::vector<bool> is_moe(static_cast<std::size_t>(fixture.layers), true);
  is_moe[0] = false;
  return is_moe;
}

// A checkpoint on disk with its index and store.
struct Opened {
  Opened(const std::vector<BuiltShard>& built, const ExpertFixture& fixture) : shards(built) {
    write_checkpoint(dir.path(), shards);
    index = std::make_unique<TensorIndex>(
        TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); }));
    store = std::make_unique<ExpertStore>(*index, shape_of(fixture), moe_layers(fixture));
  }

  // As a ReadQueue places the extents in a slot.
  Buffer read_slot(std::int32_t layer, std::int32_t expert) const {
    Buffer slot(store->slot_bytes(), "a slot");
    std::size_t base = 0;
    for (const Extent& extent : store->extents(layer, expert)) {
      index->source(extent.source)
          .read(extent.offset, {slot.data() + base + extent.offset % kPageBytes, extent.bytes});
      base += widened_bytes(extent.offset, extent.bytes);
    }
    EXPECT_LE(base, store->slot_bytes());
    return slot;
  }

  TempDir dir;
  std::vector<BuiltShard> shards;
  std::unique_ptr<TensorIndex> index;
  std::unique_ptr<ExpertStore> store;
};

void expect_bytes(const unsigned char* found, const std::string& expected, const char* what) {
  EXPECT_EQ(std::memcmp(found, expected.data(), expected.size()), 0) << what;
}

void expect_same_experts(const Opened& opened, const ExpertFixture& fixture) {
  const bool packed = fixture.format == WeightFormat::mxfp4;
  for (std::int32_t layer = 1; layer < fixture.layers; ++layer) {
    for (std::int32_t expert = 0; expert < fixture.experts; ++expert) {
      const Buffer slot = opened.read_slot(layer, expert);
      const ExpertView view = opened.store->view(layer, expert, slot.data());
      const std::vector<BuiltTensor> tensors = expert_tensors(
          "model.", layer, expert, fixture.input, fixture.intermediate, fixture.format);
      const WeightMatrix* matrices[] = {&view.w1, &view.w2, &view.w3};
      for (std::size_t part = 0; part < 3; ++part) {
        const WeightMatrix& matrix = *matrices[part];
        EXPECT_EQ(matrix.format, fixture.format);
        EXPECT_EQ(matrix.rows, part == 1 ? fixture.input : fixture.intermediate);
        EXPECT_EQ(matrix.cols, part == 1 ? fixture.intermediate : fixture.input);
        expect_bytes(matrix.data, tensors[packed ? part * 2 : part].bytes, "weights");
        if (packed) {
          expect_bytes(matrix.scales, tensors[part * 2 + 1].bytes, "scales");
        } else {
          EXPECT_EQ(matrix.scales, nullptr);
        }
      }
      EXPECT_NO_THROW(opened.store->check_scales(layer, expert, slot.data()));
    }
  }
}

TEST(ExpertStore, RanksIdsInStringOrder) {
  const std::vector<std::int32_t> rank = string_order_rank(896);
  ASSERT_EQ(rank.size(), 896U);
  EXPECT_EQ(rank[0], 0);
  EXPECT_EQ(rank[1], 1);
  EXPECT_EQ(rank[10], 2);
  EXPECT_EQ(rank[100], 3);
  EXPECT_EQ(rank[109], 12);
  EXPECT_EQ(rank[11], 13);
  EXPECT_EQ(rank[2], 112);
  EXPECT_EQ(rank[9], 885);
  EXPECT_EQ(rank[895], 884);
  EXPECT_EQ(rank[99], 895);
  EXPECT_TRUE(string_order_rank(0).empty());
}

TEST(ExpertStore, FindsPublishedExpertsAtEightOffsetsInOneExtentEach) {
  const ExpertFixture fixture{.layers = 9};
  std::vector<BuiltShard> shards = expert_checkpoint(fixture);
  spread_residues(shards);
  const Opened opened(shards, fixture);
  std::set<std::uint64_t> residues;
  for (std::int32_t layer = 1; layer < fixture.layers; ++layer) {
    residues.insert(opened.store->extents(layer, 0)[0].offset % kPageBytes);
    for (std::int32_t expert = 0; expert < fixture.experts; ++expert) {
      const std::span<const Extent> extents = opened.store->extents(layer, expert);
      ASSERT_EQ(extents.size(), 1U);
      EXPECT_EQ(extents[0].bytes, opened.store->expert_bytes());
      const auto rank =
          static_cast<std::uint64_t>(opened.store->rank()[static_cast<std::size_t>(expert)]);
      EXPECT_EQ(extents[0].offset,
                opened.store->extents(layer, 0)[0].offset + rank * extents[0].bytes);
    }
  }
  EXPECT_EQ(residues.size(), 8U);
  EXPECT_EQ(opened.store->expert_bytes(), 3U * 64 * 96 / 2 + 3U * 64 * 96 / 32);
  EXPECT_EQ(opened.store->slot_bytes() % kPageBytes, 0U);
  expect_same_experts(opened, fixture);
}

TEST(ExpertStore, JoinsAnExpertThatStraddlesShards) {
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::f32, WeightFormat::mxfp4}) {
    const ExpertFixture fixture{.format = format};
    std::vector<BuiltShard> shards = expert_checkpoint(fixture);
    split_expert(shards, 1, 7);
    spread_residues(shards);
    const Opened opened(shards, fixture);
    const std::span<const Extent> extents = opened.store->extents(1, 7);
    ASSERT_EQ(extents.size(), 2U);
    EXPECT_EQ(extents[0].bytes * 2, extents[1].bytes);
    EXPECT_EQ(opened.index->source(extents[0].source).name(), "model-2.safetensors");
    EXPECT_EQ(opened.index->source(extents[1].source).name(), "model-3.safetensors");
    EXPECT_EQ(opened.store->extents(1, 6).size(), 1U);
    expect_same_experts(opened, fixture);
  }
}

TEST(ExpertStore, ReadsPartsThatLieApart) {
  const ExpertFixture fixture{.layers = 2, .experts = 3};
  std::vector<BuiltShard> shards = expert_checkpoint(fixture);
  // By part first, and the experts of a part one after the other.
  std::stable_sort(shards[1].tensors.begin(), shards[1].tensors.end(),
                   [](const BuiltTensor& a, const BuiltTensor& b) {
                     const auto suffix = [](const BuiltTensor& tensor) {
                       const std::size_t at = tensor.name.find(".w");
                       return at == std::string::npos ? std::string() : tensor.name.substr(at);
                     };
                     return suffix(a) < suffix(b);
                   });
  const Opened opened(shards, fixture);
  EXPECT_EQ(opened.store->extents(1, 1).size(), 6U);
  EXPECT_GE(opened.store->slot_bytes(), 6 * kPageBytes);
  expect_same_experts(opened, fixture);
}

std::string message_of(const std::vector<BuiltShard>& shards, const ExpertFixture& fixture) {
  try {
    const Opened opened(shards, fixture);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

TEST(ExpertStore, NamesTheTensorThatIsWrong) {
  const ExpertFixture fixture{.layers = 3, .experts = 3};
  const std::string w2 = "layers.1.block_sparse_moe.experts.2.w2.weight_scale";
  const auto with = [&](const std::function<void(std::vector<BuiltShard>&)>& change) {
    std::vector<BuiltShard> shards = expert_checkpoint(fixture);
    change(shards);
    return message_of(shards, fixture);
  };
  const auto find = [&](std::vector<BuiltShard>& shards) {
    return std::find_if(shards[1].tensors.begin(), shards[1].tensors.end(),
                        [&](const BuiltTensor& tensor) { return tensor.name == "model." + w2; });
  };
  EXPECT_EQ(with([](std::vector<BuiltShard>&) {}), "no error");
  EXPECT_EQ(with([&](auto& shards) { shards[1].tensors.erase(find(shards)); }),
            "tensor " + w2 + " is missing");
  EXPECT_EQ(with([&](auto& shards) {
              find(shards)->shape = {96, 2};
            }),
            "model-2.safetensors: tensor " + w2 + " is U8 [96, 2], expected U8 [64, 3]");
  EXPECT_EQ(with([&](auto& shards) { find(shards)->type = TensorType::i8; }),
            "model-2.safetensors: tensor " + w2 + " is I8 [64, 3], expected U8 [64, 3]");
  EXPECT_EQ(with([&](auto& shards) { find(shards)->name = "renamed"; }),
            "tensor " + w2 + " is missing");
  const auto add = [&](std::int32_t layer, std::int32_t expert, WeightFormat format) {
    return with([&](auto& shards) {
      for (const BuiltTensor& tensor : expert_tensors("model.", layer, expert, 64, 96, format)) {
        shards[0].tensors.push_back(tensor);
      }
    });
  };
  EXPECT_EQ(add(0, 1, WeightFormat::mxfp4),
            "model-1.safetensors: tensor layers.0.block_sparse_moe.experts.1.w1.weight_packed is "
            "not expected: layer 0 has no routed experts");
  EXPECT_EQ(add(9, 1, WeightFormat::mxfp4),
            "model-1.safetensors: tensor layers.9.block_sparse_moe.experts.1.w1.weight_packed is "
            "not expected: layer 9 has no routed experts");
  EXPECT_EQ(add(1, 3, WeightFormat::mxfp4),
            "model-1.safetensors: tensor layers.1.block_sparse_moe.experts.3.w1.weight_packed is "
            "not expected: a layer has 3 experts");
  EXPECT_EQ(add(2, 1, WeightFormat::bf16),
            "model-1.safetensors: tensor layers.2.block_sparse_moe.experts.1.w1.weight is not "
            "expected: other experts are MXFP4");
}

TEST(ExpertStore, RefusesShapesThatTheConfigurationDoesNotHave) {
  const ExpertFixture built{.layers = 2, .experts = 3};
  const std::vector<BuiltShard> shards = expert_checkpoint(built);
  ExpertFixture asked = built;
  asked.input = 128;
  EXPECT_EQ(message_of(shards, asked),
            "model-2.safetensors: tensor layers.1.block_sparse_moe.experts.0.w1.weight_packed is "
            "U8 [96, 32], expected U8 [96, 64]");
  asked.input = 48;
  EXPECT_EQ(message_of(shards, asked), "MXFP4 experts of 96 x 48, expected multiples of 32");
  asked = built;
  asked.experts = 70'000;
  EXPECT_NE(message_of(shards, asked).find("routed experts: 70000 in each"), std::string::npos);
  asked = built;
  asked.layers = 3;
  EXPECT_EQ(message_of(shards, asked),
            "tensor layers.2.block_sparse_moe.experts.0.w1.weight_packed is missing");
}

TEST(ExpertStore, RefusesTheScaleByte255) {
  const ExpertFixture fixture{.layers = 2, .experts = 3};
  std::vector<BuiltShard> shards = expert_checkpoint(fixture);
  const std::string name = "layers.1.block_sparse_moe.experts.2.w2.weight_scale";
  for (BuiltTensor& tensor : shards[1].tensors) {
    if (tensor.name == "model." + name) tensor.bytes[5 * 3 + 2] = '\xFF';
    if (tensor.name == "model.layers.1.block_sparse_moe.experts.2.w1.weight_packed") {
      tensor.bytes[0] = '\xFF';  // fine in weights
    }
  }
  const Opened opened(shards, fixture);
  EXPECT_NO_THROW(opened.store->check_scales(1, 1, opened.read_slot(1, 1).data()));
  try {
    opened.store->check_scales(1, 2, opened.read_slot(1, 2).data());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_EQ(error.what(), "model-2.safetensors: tensor " + name +
                                " has scale byte 255 in row 5, block 2, expected at most 254");
  }
}

}  // namespace
}  // namespace penstock

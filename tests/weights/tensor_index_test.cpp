// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/tensor_index.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

TensorIndex open_dir(const std::string& dir) {
  return TensorIndex::open(dir, [](const std::string& path) { return open_source(path); });
}

std::string message_of(const std::string& dir) {
  try {
    open_dir(dir);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

std::vector<BuiltShard> two_shards() {
  return {{"a.safetensors", {float_tensor("x", TensorType::f32, {2})}},
          {"b.safetensors",
           {float_tensor("y", TensorType::bf16, {3, 4}), float_tensor("z", TensorType::f32, {1})}}};
}

TEST(TensorIndex, FindsTensorsOfTheShardsThatTheIndexNames) {
  const TempDir dir;
  write_checkpoint(dir.path(), two_shards());
  write_file(dir.path() + "/stray.safetensors", "not named, not opened");
  const TensorIndex index = open_dir(dir.path());
  EXPECT_EQ(index.source_count(), 2U);
  ASSERT_NE(index.find("y"), nullptr);
  const TensorInfo& y = index.get("y");
  EXPECT_EQ(y.shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(y.bytes, 24U);
  EXPECT_EQ(y.offset, offset_of(two_shards()[1], "y"));
  EXPECT_EQ(index.source(y.source).name(), "b.safetensors");
  EXPECT_EQ(index.find("w"), nullptr);
  EXPECT_THROW(index.get("w"), Error);
  EXPECT_EQ(index.file_bytes(),
            shard_bytes(two_shards()[0]).size() + shard_bytes(two_shards()[1]).size());
}

TEST(TensorIndex, OpensEveryShardOfAFolderWithoutAnIndex) {
  const TempDir dir;
  write_checkpoint(dir.path(), two_shards(), false);
  write_file(dir.path() + "/readme.txt", "other files do not matter");
  const TensorIndex index = open_dir(dir.path());
  EXPECT_EQ(index.source_count(), 2U);
  EXPECT_EQ(index.source(0).name(), "a.safetensors");
  EXPECT_EQ(index.tensors().size(), 3U);
}

TEST(TensorIndex, SaysWhatAFolderLacks) {
  const TempDir dir;
  EXPECT_EQ(message_of(dir.path()),
            dir.path() + ": has neither model.safetensors.index.json nor a *.safetensors file");
  const std::string none = dir.path() + "/none";
  EXPECT_EQ(message_of(none).rfind(none + ": cannot be listed: ", 0), 0U) << message_of(none);
}

TEST(TensorIndex, NamesTheFirstMissingShardAndTheIndex) {
  const TempDir dir;
  std::vector<BuiltShard> shards;
  for (int i = 10; i < 60; ++i) {
    const std::string number = std::to_string(i);
    shards.push_back(
        {"m" + number + ".safetensors", {float_tensor("t" + number, TensorType::f32, {1})}});
  }
  write_checkpoint(dir.path(), shards);
  for (const char* missing : {"m17", "m18", "m40"}) {
    std::filesystem::remove(dir.path() + "/" + missing + ".safetensors");
  }
  for (int i = 0; i < 20; ++i) {
    const std::string message = message_of(dir.path());
    EXPECT_NE(message.find("m17.safetensors"), std::string::npos) << message;
    EXPECT_NE(message.find("(named by model.safetensors.index.json)"), std::string::npos)
        << message;
  }
}

TensorIndex open_dirs(const std::vector<std::string>& dirs) {
  return TensorIndex::open(dirs, [](const std::string& path) { return open_source(path); });
}

std::string message_of_dirs(const std::vector<std::string>& dirs) {
  try {
    open_dirs(dirs);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

TEST(TensorIndex, TakesEachShardFromEveryFolderThatHasIt) {
  for (const bool with_index : {false, true}) {
    const TempDir first;
    const TempDir second;
    write_checkpoint(first.path(), two_shards(), with_index);
    write_checkpoint(second.path(), two_shards(), false);
    std::filesystem::remove(first.path("a.safetensors"));
    for (const auto& dirs :
         {std::vector{first.path(), second.path()}, std::vector{second.path(), first.path()}}) {
      const TensorIndex index = open_dirs(dirs);
      ASSERT_EQ(index.source_count(), 2U);
      EXPECT_EQ(index.source(0).name(), "a.safetensors");
      EXPECT_EQ(index.source(0).replica_count(), 1U);
      EXPECT_EQ(index.source(1).name(), "b.safetensors");
      EXPECT_EQ(index.source(1).replica_count(), 2U);
      EXPECT_EQ(index.tensors().size(), 3U);
      EXPECT_EQ(index.file_bytes(), open_dirs({second.path()}).file_bytes());
    }
  }
}

TEST(TensorIndex, RefusesCopiesThatDiffer) {
  const TempDir first;
  const TempDir second;
  write_checkpoint(first.path(), two_shards());
  write_checkpoint(second.path(), two_shards());
  const std::uint64_t bytes = shard_bytes(two_shards()[1]).size();
  std::filesystem::resize_file(second.path("b.safetensors"), bytes - 1);
  EXPECT_EQ(message_of_dirs({first.path(), second.path()}),
            second.path("b.safetensors") + ": has " + std::to_string(bytes - 1) + " bytes, but " +
                first.path("b.safetensors") + " has " + std::to_string(bytes) +
                " (named by model.safetensors.index.json)");
}

TEST(TensorIndex, NamesTheFoldersThatLackAShard) {
  const TempDir first;
  const TempDir second;
  write_checkpoint(first.path(), two_shards());
  std::filesystem::remove(first.path("b.safetensors"));
  EXPECT_EQ(message_of_dirs({first.path(), second.path()}),
            "b.safetensors: is in none of the folders " + first.path() + ", " + second.path() +
                " (named by model.safetensors.index.json)");
  const TempDir third;
  EXPECT_EQ(message_of_dirs({second.path(), third.path()}),
            second.path() + ", " + third.path() +
                ": has neither model.safetensors.index.json nor a *.safetensors file");
}

TEST(TensorIndex, RefusesADamagedShard) {
  const TempDir dir;
  write_checkpoint(dir.path(), two_shards());
  std::filesystem::resize_file(dir.path() + "/b.safetensors",
                               shard_bytes(two_shards()[1]).size() - 1);
  const std::string message = message_of(dir.path());
  EXPECT_EQ(message.rfind("b.safetensors: tensor z ends at ", 0), 0U) << message;
}

TEST(TensorIndex, RefusesATensorThatIsInTwoShards) {
  const TempDir dir;
  std::vector<BuiltShard> shards = two_shards();
  shards[1].tensors.push_back(shards[0].tensors[0]);
  write_checkpoint(dir.path(), shards, false);
  EXPECT_EQ(message_of(dir.path()), "b.safetensors: tensor x is in a.safetensors too");

  const TempDir experts;
  shards = expert_checkpoint({.layers = 3, .experts = 2});
  shards[2].tensors.push_back(shards[1].tensors.back());
  write_checkpoint(experts.path(), shards, false);
  EXPECT_EQ(message_of(experts.path()),
            "model-3.safetensors: tensor layers.1.block_sparse_moe.experts.1.w3.weight_scale is in "
            "model-2.safetensors too");
}

TEST(TensorIndex, RefusesAnIndexThatDoesNotMatch) {
  const TempDir dir;
  write_checkpoint(dir.path(), two_shards());
  const std::string index_file = dir.path() + "/model.safetensors.index.json";
  const std::pair<const char*, const char*> cases[] = {
      {"", "model.safetensors.index.json: not valid JSON at byte"},
      {"{", "model.safetensors.index.json: not valid JSON at byte"},
      {"[]", "weight_map is missing or empty"},
      {R"({"metadata":{"weight_map":{"x":"a.safetensors"}}})", "weight_map is missing or empty"},
      {R"({"weight_map":{}})", "weight_map is missing or empty"},
      {R"({"weight_map":["a.safetensors"]})", "weight_map must map tensor names to file names"},
      {R"({"weight_map":{"x":1}})", "weight_map must map tensor names to file names"},
      {R"({"weight_map":{"x":{"y":"z"}}})", "weight_map must map tensor names to file names"},
      {R"({"weight_map":{"x":"../a.safetensors"}})",
       R"(weight_map names "../a.safetensors", expected a file name without a folder)"},
      {R"({"weight_map":{"x":".."}})", R"(weight_map names "..")"},
      {R"({"weight_map":{"x":""}})", R"(weight_map names "")"},
      {R"({"weight_map":{"x":"/etc/passwd"}})", R"(weight_map names "/etc/passwd")"},
      {R"({"weight_map":{"x":"a\u0000b"}})", R"(weight_map names "a\u0000b")"},
      {R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})",
       "a.safetensors: has 1 tensors, but model.safetensors.index.json lists 2"},
  };
  for (const auto& [text, expected] : cases) {
    write_file(index_file, text);
    const std::string message = message_of(dir.path());
    EXPECT_NE(message.find(expected), std::string::npos) << text << "\n" << message;
  }
  write_file(index_file,
             R"({"other":[{"weight_map":1}],"weight_map":{"x":"a.safetensors"},"n":1})");
  EXPECT_EQ(open_dir(dir.path()).source_count(), 1U);
}

TEST(TensorIndex, KeepsExpertTensorsAsRecords) {
  const TempDir dir;
  const auto tensor = [](const std::string& name) {
    return float_tensor(name, TensorType::bf16, {2, 3});
  };
  const std::string moe = "layers.7.block_sparse_moe.experts.";
  write_checkpoint(
      dir.path(),
      {{"a.safetensors",
        {tensor("language_model.model." + moe + "12.w3.weight_scale"), tensor(moe + "12.w3.weight"),
         tensor("model." + moe + "12.w1.weight_packed"), tensor("model." + moe + "3.w2.weight"),
         // Not the names of routed-expert tensors of a layer:
         tensor("xlayers.7.block_sparse_moe.experts.1.w1.weight"), tensor(moe + "1.w4.weight"),
         tensor(moe + "01.w1.weight"), tensor(moe + "70000.w1.weight"),
         tensor(moe + "1.w1.weights"), tensor(moe + "1.w1"),
         tensor("layers.x7.block_sparse_moe.experts.1.w1.weight"),
         tensor("layers.70000.block_sparse_moe.experts.1.w1.weight"), tensor(moe + ".w1.weight"),
         tensor("7.block_sparse_moe.experts.1.w1.weight")}}});
  const TensorIndex index = open_dir(dir.path());
  EXPECT_EQ(index.tensors().size(), 10U);
  const std::vector<ExpertTensor>& experts = index.expert_tensors();
  ASSERT_EQ(experts.size(), 4U);
  EXPECT_EQ(expert_tensor_name(experts[0]), moe + "3.w2.weight");
  EXPECT_EQ(expert_tensor_name(experts[1]), moe + "12.w1.weight_packed");
  EXPECT_EQ(expert_tensor_name(experts[2]), moe + "12.w3.weight");
  EXPECT_EQ(expert_tensor_name(experts[3]), moe + "12.w3.weight_scale");
  EXPECT_EQ(experts[0].rows, 2);
  EXPECT_EQ(experts[0].cols, 3);
  EXPECT_EQ(experts[0].type, TensorType::bf16);
}

TEST(TensorIndex, RefusesAnExpertTensorThatIsNoMatrix) {
  const TempDir dir;
  const std::string name = "layers.7.block_sparse_moe.experts.1.w1.weight";
  write_checkpoint(dir.path(), {{"a.safetensors", {float_tensor(name, TensorType::f32, {6})}}});
  EXPECT_EQ(message_of(dir.path()),
            "a.safetensors: tensor " + name + " is F32 [6], expected two dimensions below 2^31");
}

TEST(TensorIndex, OpensTheOracles) {
  for (const char* name : {"k3-a", "k3-b", "kimi-linear-a"}) {
    const TensorIndex index = open_dir(std::string(PENSTOCK_GOLDEN "/oracle/") + name);
    EXPECT_FALSE(index.expert_tensors().empty()) << name;
  }
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "tests/model/model_test_support.h"

namespace penstock::testing {
namespace {

using nlohmann::json;

TEST(ModelConfig, ReadsThePublishedK3) {
  const ModelConfig config =
      parse_model_config(read_file(published_dir("kimi-k3") + "/config.json"),
                         R"({"max_length": 1048576, "eos_token_id": 163586})", "config.json");
  EXPECT_EQ(config.architecture, "kimi-k3");
  EXPECT_EQ(config.prefix, "language_model.");
  EXPECT_EQ(config.layers, 93);
  EXPECT_EQ(config.hidden, 7168);
  EXPECT_EQ(config.vocab, 163840);
  EXPECT_EQ(config.dense_intermediate, 33792);
  EXPECT_EQ(config.max_context, 1048576);
  EXPECT_EQ(config.activation, Activation::situ);
  EXPECT_EQ(config.situ_beta, 4.0F);
  EXPECT_EQ(config.situ_linear_beta, 25.0F);
  EXPECT_EQ(config.attn_res_block, 12);
  EXPECT_EQ(config.attn_res_blocks(), 8);
  EXPECT_EQ(config.kda_layers(), 69);
  EXPECT_EQ(config.mla_layers(), 24);
  EXPECT_EQ(config.moe_layers(), 92);
  EXPECT_FALSE(config.is_moe[0]);
  EXPECT_FALSE(config.is_kda[3]);
  EXPECT_FALSE(config.is_kda[91]);
  EXPECT_FALSE(config.is_kda[92]);
  EXPECT_EQ(config.kda.width(), 12288);
  EXPECT_EQ(config.kda.gate_lower_bound, -5.0F);
  EXPECT_TRUE(config.kda.full_rank_gate);
  EXPECT_EQ(config.mla.q_lora_rank, 1536);
  EXPECT_TRUE(config.mla.output_gate);
  EXPECT_EQ(config.mla.cache_width(), 576);
  EXPECT_EQ(config.moe.experts, 896);
  EXPECT_EQ(config.moe.top_k, 16);
  EXPECT_EQ(config.moe.shared_intermediate, 6144);
  EXPECT_EQ(config.expert_input(), 3584);
  EXPECT_TRUE(config.moe.latent_norm);
  EXPECT_EQ(config.stop_ids, std::vector<Token>{163586});
  ASSERT_TRUE(config.vision);
  EXPECT_EQ(config.vision->layers, 27);
  EXPECT_EQ(config.vision->attention_width, 1536);
  EXPECT_EQ(config.vision->merged_patches, 4);
}

TEST(ModelConfig, ReadsThePublishedKimiLinear) {
  const ModelConfig config = parse_model_config(
      read_file(published_dir("kimi-linear") + "/config.json"), "", "config.json");
  EXPECT_EQ(config.architecture, "kimi-linear");
  EXPECT_EQ(config.prefix, "");
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_EQ(config.attn_res_blocks(), 0);
  EXPECT_EQ(config.kda_layers(), 20);
  EXPECT_EQ(config.max_context, 1048576);
  EXPECT_FALSE(config.kda.full_rank_gate);
  EXPECT_FALSE(config.kda.gate_lower_bound.has_value());
  EXPECT_EQ(config.mla.q_lora_rank, 0);
  EXPECT_FALSE(config.mla.output_gate);
  EXPECT_EQ(config.expert_input(), 2304);
  EXPECT_FALSE(config.moe.latent_norm);
  EXPECT_FLOAT_EQ(config.moe.routed_scaling, 2.446F);
  EXPECT_EQ(config.stop_ids, std::vector<Token>{163586});
}

TEST(ModelConfig, TakesStopIdsFromBothFiles) {
  const ModelConfig config =
      parse_model_config(read_file(published_dir("kimi-linear") + "/config.json"),
                         R"({"eos_token_id": [163585, 163586]})", "config.json");
  EXPECT_EQ(config.stop_ids, (std::vector<Token>{163586, 163585}));
}

struct BadConfig {
  const char* name;
  std::function<void(json&)> change;
  const char* message;  // part of it
};

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedByName) {
  json config = read_json(published_dir("kimi-linear") + "/config.json");
  GetParam().change(config);
  try {
    parse_model_config(config.dump(), "", "config.json");
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    const std::string message = error.what();
    EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("config.json")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

const BadConfig kBadConfigs[] = {
    {"architecture", [](json& c) { c["model_type"] = "llama"; }, "model_type is \"llama\""},
    {"no_architecture", [](json& c) { c.erase("model_type"); }, "model_type is missing"},
    {"no_hidden", [](json& c) { c.erase("hidden_size"); }, "hidden_size is missing"},
    {"huge_hidden", [](json& c) { c["hidden_size"] = 99999999; }, "hidden_size is 99999999"},
    {"zero_layers", [](json& c) { c["num_hidden_layers"] = 0; }, "num_hidden_layers is 0"},
    {"negative_vocab", [](json& c) { c["vocab_size"] = -5; }, "vocab_size is -5"},
    {"text_hidden", [](json& c) { c["hidden_size"] = "big"; }, "hidden_size"},
    {"rotary", [](json& c) { c["mla_use_nope"] = false; }, "mla_use_nope"},
    {"tied", [](json& c) { c["tie_word_embeddings"] = true; }, "tie_word_embeddings"},
    {"router", [](json& c) { c["moe_router_activation_func"] = "softmax"; },
     "moe_router_activation_func is \"softmax\""},
    {"activation", [](json& c) { c["hidden_act"] = "gelu"; }, "hidden_act is \"gelu\""},
    {"groups", [](json& c) { c["num_expert_group"] = 4; }, "num_expert_group is 4"},
    {"kv_heads", [](json& c) { c["num_key_value_heads"] = 8; }, "num_key_value_heads is 8"},
    {"mtp", [](json& c) { c["num_nextn_predict_layers"] = 1; }, "num_nextn_predict_layers is 1"},
    {"top_k", [](json& c) { c["num_experts_per_token"] = 257; }, "num_experts_per_token is 257"},
    {"no_linear", [](json& c) { c.erase("linear_attn_config"); }, "linear_attn_config is missing"},
    {"layer_number", [](json& c) { c["linear_attn_config"]["kda_layers"].push_back(28); },
     "kda_layers holds 28"},
    {"disagreement", [](json& c) { c["linear_attn_config"]["full_attn_layers"].push_back(1); },
     "disagree about layer 1"},
    {"quantization",
     [](json& c) {
       c["quantization_config"] = {{"format", "int-quantized"}};
     },
     "format is \"int-quantized\""},
    {"stop_id", [](json& c) { c["eos_token_id"] = 163840; }, "eos_token_id holds 163840"},
    {"vision", [](json& c) { c["vision_config"] = json::object(); }, "merge_kernel_size"},
    {"merge",
     [](json& c) {
       c["vision_config"] = {{"merge_kernel_size", {2, 17}}};
     },
     "merge_kernel_size"},
    {"vision_layers",
     [](json& c) {
       c["vision_config"] = {{"merge_kernel_size", {2, 2}}};
     },
     "vt_num_hidden_layers is missing"},
    {"shared",
     [](json& c) {
       c["num_shared_experts"] = 1024;
       c["moe_intermediate_size"] = 1048576;
     },
     "num_shared_experts"},
};

INSTANTIATE_TEST_SUITE_P(All, BadConfigTest, ::testing::ValuesIn(kBadConfigs),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ModelConfig, RefusesAFolderWithoutConfig) {
  try {
    read_model_config("/nonexistent");
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/config.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace penstock::testing

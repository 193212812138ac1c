// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_config.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/error.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t kVocab = 163840;
constexpr std::int32_t kLinearLayers = 27;
constexpr std::int32_t kLinearExperts = 256;
constexpr std::int32_t kK3Experts = 896;

std::int32_t checked(const char* name, std::int32_t value, std::int32_t least,
                     std::int32_t published) {
  if (value == 0) return published;
  if (value >= least && value <= published) return value;
  throw Error(ErrorCode::usage, std::string(name) + " is " + std::to_string(value) + ", expected " +
                                    std::to_string(least) + " to " + std::to_string(published));
}

// Fields that both models have, with the same values or the same rule.
ordered_json common_fields(const SyntheticSize& size, std::int32_t heads) {
  const std::int32_t vocab = checked("--vocab", size.vocab, 1024, kVocab);
  ordered_json text;
  text["model_type"] = "kimi_linear";
  text["dtype"] = "bfloat16";
  text["vocab_size"] = vocab;
  text["rms_norm_eps"] = 1e-5;
  text["first_k_dense_replace"] = 1;
  text["moe_layer_freq"] = 1;
  text["moe_router_activation_func"] = "sigmoid";
  text["moe_renormalize"] = true;
  text["num_expert_group"] = 1;
  text["topk_group"] = 1;
  text["num_attention_heads"] = heads;
  text["num_key_value_heads"] = heads;
  text["kv_lora_rank"] = 512;
  text["qk_nope_head_dim"] = 128;
  text["qk_rope_head_dim"] = 64;
  text["v_head_dim"] = 128;
  text["mla_use_nope"] = true;
  text["linear_attn_config"] = {
      {"num_heads", heads}, {"head_dim", 128}, {"short_conv_kernel_size", 4}};
  text["tie_word_embeddings"] = false;
  text["bos_token_id"] = vocab - 256;
  text["eos_token_id"] = vocab - 254;
  text["pad_token_id"] = vocab - 1;
  text["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                 {"format", "mxfp4-pack-quantized"}};
  return text;
}

// `is_kda` by layer, from 0; the lists count from 1.
void set_layers(const std::vector<bool>& is_kda, ordered_json* text) {
  ordered_json kda = ordered_json::array();
  ordered_json full = ordered_json::array();
  for (std::size_t i = 0; i < is_kda.size(); ++i) (is_kda[i] ? kda : full).push_back(i + 1);
  (*text)["num_hidden_layers"] = is_kda.size();
  (*text)["linear_attn_config"]["kda_layers"] = kda;
  (*text)["linear_attn_config"]["full_attn_layers"] = full;
}

ordered_json kimi_linear(const SyntheticSize& size) {
  ordered_json text = common_fields(size, 32 / size.narrow);
  text["architectures"] = {"KimiLinearForCausalLM"};
  text["hidden_size"] = 2304 / size.narrow;
  text["hidden_act"] = "silu";
  text["intermediate_size"] = 9216 / size.narrow;
  text["num_experts"] = checked("--experts", size.experts, 8, kLinearExperts);
  text["num_experts_per_token"] = 8;
  text["moe_intermediate_size"] = 1024 / size.narrow;
  text["num_shared_experts"] = 1;
  text["routed_scaling_factor"] = 2.446;
  text["q_lora_rank"] = nullptr;
  text["model_max_length"] = 1048576;
  std::vector<bool> is_kda;
  for (std::int32_t layer = 0; layer < checked("--layers", size.layers, 4, kLinearLayers);
       ++layer) {
    is_kda.push_back(layer % 4 != 3 && layer != kLinearLayers - 1);
  }
  set_layers(is_kda, &text);
  return text;
}

ordered_json k3_slice(const SyntheticSize& size) {
  if (size.layers != 0) throw Error(ErrorCode::usage, "--layers is for kimi-linear");
  ordered_json text = common_fields(size, 96 / size.narrow);
  text["hidden_size"] = 7168 / size.narrow;
  text["hidden_act"] = "situ";
  text["activation_situ_beta"] = 4.0;
  text["activation_situ_linear_beta"] = 25.0;
  text["intermediate_size"] = 33792 / size.narrow;
  text["num_experts"] = checked("--experts", size.experts, 16, kK3Experts);
  text["num_experts_per_token"] = 16;
  text["moe_intermediate_size"] = 3072 / size.narrow;
  text["num_shared_experts"] = 2;
  text["routed_expert_hidden_size"] = 3584 / size.narrow;
  text["latent_moe_use_norm"] = true;
  text["routed_scaling_factor"] = 1.0;
  text["q_lora_rank"] = 1536 / size.narrow;
  text["mla_use_output_gate"] = true;
  text["linear_attn_config"]["use_full_rank_gate"] = true;
  text["linear_attn_config"]["gate_lower_bound"] = -5.0;
  text["attn_res_block_size"] = 12;
  text["max_position_embeddings"] = 1048576;
  set_layers({true, true, false}, &text);
  ordered_json config;
  config["model_type"] = "kimi_k3";
  config["architectures"] = {"KimiK3ForConditionalGeneration"};
  for (const char* field : {"dtype", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    config[field] = text[field];
  }
  config["text_config"] = text;
  return config;
}

}  // namespace

std::string synthetic_config(SyntheticModel model, const SyntheticSize& size) {
  if (size.narrow != 1 && size.narrow != 2 && size.narrow != 4 && size.narrow != 8) {
    throw Error(ErrorCode::usage,
                "--narrow is " + std::to_string(size.narrow) + ", expected 1, 2, 4 or 8");
  }
  return (model == SyntheticModel::kimi_linear ? kimi_linear(size) : k3_slice(size)).dump(2) + "\n";
}

}  // namespace penstock

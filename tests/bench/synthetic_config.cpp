// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/error.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

ordered_json published_config(const char* model) {
  const std::string path =
      PENSTOCK_SOURCE_DIR "/config/models/" + std::string(model) + "/config.json";
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::io, path + ": cannot be read");
  return ordered_json::parse(file);
}

// What `name` asks for in place of the published number; 0 asks for that.
std::int32_t checked(const char* name, std::int32_t value, std::int32_t least,
                     std::int32_t published) {
  if (value == 0) return published;
  if (value >= least && value <= published) return value;
  throw Error(ErrorCode::usage, std::string(name) + " is " + std::to_string(value) + ", expected " +
                                    std::to_string(least) + " to " + std::to_string(published));
}

std::int32_t number(const ordered_json& text, const char* field) {
  return text.at(field).get<std::int32_t>();
}

// By layer, from 0; the list counts from 1.
std::vector<bool> kda_layers(const ordered_json& text, std::int32_t layers) {
  std::vector<bool> is_kda(static_cast<std::size_t>(number(text, "num_hidden_layers")));
  for (const std::size_t layer : text.at("linear_attn_config").at("kda_layers")) {
    is_kda[layer - 1] = true;
  }
  is_kda.resize(static_cast<std::size_t>(layers));
  return is_kda;
}

void set_layers(const std::vector<bool>& is_kda, ordered_json* text) {
  ordered_json kda = ordered_json::array();
  ordered_json full = ordered_json::array();
  for (std::size_t i = 0; i < is_kda.size(); ++i) (is_kda[i] ? kda : full).push_back(i + 1);
  (*text)["num_hidden_layers"] = is_kda.size();
  (*text)["linear_attn_config"]["kda_layers"] = kda;
  (*text)["linear_attn_config"]["full_attn_layers"] = full;
}

void set_widths(const SyntheticSize& size, ordered_json* text) {
  ordered_json& heads = text->at("linear_attn_config").at("num_heads");
  heads = heads.get<std::int32_t>() / size.narrow;
  for (const char* field :
       {"hidden_size", "intermediate_size", "moe_intermediate_size", "routed_expert_hidden_size",
        "q_lora_rank", "num_attention_heads", "num_key_value_heads"}) {
    const auto width = text->find(field);
    if (width == text->end() || width->is_null()) continue;
    *width = width->get<std::int32_t>() / size.narrow;
  }
  const std::int32_t experts = number(*text, "num_experts");
  const std::int32_t top_k = number(*text, "num_experts_per_token");
  (*text)["num_experts"] = checked("--experts", size.experts, top_k, experts);
}

// The special tokens stay at the end of the vocabulary.
void set_vocab(std::int32_t vocab, ordered_json* fields) {
  (*fields)["bos_token_id"] = vocab - 256;
  (*fields)["eos_token_id"] = vocab - 254;
  (*fields)["pad_token_id"] = vocab - 1;
}

ordered_json kimi_linear(const SyntheticSize& size) {
  ordered_json text = published_config("kimi-linear");
  const std::int32_t layers =
      checked("--layers", size.layers, 4, number(text, "num_hidden_layers"));
  set_layers(kda_layers(text, layers), &text);
  text["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                 {"format", "mxfp4-pack-quantized"}};
  return text;
}

// Layers of Kimi K3: all that are asked for, the last one with full attention as published, or
// those of the slice.
ordered_json kimi_k3(SyntheticModel model, const SyntheticSize& size) {
  ordered_json config = published_config("kimi-k3");
  ordered_json& text = config.at("text_config");
  if (model == SyntheticModel::k3_slice) {
    if (size.layers != 0) throw Error(ErrorCode::usage, "--layers is not for k3-slice");
    set_layers({true, true, false}, &text);
    config.erase("vision_config");
    return config;
  }
  const std::int32_t layers =
      checked("--layers", size.layers, 2, number(text, "num_hidden_layers"));
  std::vector<bool> is_kda = kda_layers(text, layers);
  is_kda.back() = false;
  set_layers(is_kda, &text);
  return config;
}

}  // namespace

std::string synthetic_config(SyntheticModel model, const SyntheticSize& size) {
  if (size.narrow != 1 && size.narrow != 2 && size.narrow != 4 && size.narrow != 8) {
    throw Error(ErrorCode::usage,
                "--narrow is " + std::to_string(size.narrow) + ", expected 1, 2, 4 or 8");
  }
  const bool linear = model == SyntheticModel::kimi_linear;
  ordered_json config = linear ? kimi_linear(size) : kimi_k3(model, size);
  ordered_json& text = linear ? config : config.at("text_config");
  set_widths(size, &text);
  const std::int32_t vocab = checked("--vocab", size.vocab, 1024, number(text, "vocab_size"));
  text["vocab_size"] = vocab;
  set_vocab(vocab, &text);
  set_vocab(vocab, &config);
  return config.dump(2) + "\n";
}

}  // namespace penstock

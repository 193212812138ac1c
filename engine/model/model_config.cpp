// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model_config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace penstock {
namespace {

using nlohmann::json;

// Bounds: an order of magnitude above the published models, so that no product of two or three of
// them leaves 64 bits and no absurd file asks for absurd memory.
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxVocab = 1 << 22;
constexpr std::int64_t kMaxHeads = 4096;
constexpr std::int64_t kMaxHeadDim = 4096;
constexpr std::int64_t kMaxExperts = 65535;
constexpr std::int64_t kMaxContext = 1LL << 26;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

std::int32_t dimension(const JsonFields& fields, const char* name, std::int64_t max) {
  return static_cast<std::int32_t>(fields.get_int(name, 1, max));
}

void require_bool(const JsonFields& fields, const char* name, bool expected, bool absent_means) {
  if (fields.find_bool(name).value_or(absent_means) != expected) {
    fields.fail(name,
                expected ? "is false: only true is supported" : "is true: only false is supported");
  }
}

void require_int(const JsonFields& fields, const char* name, std::int64_t expected) {
  const auto value = fields.find_int(name, 0, kMaxContext).value_or(expected);
  if (value != expected) {
    fields.fail(name, "is " + std::to_string(value) + ": only " + std::to_string(expected) +
                          " is supported");
  }
}

std::string find_architecture(const JsonFields& fields) {
  const std::string type = fields.get_string("model_type");
  if (type == "kimi_k3") return "kimi-k3";
  if (type == "kimi_linear") return "kimi-linear";
  fields.fail("model_type", "is \"" + type + "\", expected kimi_k3 or kimi_linear");
}

void check_switches(const JsonFields& fields) {
  require_bool(fields, "mla_use_nope", true, false);
  require_bool(fields, "tie_word_embeddings", false, false);
  require_int(fields, "num_expert_group", 1);
  require_int(fields, "topk_group", 1);
  require_int(fields, "num_nextn_predict_layers", 0);
  const std::string router = fields.get_string("moe_router_activation_func");
  if (router != "sigmoid") {
    fields.fail("moe_router_activation_func", "is \"" + router + "\": only sigmoid is supported");
  }
  const json* quantization = fields.find("quantization_config");
  if (quantization == nullptr) return;
  const JsonFields quant(*quantization, fields.what() + ": quantization_config");
  const std::string format = quant.get_string("format");
  if (format != "mxfp4-pack-quantized") {
    quant.fail("format", "is \"" + format + "\": only mxfp4-pack-quantized is supported");
  }
}

void read_activation(const JsonFields& fields, ModelConfig* config) {
  const std::string name = fields.get_string("hidden_act");
  if (name == "silu") {
    config->activation = Activation::silu;
    return;
  }
  if (name != "situ") fields.fail("hidden_act", "is \"" + name + "\", expected silu or situ");
  config->activation = Activation::situ;
  const double beta = fields.find_number("activation_situ_beta", 0, 1e6).value_or(0);
  config->situ_beta = beta == 0 ? 1.0F : static_cast<float>(beta);
  config->situ_linear_beta =
      static_cast<float>(fields.find_number("activation_situ_linear_beta", 0, 1e6).value_or(0));
}

// A 1-based list of layers as flags.
std::vector<bool> layer_list(const JsonFields& fields, const char* name, std::int32_t layers) {
  const json* list = fields.find(name);
  if (list == nullptr) fields.fail(name, "is missing");
  if (!list->is_array()) fields.fail(name, "is not a list");
  std::vector<bool> flags(static_cast<std::size_t>(layers), false);
  for (const json& item : *list) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 1 ||
        item.get<std::int64_t>() > layers) {
      fields.fail(name,
                  "holds " + item.dump() + ", expected layers 1 to " + std::to_string(layers));
    }
    flags[static_cast<std::size_t>(item.get<std::int64_t>() - 1)] = true;
  }
  return flags;
}

void read_kda(const JsonFields& fields, ModelConfig* config) {
  const json* linear = fields.find("linear_attn_config");
  if (linear == nullptr) fields.fail("linear_attn_config", "is missing");
  const JsonFields kda(*linear, fields.what() + ": linear_attn_config");
  config->kda.heads = dimension(kda, "num_heads", kMaxHeads);
  config->kda.head_dim = dimension(kda, "head_dim", kMaxHeadDim);
  config->kda.conv_taps = static_cast<std::int32_t>(kda.get_int("short_conv_kernel_size", 2, 16));
  config->kda.full_rank_gate = kda.find_bool("use_full_rank_gate").value_or(false);
  const auto bound = kda.find_number("gate_lower_bound", -1e6, 0);
  if (bound) config->kda.gate_lower_bound = static_cast<float>(*bound);
  config->is_kda = layer_list(kda, "kda_layers", config->layers);
  if (!kda.has("full_attn_layers")) return;
  std::vector<bool> full = layer_list(kda, "full_attn_layers", config->layers);
  full.flip();
  const auto [kda_at, full_at] =
      std::mismatch(config->is_kda.begin(), config->is_kda.end(), full.begin());
  if (full_at != full.end()) {
    kda.fail("full_attn_layers",
             "and kda_layers disagree about layer " + std::to_string(full_at - full.begin() + 1));
  }
}

void read_mla(const JsonFields& fields, ModelConfig* config) {
  MlaConfig& mla = config->mla;
  mla.heads = dimension(fields, "num_attention_heads", kMaxHeads);
  require_int(fields, "num_key_value_heads", mla.heads);
  mla.q_lora_rank =
      static_cast<std::int32_t>(fields.find_int("q_lora_rank", 1, kMaxWidth).value_or(0));
  mla.kv_lora_rank = dimension(fields, "kv_lora_rank", kMaxWidth);
  mla.qk_nope_head_dim = dimension(fields, "qk_nope_head_dim", kMaxHeadDim);
  mla.qk_rope_head_dim = dimension(fields, "qk_rope_head_dim", kMaxHeadDim);
  mla.v_head_dim = dimension(fields, "v_head_dim", kMaxHeadDim);
  mla.output_gate = fields.find_bool("mla_use_output_gate").value_or(false);
}

void read_moe(const JsonFields& fields, ModelConfig* config) {
  MoeConfig& moe = config->moe;
  moe.experts = dimension(fields, "num_experts", kMaxExperts);
  moe.top_k = static_cast<std::int32_t>(fields.get_int("num_experts_per_token", 1, moe.experts));
  moe.intermediate = dimension(fields, "moe_intermediate_size", kMaxWidth);
  const std::int64_t shared = fields.find_int("num_shared_experts", 0, 1024).value_or(0);
  if (shared * moe.intermediate > kMaxWidth) {
    fields.fail("num_shared_experts", "times moe_intermediate_size is " +
                                          std::to_string(shared * moe.intermediate) +
                                          ", expected at most " + std::to_string(kMaxWidth));
  }
  moe.shared_intermediate = static_cast<std::int32_t>(shared) * moe.intermediate;
  moe.latent = static_cast<std::int32_t>(
      fields.find_int("routed_expert_hidden_size", 1, kMaxWidth).value_or(0));
  moe.latent_norm = moe.latent > 0 && fields.find_bool("latent_moe_use_norm").value_or(false);
  moe.renormalize = fields.find_bool("moe_renormalize").value_or(true);
  moe.routed_scaling =
      static_cast<float>(fields.find_number("routed_scaling_factor", 0, 1e6).value_or(1));
  const std::int64_t first = fields.find_int("first_k_dense_replace", 0, kMaxLayers).value_or(0);
  const std::int64_t every = fields.find_int("moe_layer_freq", 1, kMaxLayers).value_or(1);
  config->is_moe.resize(static_cast<std::size_t>(config->layers));
  for (std::int32_t layer = 0; layer < config->layers; ++layer) {
    config->is_moe[static_cast<std::size_t>(layer)] = layer >= first && layer % every == 0;
  }
}

VisionConfig read_vision(const JsonFields& fields) {
  const json* merge = fields.find("merge_kernel_size");
  const auto is_side = [](const json& side) {
    return side.is_number_integer() && side >= 1 && side <= 16;
  };
  if (merge == nullptr || !merge->is_array() || merge->size() != 2 ||
      !std::all_of(merge->begin(), merge->end(), is_side)) {
    fields.fail("merge_kernel_size", "is not a list of two numbers from 1 to 16");
  }
  return {.layers = dimension(fields, "vt_num_hidden_layers", kMaxLayers),
          .hidden = dimension(fields, "vt_hidden_size", kMaxWidth),
          .intermediate = dimension(fields, "vt_intermediate_size", kMaxWidth),
          .attention_width = dimension(fields, "qkv_hidden_size", kMaxWidth),
          .patch = dimension(fields, "patch_size", 1024),
          .grid_height = dimension(fields, "init_pos_emb_height", 4096),
          .grid_width = dimension(fields, "init_pos_emb_width", 4096),
          .merged_patches = (*merge)[0].get<std::int32_t>() * (*merge)[1].get<std::int32_t>()};
}

void add_stop_ids(const JsonFields& fields, const char* name, std::int32_t vocab,
                  std::vector<Token>* ids) {
  const json* value = fields.find(name);
  if (value == nullptr) return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& item : list) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 0 ||
        item.get<std::int64_t>() >= vocab) {
      fields.fail(name, "holds " + item.dump() + ", expected ids below " + std::to_string(vocab));
    }
    const Token id = item.get<Token>();
    if (std::find(ids->begin(), ids->end(), id) == ids->end()) ids->push_back(id);
  }
}

ModelConfig read_text_config(const JsonFields& fields, std::string architecture) {
  ModelConfig config{};
  config.architecture = std::move(architecture);
  config.prefix = config.architecture == "kimi-k3" ? "language_model." : "";
  config.layers = dimension(fields, "num_hidden_layers", kMaxLayers);
  config.hidden = dimension(fields, "hidden_size", kMaxWidth);
  config.vocab = dimension(fields, "vocab_size", kMaxVocab);
  config.dense_intermediate = dimension(fields, "intermediate_size", kMaxWidth);
  const char* context =
      fields.has("max_position_embeddings") ? "max_position_embeddings" : "model_max_length";
  config.max_context = fields.get_int(context, 2, kMaxContext);
  config.rms_norm_eps = static_cast<float>(fields.get_number("rms_norm_eps", 0, 1));
  config.attn_res_block =
      static_cast<std::int32_t>(fields.find_int("attn_res_block_size", 1, kMaxLayers).value_or(0));
  check_switches(fields);
  read_activation(fields, &config);
  read_kda(fields, &config);
  read_mla(fields, &config);
  read_moe(fields, &config);
  add_stop_ids(fields, "eos_token_id", config.vocab, &config.stop_ids);
  return config;
}

std::string read_text_file(const std::string& path, bool optional) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (optional) return {};
    throw Error(ErrorCode::model, path + ": cannot be opened: is this a model folder?");
  }
  std::string text;
  char piece[65536];
  while (file.read(piece, sizeof piece) || file.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxConfigBytes) {
      throw Error(ErrorCode::model,
                  path + ": longer than " + std::to_string(kMaxConfigBytes) + " bytes");
    }
  }
  if (file.bad()) throw Error(ErrorCode::io, path + ": reading failed");
  return text;
}

}  // namespace

std::int32_t ModelConfig::kda_layers() const {
  return static_cast<std::int32_t>(std::count(is_kda.begin(), is_kda.end(), true));
}

std::size_t ModelConfig::attention_index(std::int32_t layer) const {
  const auto end = is_kda.begin() + layer;
  return static_cast<std::size_t>(std::count(is_kda.begin(), end, *end));
}

std::int32_t ModelConfig::moe_layers() const {
  return static_cast<std::int32_t>(std::count(is_moe.begin(), is_moe.end(), true));
}

ModelConfig parse_model_config(std::string_view config, std::string_view generation_config,
                               const std::string& what) {
  const json document = parse_json(config, what);
  const JsonFields outer(document, what);
  const std::string architecture = find_architecture(outer);
  const json* text = &document;
  std::string text_what = what;
  if (architecture == "kimi-k3") {
    text = outer.find("text_config");
    if (text == nullptr) outer.fail("text_config", "is missing");
    text_what += ": text_config";
  }
  ModelConfig result = read_text_config(JsonFields(*text, text_what), architecture);
  add_stop_ids(outer, "eos_token_id", result.vocab, &result.stop_ids);
  if (const json* vision = outer.find("vision_config")) {
    result.vision = read_vision(JsonFields(*vision, what + ": vision_config"));
  }
  if (!generation_config.empty()) {
    const std::string generation = "generation_config.json";
    const json settings = parse_json(generation_config, generation);
    add_stop_ids(JsonFields(settings, generation), "eos_token_id", result.vocab, &result.stop_ids);
  }
  return result;
}

ModelConfig read_model_config(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  return parse_model_config(read_text_file(path, false),
                            read_text_file(model_dir + "/generation_config.json", true), path);
}

}  // namespace penstock

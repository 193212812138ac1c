// SPDX-License-Identifier: Apache-2.0
#include "tests/text/chat_fixtures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "engine/text/utf8.h"

namespace penstock {
namespace {

std::string text_at(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr ? std::string() : value->text;
}

Role role_of(std::string_view name) {
  if (name == "system") return Role::system;
  if (name == "user") return Role::user;
  if (name == "assistant") return Role::assistant;
  return name == "tool" ? Role::tool : Role::other;
}

std::vector<ContentPart> content_of(const JsonValue* content) {
  std::vector<ContentPart> parts;
  if (content == nullptr || content->is(JsonKind::null)) return parts;
  if (content->is(JsonKind::string)) return {{ContentPart::Kind::text, content->text}};
  for (const JsonValue& part : content->items) {
    if (text_at(part, "type") == "text") {
      parts.push_back({ContentPart::Kind::text, text_at(part, "text")});
      continue;
    }
    ContentPart image{ContentPart::Kind::image, {}};
    if (part.find("width") != nullptr) {
      image.width = std::stoi(text_at(part, "width"));
      image.height = std::stoi(text_at(part, "height"));
    }
    parts.push_back(image);
  }
  return parts;
}

ToolCall call_of(const JsonValue& call) {
  const JsonValue& function = *call.find("function");
  const JsonValue* arguments = function.find("arguments");
  ToolCall out{text_at(call, "id"), text_at(function, "name"), {}};
  if (arguments != nullptr) {
    out.arguments =
        arguments->is(JsonKind::string) ? arguments->text : write_json(*arguments, kPythonJson);
  }
  return out;
}

Message message_of(const JsonValue& json) {
  Message message;
  message.role = role_of(text_at(json, "role"));
  message.name = text_at(json, "name");
  message.content = content_of(json.find("content"));
  message.reasoning = text_at(json, "reasoning_content") + text_at(json, "reasoning");
  message.tool_call_id = text_at(json, "tool_call_id");
  message.tool = text_at(json, "tool");
  if (const JsonValue* partial = json.find("partial")) message.partial = partial->boolean;
  if (const JsonValue* tools = json.find("tools")) message.tools = tools->items;
  if (const JsonValue* calls = json.find("tool_calls")) {
    for (const JsonValue& call : calls->items) message.tool_calls.push_back(call_of(call));
  }
  return message;
}

void set_response_format(const JsonValue& format, Conversation* conversation) {
  const std::string type = text_at(format, "type");
  if (type == "json_object") conversation->response_format = ResponseFormat::json_object;
  if (type != "json_schema") return;
  conversation->response_format = ResponseFormat::json_schema;
  const JsonValue& wrapper = *format.find("json_schema");
  const JsonValue* schema = wrapper.find("schema");
  conversation->response_schema = schema == nullptr ? wrapper : *schema;
}

struct DeltaChecker {
  std::set<std::string>* ids;
  std::int32_t* calls;

  static void check_text(const std::string& text) {
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(valid_utf8_prefix(text), text.size());
  }
  void operator()(const ReasoningDelta& delta) const { check_text(delta.text); }
  void operator()(const ContentDelta& delta) const { check_text(delta.text); }
  void operator()(const ToolCallDelta& delta) const {
    EXPECT_EQ(delta.index, (*calls)++);
    EXPECT_FALSE(delta.name.empty());
    EXPECT_TRUE(ids->insert(delta.id).second) << delta.id;
  }
  void operator()(const ToolArgumentsDelta& delta) const {
    check_text(delta.text);
    EXPECT_EQ(delta.index, *calls - 1);
  }
};

constexpr std::string_view kKimiLinearConfig = R"({"added_tokens_decoder": {
  "B0": {"content": "[BOS]"}, "B1": {"content": "[EOS]"}, "B2": {"content": "<|im_end|>"},
  "B3": {"content": "<|im_user|>"}, "B4": {"content": "<|im_assistant|>"},
  "B10": {"content": "<|im_system|>"}, "B11": {"content": "<|tool_calls_section_begin|>"},
  "B12": {"content": "<|tool_calls_section_end|>"}, "B13": {"content": "<|tool_call_begin|>"},
  "B14": {"content": "<|tool_call_argument_begin|>"}, "B15": {"content": "<|tool_call_end|>"},
  "B17": {"content": "<|im_middle|>"}, "B254": {"content": "[UNK]"}, "B255": {"content": "[PAD]"}
}})";

}  // namespace

JsonValue read_fixture(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be opened");
  std::stringstream text;
  text << file.rdbuf();
  std::string problem;
  const std::optional<JsonValue> value = read_json(text.str(), {}, &problem);
  if (!value) throw std::runtime_error(path + ": " + problem);
  return *value;
}

std::optional<std::string> published_k3_dir() {
  const char* shared = std::getenv("PENSTOCK_SHARED");
  const std::string root = shared != nullptr ? shared : PENSTOCK_SOURCE_DIR "/../shared";
  std::string dir = root + "/data/kimi-k3";
  if (!std::filesystem::exists(dir + "/tiktoken.model")) return std::nullopt;
  return dir;
}

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(PENSTOCK_SOURCE_DIR "/config/demo-model");
  return tokenizer;
}

Tokenizer kimi_linear_tokenizer(const std::string& dir) {
  std::ifstream ranks(dir + "/tiktoken.model");
  std::size_t base = 0;
  for (std::string line; std::getline(ranks, line);) ++base;
  std::string config;
  for (std::size_t i = 0; i < kKimiLinearConfig.size(); ++i) {
    if (kKimiLinearConfig[i] != '"' || kKimiLinearConfig[i + 1] != 'B') {
      config += kKimiLinearConfig[i];
      continue;
    }
    std::size_t end = kKimiLinearConfig.find('"', i + 1);
    const std::string offset(kKimiLinearConfig.substr(i + 2, end - i - 2));
    config += '"' + std::to_string(base + std::stoul(offset)) + '"';
    i = end;
  }
  static int folders = 0;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("penstock-kimi-linear-" + std::to_string(::getpid()) + "-" + std::to_string(folders++));
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(dir + "/tiktoken.model", folder / "tiktoken.model");
  std::ofstream(folder / "tokenizer_config.json") << config;
  Tokenizer tokenizer = Tokenizer::load(folder.string());
  std::filesystem::remove_all(folder);
  return tokenizer;
}

const Tokenizer& kimi_linear_demo_tokenizer() {
  static const Tokenizer tokenizer =
      kimi_linear_tokenizer(PENSTOCK_SOURCE_DIR "/config/demo-model");
  return tokenizer;
}

Conversation conversation_of(const JsonValue& request) {
  Conversation conversation;
  for (const JsonValue& message : request.find("messages")->items) {
    conversation.messages.push_back(message_of(message));
  }
  if (const JsonValue* tools = request.find("tools")) conversation.tools = tools->items;
  if (const JsonValue* thinking = request.find("thinking")) {
    conversation.thinking = thinking->boolean;
  }
  const std::string effort = text_at(request, "thinking_effort");
  conversation.effort = std::nullopt;
  if (effort == "low") conversation.effort = ThinkingEffort::low;
  if (effort == "high") conversation.effort = ThinkingEffort::high;
  if (effort == "max") conversation.effort = ThinkingEffort::max;
  const std::string choice = text_at(request, "tool_choice");
  if (choice == "required") conversation.tool_choice = ToolChoice::required;
  if (choice == "none") conversation.tool_choice = ToolChoice::none;
  if (const JsonValue* format = request.find("response_format")) {
    set_response_format(*format, &conversation);
  }
  if (const JsonValue* prompt = request.find("add_generation_prompt")) {
    conversation.generation_prompt = prompt->boolean;
  }
  return conversation;
}

std::vector<Token> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode_with_specials(text);
}

ReadReply read_reply(ReplyParser* parser, const std::vector<Token>& ids, ReplyCut cut) {
  ReadReply read{};
  std::set<std::string> call_ids;
  std::int32_t calls = 0;
  std::vector<Delta> deltas;
  for (std::size_t i = 0; i <= ids.size(); ++i) {
    deltas.clear();
    if (i < ids.size()) {
      parser->feed(ids[i], &deltas);
    } else {
      read.finish = parser->finish(cut, &deltas);
    }
    for (const Delta& delta : deltas) {
      std::visit(DeltaChecker{&call_ids, &calls}, delta);
      append_delta(delta, &read.reply);
    }
  }
  read.reasoning_tokens = parser->reasoning_tokens();
  return read;
}

std::string describe(const ReadReply& read) {
  constexpr const char* kFinish[] = {"stop", "length", "tool_calls"};
  std::string text = "reasoning[" + read.reply.reasoning + "] content[" + read.reply.content + "]";
  for (const ToolCall& call : read.reply.tool_calls) {
    text += " " + call.name + "(" + call.arguments + ")";
  }
  return text + " " + kFinish[static_cast<int>(read.finish)];
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/openai_chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/openai_common.h"
#include "server/openai_messages.h"
#include "server/openai_thinking.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

ToolChoice read_choice_mode(const RequestFields& fields, std::string_view key) {
  const std::string mode = fields.get_string(key);
  if (mode == "auto") return ToolChoice::automatic;
  if (mode == "none") return ToolChoice::none;
  if (mode == "required") return ToolChoice::required;
  fields.fail_value(key, "auto, none, required, or an object that names a function");
}

ToolChoice read_tool_choice(const RequestFields& request) {
  const JsonValue* choice = request.find("tool_choice");
  if (choice == nullptr) return ToolChoice::automatic;
  if (choice->is(JsonKind::string)) return read_choice_mode(request, "tool_choice");
  const RequestFields fields = request.get_object("tool_choice");
  const std::string type = fields.get_string("type");
  if (type == "allowed_tools") {
    const auto allowed = fields.find_object("allowed_tools");
    const RequestFields& mode = allowed ? *allowed : fields;
    return mode.find("mode") == nullptr ? ToolChoice::automatic : read_choice_mode(mode, "mode");
  }
  if (type != "function") fields.fail_value("type", "function or allowed_tools");
  // Forcing the one that is named needs constrained decoding.
  const auto function = fields.find_object("function");
  (function ? *function : fields).get_string("name");
  return ToolChoice::required;
}

void read_response_format(const RequestFields& request, Conversation* conversation) {
  const auto format = request.find_object("response_format");
  if (!format) return;
  const std::string type = format->get_string("type");
  if (type == "text") return;
  if (type == "json_object") {
    conversation->response_format = ResponseFormat::json_object;
    return;
  }
  if (type != "json_schema") format->fail_value("type", "text, json_object or json_schema");
  const RequestFields schema = format->get_object("json_schema");
  schema.get_string("name");
  schema.get_object("schema");
  schema.find_bool("strict");
  conversation->response_format = ResponseFormat::json_schema;
  conversation->response_schema = schema.get("schema");
}

void refuse_audio(const RequestFields& request) {
  const std::vector<JsonValue>* modalities = request.find_list("modalities");
  const bool wanted = modalities != nullptr &&
                      std::any_of(modalities->begin(), modalities->end(), [](const JsonValue& m) {
                        return m.is(JsonKind::string) && m.text != "text";
                      });
  if (wanted || request.find("audio") != nullptr) {
    throw wrong_field(wanted ? "modalities" : "audio", "asks for sound: only text is written",
                      "unsupported_value");
  }
}

bool has_tools(const Conversation& conversation) {
  return !conversation.tools.empty() ||
         std::any_of(conversation.messages.begin(), conversation.messages.end(),
                     [](const Message& message) { return !message.tools.empty(); });
}

ordered_json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

ordered_json message_json(const Reply& reply) {
  ordered_json message = {{"role", "assistant"}, {"content", reply.content}};
  if (reply.content.empty() && !reply.tool_calls.empty()) message["content"] = nullptr;
  if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
  for (const ToolCall& call : reply.tool_calls) message["tool_calls"].push_back(call_json(call));
  return message;
}

// What all objects of one reply begin with.
ordered_json head(const ReplyIdentity& identity, const std::string& id, const char* object) {
  return {{"id", id},
          {"object", object},
          {"created", identity.created_s},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint}};
}

class ChatBodyWriter final : public ResponseWriter {
 public:
  explicit ChatBodyWriter(ReplyIdentity identity) : identity_(std::move(identity)) {}

  std::string_view content_type() const override { return kJson; }
  std::string start() override { return {}; }
  std::string keep_alive() override { return " "; }
  std::string delta(const Delta& delta) override {
    append_delta(delta, &reply_);
    return {};
  }
  std::string end(ReplyFinish finish, const ReplyUsage& usage) override {
    ordered_json body = head(identity_, random_id("chatcmpl-"), "chat.completion");
    body["choices"].push_back({{"index", 0},
                               {"message", message_json(reply_)},
                               {"finish_reason", finish_reason(finish)}});
    body["usage"] = usage_json(usage);
    return json_text(body);
  }
  std::string error(const ApiError& error) override { return error_json(error); }

 private:
  const ReplyIdentity identity_;
  Reply reply_;
};

struct DeltaJson {
  ordered_json operator()(const ReasoningDelta& delta) const {
    return {{"reasoning_content", delta.text}};
  }
  ordered_json operator()(const ContentDelta& delta) const { return {{"content", delta.text}}; }
  ordered_json operator()(const ToolCallDelta& delta) const {
    return calls({{"index", delta.index},
                  {"id", delta.id},
                  {"type", "function"},
                  {"function", {{"name", delta.name}, {"arguments", ""}}}});
  }
  ordered_json operator()(const ToolArgumentsDelta& delta) const {
    return calls({{"index", delta.index}, {"function", {{"arguments", delta.text}}}});
  }
  static ordered_json calls(ordered_json call) {
    ordered_json delta;
    delta["tool_calls"].push_back(std::move(call));
    return delta;
  }
};

class ChatStreamWriter final : public ResponseWriter {
 public:
  ChatStreamWriter(const ReplyIdentity& identity, bool include_usage)
      : head_(head(identity, random_id("chatcmpl-"), "chat.completion.chunk")),
        include_usage_(include_usage) {}

  std::string_view content_type() const override { return kEventStream; }
  std::string start() override {
    return sse_frame(frame({{"role", "assistant"}, {"content", ""}}, nullptr));
  }
  std::string keep_alive() override { return std::string(kSseComment); }
  std::string delta(const Delta& delta) override {
    return sse_frame(frame(std::visit(DeltaJson{}, delta), nullptr));
  }
  std::string end(ReplyFinish finish, const ReplyUsage& usage) override {
    return sse_end(frame(ordered_json::object(), finish_reason(finish)), head_, include_usage_,
                   usage);
  }
  std::string error(const ApiError& error) override { return sse_error(error); }

 private:
  ordered_json frame(ordered_json delta, ordered_json reason) const {
    ordered_json json = head_;
    ordered_json choice = {{"index", 0}, {"delta", std::move(delta)}};
    choice["finish_reason"] = std::move(reason);
    json["choices"].push_back(std::move(choice));
    return json;
  }

  const ordered_json head_;
  const bool include_usage_;
};

}  // namespace

ApiCall parse_chat_call(const JsonValue& body, const CallDefaults& defaults) {
  const RequestFields request(body, "");
  ApiCall call;
  read_common_fields(request, &call);
  refuse_audio(request);
  Conversation conversation;
  conversation.tools = read_request_tools(request);
  conversation.messages = read_messages(request, conversation.tools);
  conversation.tool_choice = read_tool_choice(request);
  if (conversation.tool_choice == ToolChoice::required && !has_tools(conversation)) {
    throw wrong_field("tool_choice", "asks for a call, but there are no tools", "invalid_value");
  }
  read_response_format(request, &conversation);
  read_thinking(request, defaults.effort, &conversation);
  call.prompt = std::move(conversation);
  return call;
}

std::unique_ptr<ResponseWriter> make_chat_writer(const ApiCall& call,
                                                 const ReplyIdentity& identity) {
  if (call.stream) return std::make_unique<ChatStreamWriter>(identity, call.include_usage);
  return std::make_unique<ChatBodyWriter>(identity);
}

}  // namespace penstock

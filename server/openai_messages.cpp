// SPDX-License-Identifier: Apache-2.0
#include "server/openai_messages.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "server/api_error.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxToolNameBytes = 256;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// [A-Za-z_][A-Za-z0-9_-]*
bool is_tool_name(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || name.size() > kMaxToolNameBytes || !is_letter(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; });
}

Role read_role(const RequestFields& message) {
  const std::string name = message.get_string("role");
  if (is_one_of(name, {"system", "developer"})) return Role::system;
  if (name == "user") return Role::user;
  if (name == "assistant") return Role::assistant;
  if (is_one_of(name, {"tool", "function"})) return Role::tool;
  message.fail_value("role", "system, developer, user, assistant, tool or function");
}

// Text of one content part. Images, sound and files wait for models that read them.
std::string read_part(const JsonValue& value, const std::string& path) {
  if (value.is(JsonKind::string)) return value.text;
  const RequestFields part(value, path);
  const std::string type = part.find_string("type").value_or("text");
  if (is_one_of(type, {"text", "input_text", "output_text"})) return part.get_string("text");
  if (type == "refusal") return part.get_string("refusal");
  throw wrong_field(part.path("type"), "is " + shown(part.get("type")) + ": only text is read",
                    "unsupported_content");
}

std::vector<ContentPart> read_content(const RequestFields& message) {
  std::vector<ContentPart> parts;
  const JsonValue* content = message.find("content");
  if (content == nullptr) return parts;
  const auto add = [&parts](std::string text) {
    if (!text.empty()) parts.push_back({.text = std::move(text)});
  };
  if (content->is(JsonKind::string)) {
    add(content->text);
    return parts;
  }
  const std::string path = message.path("content");
  if (!content->is(JsonKind::array)) fail_type(path, *content, "a string or a list of parts");
  for (std::size_t i = 0; i < content->items.size(); ++i) {
    add(read_part(content->items[i], RequestFields::item_path(path, i)));
  }
  return parts;
}

// The one of the names that clients know which is there; lists of details are of no use here.
std::string read_reasoning(const RequestFields& message) {
  for (const std::string_view key : {"reasoning_content", "reasoning", "reasoning_details"}) {
    const JsonValue* value = message.find(key);
    if (value == nullptr) continue;
    if (value->is(JsonKind::string)) return value->text;
    if (key == "reasoning_content") fail_type(message.path(key), *value, "a string");
  }
  return {};
}

std::string read_arguments(const RequestFields& function) {
  const JsonValue* arguments = function.find("arguments");
  if (arguments == nullptr) return {};
  if (arguments->is(JsonKind::string)) return arguments->text;
  if (arguments->is(JsonKind::object)) return write_json(*arguments, kPythonJson);
  fail_type(function.path("arguments"), *arguments, "a string of JSON");
}

ToolCall read_function_call(const RequestFields& function, std::string id) {
  ToolCall call{std::move(id), function.get_string("name"), read_arguments(function)};
  if (call.name.empty()) function.fail_value("name", "the name of a function");
  return call;
}

// A custom tool takes text; the models know arguments only.
ToolCall read_custom_call(const RequestFields& custom, std::string id) {
  std::string arguments = R"({"input": )";
  append_json_string(custom.find_string("input").value_or(""), &arguments);
  return {std::move(id), custom.get_string("name"), arguments + "}"};
}

std::vector<ToolCall> read_tool_calls(const RequestFields& message) {
  std::vector<ToolCall> calls;
  if (const std::vector<JsonValue>* list = message.find_list("tool_calls")) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const RequestFields call((*list)[i], RequestFields::item_path(message.path("tool_calls"), i));
      std::string id = call.find_string("id").value_or("");
      const bool is_custom = call.find("custom") != nullptr && call.find("function") == nullptr;
      calls.push_back(is_custom ? read_custom_call(call.get_object("custom"), std::move(id))
                                : read_function_call(call.get_object("function"), std::move(id)));
    }
  }
  if (const auto function = message.find_object("function_call"); function && calls.empty()) {
    calls.push_back(read_function_call(*function, {}));
  }
  return calls;
}

// Reads messages in order and remembers what later ones depend on.
class MessageReader {
 public:
  MessageReader(const RequestFields& request, const std::vector<JsonValue>& tools)
      : list_(request.get_list("messages")) {
    for (const JsonValue& tool : tools) {
      const JsonValue* function = tool.find("function");
      const JsonValue* name = function == nullptr ? nullptr : function->find("name");
      if (name != nullptr && name->is(JsonKind::string)) tool_names_.insert(name->text);
    }
    if (list_.empty()) {
      throw wrong_field("messages", "is empty, expected at least one message", "invalid_value");
    }
  }

  std::vector<Message> read() {
    std::vector<Message> messages;
    messages.reserve(list_.size());
    for (std::size_t i = 0; i < list_.size(); ++i) messages.push_back(read_message(i));
    return messages;
  }

 private:
  Message read_message(std::size_t index) {
    const RequestFields fields(list_[index], RequestFields::item_path("messages", index));
    Message message;
    message.role = read_role(fields);
    message.name = fields.find_string("name").value_or("");
    message.content = read_content(fields);
    if (message.role == Role::assistant) {
      message.reasoning = read_reasoning(fields);
      message.tool_calls = read_tool_calls(fields);
      calls_seen_ = calls_seen_ || !message.tool_calls.empty();
    }
    if (message.role == Role::tool) read_tool_result(fields, &message);
    read_tools(fields, &message);
    read_partial(fields, index, &message);
    return message;
  }

  void read_tool_result(const RequestFields& fields, Message* message) const {
    message->tool_call_id = fields.find_string("tool_call_id").value_or("");
    message->tool = fields.find_string("tool").value_or("");
    if (!message->tool_call_id.empty() || calls_seen_) return;
    throw wrong_field(fields.path("tool_call_id"), "is missing, and no tool call precedes it",
                      "missing_required_parameter");
  }

  // Tools that a system message declares from its place on.
  void read_tools(const RequestFields& fields, Message* message) {
    if (fields.find("tools") == nullptr) return;
    const std::string path = fields.path("tools");
    if (message->role != Role::system) {
      throw wrong_field(path, "stands in a message that is not a system message", "invalid_value");
    }
    const std::vector<JsonValue>& tools = fields.get_list("tools");
    if (!tools.empty() && !message->content.empty()) {
      throw wrong_field(fields.path("content"), "must be empty beside tools", "invalid_value");
    }
    for (std::size_t i = 0; i < tools.size(); ++i) {
      check_tool(RequestFields(tools[i], RequestFields::item_path(path, i)));
    }
    message->tools = tools;
  }

  void check_tool(const RequestFields& tool) {
    if (tool.get_string("type") != "function") tool.fail_value("type", "function");
    const RequestFields function = tool.get_object("function");
    const std::string name = function.get_string("name");
    if (!is_tool_name(name)) {
      function.fail_value("name", "a letter or _, then letters, digits, _ or -, at most " +
                                      std::to_string(kMaxToolNameBytes) + " in all");
    }
    if (!tool_names_.insert(name).second) {
      function.fail_value("name", "a name that was not declared before");
    }
  }

  void read_partial(const RequestFields& fields, std::size_t index, Message* message) const {
    message->partial = fields.find_bool("partial").value_or(false);
    if (!message->partial) return;
    const auto refuse = [&fields](const std::string& problem) {
      throw wrong_field(fields.path("partial"), problem, "invalid_value");
    };
    if (message->role != Role::assistant) refuse("stands in a message that is no assistant's");
    if (index + 1 != list_.size()) refuse("stands in a message that is not the last");
    if (!message->tool_calls.empty()) refuse("stands beside tool calls");
  }

  const std::vector<JsonValue>& list_;
  std::set<std::string> tool_names_;
  bool calls_seen_ = false;
};

}  // namespace

std::vector<Message> read_messages(const RequestFields& request,
                                   const std::vector<JsonValue>& tools) {
  return MessageReader(request, tools).read();
}

std::vector<JsonValue> read_request_tools(const RequestFields& request) {
  std::vector<JsonValue> kept;
  const std::vector<JsonValue>* tools = request.find_list("tools");
  if (tools == nullptr) return kept;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const RequestFields tool((*tools)[i], RequestFields::item_path("tools", i));
    const JsonValue* type = tool.find("type");
    const bool is_function = type == nullptr
                                 ? tool.find("function") != nullptr
                                 : type->is(JsonKind::string) && type->text == "function";
    if (!is_function) continue;
    if (tool.get_object("function").get_string("name").empty()) {
      tool.get_object("function").fail_value("name", "the name of a function");
    }
    kept.push_back((*tools)[i]);
  }
  return kept;
}

}  // namespace penstock

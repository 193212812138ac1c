// SPDX-License-Identifier: Apache-2.0
#include "engine/text/xtml.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/unicode_tables.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

constexpr std::string_view kOpen = "<|open|>";
constexpr std::string_view kClose = "<|close|>";
constexpr std::string_view kSep = "<|sep|>";
constexpr std::string_view kEndOfMsg = "<|end_of_msg|>";

constexpr std::string_view kToolsHeading =
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n";
constexpr std::string_view kNewToolsHeading =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n";
constexpr std::string_view kEffortText =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the "
    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=";
constexpr std::string_view kToolChoiceRequiredText =
    "The system is invoked with `tool_choice=required`.\n"
    "You MUST call tools in the next message.";
constexpr std::string_view kToolChoiceNoneText =
    "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message.";
constexpr std::string_view kRawJsonText =
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional "
    "formatting.";

std::string escape_attribute(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string json_block(const std::string& json) {
  return "```json\n" + json + "\n```";
}

std::string declaration(std::string_view heading, const std::vector<JsonValue>& tools) {
  JsonValue array;
  array.kind = JsonKind::array;
  array.items = tools;
  return std::string(heading) + json_block(write_json(array, kCanonicalJson));
}

std::string_view effort_name(ThinkingEffort effort) {
  switch (effort) {
    case ThinkingEffort::low: return "low";
    case ThinkingEffort::high: return "high";
    case ThinkingEffort::max: break;
  }
  return "max";
}

std::string_view type_name(JsonKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"null",   "boolean", "number",
                                                   "string", "array",   "object"};
  return kNames[static_cast<std::size_t>(kind)];
}

// A tool message with what the format needs to know of its call.
struct ToolResult {
  std::size_t message;  // its index
  std::string name;
  std::size_t position;  // of the call in the assistant's message, 1-based; 0: not matched
};

class PromptWriter {
 public:
  explicit PromptWriter(const Conversation& conversation) : conversation_(conversation) {}

  XtmlPrompt write() {
    if (!conversation_.tools.empty()) {
      system_message("tool-declare", declaration(kToolsHeading, conversation_.tools));
      prompt_.tools_end = prompt_.segments.size();
    }
    if (conversation_.thinking && conversation_.effort) {
      system_message("thinking-effort", std::string(kEffortText) +
                                            std::string(effort_name(*conversation_.effort)) + "`.");
    }
    prompt_.leading_end = prompt_.segments.size();
    const std::vector<Message>& messages = conversation_.messages;
    const bool continued =
        !messages.empty() && messages.back().partial && messages.back().role == Role::assistant;
    write_messages(continued ? messages.size() - 1 : messages.size());
    write_controls();
    prompt_.counted_end = prompt_.segments.size();
    if (continued) {
      write_assistant(messages.back(), messages.size() - 1);
      prompt_.counted_end = prompt_.segments.size();
    } else if (conversation_.generation_prompt) {
      open("message", {{"role", "assistant"}});
      prompt_.counted_end = prompt_.segments.size();
      open(conversation_.thinking ? "think" : "response", {});
      prompt_.open = conversation_.thinking ? Channel::reasoning : Channel::content;
    }
    return std::move(prompt_);
  }

 private:
  using Attribute = std::pair<std::string_view, std::string_view>;

  void markup(std::string_view text) { prompt_.segments.push_back({std::string(text), true}); }
  void text(std::string_view text) {
    if (!text.empty()) prompt_.segments.push_back({std::string(text), false});
  }

  void open(std::string_view tag, const std::vector<Attribute>& attributes) {
    markup(kOpen);
    text(tag);
    for (const auto& [key, value] : attributes) {
      text(std::string(1, ' ').append(key));
      text("=\"");
      text(escape_attribute(value));
      text("\"");
    }
    markup(kSep);
  }

  void close(std::string_view tag) {
    markup(kClose);
    text(tag);
    markup(kSep);
  }

  void end_message() {
    close("message");
    markup(kEndOfMsg);
  }

  void open_message(std::string_view role, const Message& message) {
    std::vector<Attribute> attributes{{"role", role}};
    if (!message.name.empty()) attributes.emplace_back("name", message.name);
    open("message", attributes);
  }

  void system_message(std::string_view type, std::string_view body) {
    open("message", {{"role", "system"}, {"type", type}});
    text(body);
    end_message();
  }

  void write_content(const Message& message) {
    for (const ContentPart& part : message.content) {
      if (part.kind == ContentPart::Kind::text) {
        text(part.text);
      } else {
        markup("<|media_begin|>image " + std::to_string(part.width) + "x" +
               std::to_string(part.height) + "<|media_content|><|media_pad|><|media_end|>");
      }
    }
  }

  void write_messages(std::size_t count) {
    bool leading = true;
    for (std::size_t i = 0; i < count;) {
      const Message& message = conversation_.messages[i];
      leading = leading && (message.role == Role::system || message.role == Role::other);
      if (message.role == Role::tool) {
        i = write_tool_results(i, count);
        continue;
      }
      write_message(message, i++);
      if (leading) prompt_.leading_end = prompt_.segments.size();
    }
  }

  void write_message(const Message& message, std::size_t index) {
    switch (message.role) {
      case Role::system:
        if (!message.tools.empty()) {
          return system_message("tool-declare", declaration(kNewToolsHeading, message.tools));
        }
        [[fallthrough]];
      case Role::user:
        open_message(message.role == Role::user ? "user" : "system", message);
        write_content(message);
        return end_message();
      case Role::assistant: return write_assistant(message, index);
      case Role::tool:
      case Role::other: return;
    }
  }

  // The last message, when it is partial, stays open after its content.
  void write_assistant(const Message& message, std::size_t index) {
    const bool continued = message.partial && index + 1 == conversation_.messages.size();
    open_message("assistant", message);
    if (conversation_.thinking) {
      open("think", {});
      if (!is_blank(message.reasoning)) text(message.reasoning);
      close("think");
    }
    open("response", {});
    write_content(message);
    if (continued) return;
    close("response");
    if (!message.tool_calls.empty()) {
      open("tools", {});
      for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
        write_call(message.tool_calls[i], i + 1,
                   "messages[" + std::to_string(index) + "].tool_calls[" + std::to_string(i) +
                       "].function");
      }
      close("tools");
    }
    end_message();
    last_assistant_ = &message;
    results_ = 0;
  }

  void write_call(const ToolCall& call, std::size_t position, const std::string& what) {
    if (call.name.empty()) throw Error(ErrorCode::bad_request, what + ".name is empty");
    open("call", {{"tool", call.name}, {"index", std::to_string(position)}});
    if (!is_blank(call.arguments)) write_arguments(call.arguments, what);
    close("call");
  }

  void write_arguments(const std::string& arguments, const std::string& what) {
    const std::optional<JsonValue> object = read_json(arguments, {}, nullptr);
    if (!object) {
      open("json", {{"type", "object"}});
      text(arguments);
      return close("json");
    }
    if (!object->is(JsonKind::object)) {
      throw Error(ErrorCode::bad_request, what + ".arguments is a JSON " +
                                              std::string(type_name(object->kind)) +
                                              ", an object was expected");
    }
    for (const auto& [key, value] : object->members) {
      open("argument", {{"key", key}, {"type", type_name(value.kind)}});
      text(value.is(JsonKind::string) ? value.text : write_json(value, kPythonJson));
      close("argument");
    }
  }

  // Writes the run of tool messages that begins at `begin`; returns its end.
  std::size_t write_tool_results(std::size_t begin, std::size_t count) {
    std::vector<ToolResult> run;
    for (std::size_t i = begin; i < count && conversation_.messages[i].role == Role::tool; ++i) {
      run.push_back(match_call(i));
    }
    const bool all_matched = std::all_of(
        run.begin(), run.end(), [](const ToolResult& result) { return result.position > 0; });
    if (all_matched) {
      std::stable_sort(run.begin(), run.end(), [](const ToolResult& a, const ToolResult& b) {
        return a.position < b.position;
      });
    }
    for (const ToolResult& result : run) {
      ++results_;
      const Message& message = conversation_.messages[result.message];
      const std::string name = all_matched ? result.name : unmatched_name(message, result.message);
      open("message", {{"role", "tool"}, {"tool", name}, {"index", std::to_string(results_)}});
      write_content(message);
      end_message();
    }
    return begin + run.size();
  }

  ToolResult match_call(std::size_t index) const {
    const std::string& id = conversation_.messages[index].tool_call_id;
    if (!id.empty() && last_assistant_ != nullptr) {
      const std::vector<ToolCall>& calls = last_assistant_->tool_calls;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].id == id) return {index, calls[i].name, i + 1};
      }
    }
    return {index, {}, 0};
  }

  std::string unmatched_name(const Message& message, std::size_t index) const {
    if (!message.tool.empty()) return message.tool;
    if (!message.name.empty()) return message.name;
    if (last_assistant_ != nullptr && results_ <= last_assistant_->tool_calls.size()) {
      return last_assistant_->tool_calls[results_ - 1].name;
    }
    const std::string what = "messages[" + std::to_string(index) + "]";
    if (message.tool_call_id.empty()) {
      throw Error(ErrorCode::bad_request,
                  what + ": a tool message needs a tool_call_id, and no call precedes it");
    }
    throw Error(ErrorCode::bad_request,
                what + ": tool_call_id " + message.tool_call_id +
                    " not found among the calls of the last assistant message");
  }

  void write_controls() {
    // The official encoder demands calls even where no tools are; that request is refused before.
    if (conversation_.tool_choice == ToolChoice::required) {
      system_message("tool-choice", kToolChoiceRequiredText);
    } else if (conversation_.tool_choice == ToolChoice::none && has_tools()) {
      system_message("tool-choice", kToolChoiceNoneText);
    }
    const std::string format = response_format_text(conversation_);
    if (!format.empty()) system_message("response-format", format);
  }

  bool has_tools() const {
    if (!conversation_.tools.empty()) return true;
    return std::any_of(conversation_.messages.begin(), conversation_.messages.end(),
                       [](const Message& message) {
                         return message.role == Role::system && !message.tools.empty();
                       });
  }

  const Conversation& conversation_;
  XtmlPrompt prompt_;
  const Message* last_assistant_ = nullptr;
  std::size_t results_ = 0;  // tool messages since the last assistant message
};

class XtmlFormat final : public ChatFormat {
 public:
  explicit XtmlFormat(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        markers_{marker_id(tokenizer, kOpen), marker_id(tokenizer, kClose),
                 marker_id(tokenizer, kSep), marker_id(tokenizer, kEndOfMsg),
                 marker_id(tokenizer, "[EOS]")} {}

  RenderedPrompt render(const Conversation& conversation) const override {
    const XtmlPrompt prompt = xtml_prompt(conversation);
    RenderedPrompt out;
    out.open = prompt.open;
    for (std::size_t i = 0; i <= prompt.segments.size(); ++i) {
      const auto length = static_cast<std::int64_t>(out.ids.size());
      if (i == prompt.tools_end) out.tools_end = length;
      if (i == prompt.leading_end) out.leading_end = length;
      if (i == prompt.counted_end) out.prompt_tokens = length;
      if (i < prompt.segments.size()) append(prompt.segments[i], &out.ids);
    }
    return out;
  }

  std::unique_ptr<ReplyParser> make_reply_parser(const ReplyOptions& options) const override {
    return make_xtml_reply_parser(tokenizer_, markers_, options);
  }

  std::vector<Token> stop_ids() const override { return {markers_.end_of_msg, markers_.eos}; }

 private:
  void append(const Segment& segment, std::vector<Token>* ids) const {
    if (!segment.markup) return tokenizer_.encode_ordinary(segment.text, ids);
    const std::vector<Token> more = tokenizer_.encode_with_specials(segment.text);
    ids->insert(ids->end(), more.begin(), more.end());
  }

  const Tokenizer& tokenizer_;
  const XtmlMarkers markers_;
};

}  // namespace

XtmlPrompt xtml_prompt(const Conversation& conversation) {
  return PromptWriter(conversation).write();
}

std::string response_format_text(const Conversation& conversation) {
  const std::string raw_json(kRawJsonText);
  switch (conversation.response_format) {
    case ResponseFormat::text: break;
    case ResponseFormat::json_object:
      return "The system is invoked with `response_format=json_object`.\n" + raw_json;
    case ResponseFormat::json_schema:
      return "The system is invoked with `response_format=json_schema`.\n" + raw_json +
             "\nThe JSON data must match the following schema:\n" +
             json_block(write_json(conversation.response_schema, kCanonicalJson));
  }
  return {};
}

bool is_blank(std::string_view text) {
  const UnicodeClasses& classes = UnicodeClasses::get();
  while (!text.empty()) {
    const Utf8Sequence next = read_utf8(text);
    const bool separator = next.code_point >= 0x1C && next.code_point <= 0x1F;  // to Python alone
    if (!separator && (classes[next.code_point] & kSpaceClass) == 0) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

std::unique_ptr<const ChatFormat> make_xtml_format(const Tokenizer& tokenizer) {
  return std::make_unique<XtmlFormat>(tokenizer);
}

}  // namespace penstock

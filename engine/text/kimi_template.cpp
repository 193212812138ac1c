// SPDX-License-Identifier: Apache-2.0
#include "engine/text/kimi_template.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/utf8.h"
#include "engine/text/xtml.h"

namespace penstock {
namespace {

struct KimiMarkers {
  Token user, assistant, system, middle, end, eos;
  Token calls_begin, calls_end, call_begin, argument_begin, call_end;
};

KimiMarkers find_markers(const Tokenizer& tokenizer) {
  const auto id = [&tokenizer](std::string_view name) { return marker_id(tokenizer, name); };
  return {id("<|im_user|>"),
          id("<|im_assistant|>"),
          id("<|im_system|>"),
          id("<|im_middle|>"),
          id("<|im_end|>"),
          id("[EOS]"),
          id("<|tool_calls_section_begin|>"),
          id("<|tool_calls_section_end|>"),
          id("<|tool_call_begin|>"),
          id("<|tool_call_argument_begin|>"),
          id("<|tool_call_end|>")};
}

constexpr std::string_view kCallPrefix = "functions.";

[[noreturn]] void refuse(std::size_t message, const std::string& problem) {
  throw Error(ErrorCode::bad_request, "messages[" + std::to_string(message) + "]" + problem);
}

// Text between two markers is one BPE run, as when the whole string is encoded at once.
class PromptWriter {
 public:
  PromptWriter(const Tokenizer& tokenizer, const KimiMarkers& markers,
               const Conversation& conversation)
      : tokenizer_(tokenizer), markers_(markers), conversation_(conversation) {}

  RenderedPrompt write() {
    if (!conversation_.tools.empty()) {
      JsonValue tools;
      tools.kind = JsonKind::array;
      tools.items = conversation_.tools;
      write_message(markers_.system, "tool_declare", write_json(tools, kCompactJson));
      prompt_.tools_end = prompt_.leading_end = length();
    }
    const std::vector<Message>& messages = conversation_.messages;
    const bool continued =
        !messages.empty() && messages.back().partial && messages.back().role == Role::assistant;
    bool leading = true;
    for (std::size_t i = 0; i < messages.size() - (continued ? 1 : 0); ++i) {
      write_message(i);
      leading = leading && messages[i].role == Role::system;
      if (leading) prompt_.leading_end = length();
    }
    const std::string format = response_format_text(conversation_);
    if (!format.empty()) write_message(markers_.system, "system", format);
    if (continued) {
      open(markers_.assistant, name_of(messages.back(), "assistant"));
      run_ += content_of(messages.size() - 1);
      end_run();
    } else if (conversation_.generation_prompt) {
      open(markers_.assistant, "assistant");
    }
    prompt_.prompt_tokens = length();
    return std::move(prompt_);
  }

 private:
  std::int64_t length() const { return static_cast<std::int64_t>(prompt_.ids.size()); }

  void end_run() {
    tokenizer_.encode_ordinary(run_, &prompt_.ids);
    run_.clear();
  }

  void marker(Token id) {
    end_run();
    prompt_.ids.push_back(id);
  }

  void open(Token role, std::string_view name) {
    marker(role);
    run_ += name;
    marker(markers_.middle);
  }

  void write_message(Token role, std::string_view name, std::string_view body) {
    open(role, name);
    run_ += body;
    marker(markers_.end);
  }

  static std::string_view name_of(const Message& message, std::string_view role) {
    return message.name.empty() ? role : std::string_view(message.name);
  }

  std::string content_of(std::size_t index) const {
    std::string text;
    for (const ContentPart& part : conversation_.messages[index].content) {
      if (part.kind != ContentPart::Kind::text) refuse(index, ": this model reads no images");
      text += part.text;
    }
    return text;
  }

  void write_message(std::size_t index) {
    const Message& message = conversation_.messages[index];
    if (!message.tools.empty()) refuse(index, ".tools: this model takes tools in the request only");
    switch (message.role) {
      case Role::user:
        return write_message(markers_.user, name_of(message, "user"), content_of(index));
      case Role::system:
        return write_message(markers_.system, name_of(message, "system"), content_of(index));
      case Role::assistant: return write_assistant(message, index);
      case Role::tool:
        ++results_;
        return write_message(
            markers_.system, name_of(message, "tool"),
            "## Return of " + result_id(message, index) + "\n" + content_of(index));
      case Role::other: return;
    }
  }

  void write_assistant(const Message& message, std::size_t index) {
    open(markers_.assistant, name_of(message, "assistant"));
    run_ += content_of(index);
    last_ids_.clear();
    results_ = 0;
    if (!message.tool_calls.empty()) {
      marker(markers_.calls_begin);
      for (const ToolCall& call : message.tool_calls) write_call(call, index);
      marker(markers_.calls_end);
    }
    marker(markers_.end);
  }

  // The model counts calls over the whole conversation; clients rewrite ids, so they are built
  // anew.
  void write_call(const ToolCall& call, std::size_t message) {
    if (call.name.empty()) {
      refuse(message,
             ".tool_calls[" + std::to_string(last_ids_.size()) + "].function.name is empty");
    }
    std::string id = std::string(kCallPrefix) + call.name + ":" + std::to_string(calls_++);
    marker(markers_.call_begin);
    run_ += id;
    marker(markers_.argument_begin);
    run_ += call.arguments;
    marker(markers_.call_end);
    if (!call.id.empty()) ids_[call.id] = id;
    last_ids_.push_back(std::move(id));
  }

  // By the client's id, else by position among the results of the last assistant message, else the
  // client's id as it is.
  std::string result_id(const Message& message, std::size_t index) const {
    if (const auto found = ids_.find(message.tool_call_id); found != ids_.end()) {
      return found->second;
    }
    if (results_ <= last_ids_.size()) return last_ids_[results_ - 1];
    if (message.tool_call_id.empty()) {
      refuse(index, ": a tool message needs a tool_call_id, and no call precedes it");
    }
    return message.tool_call_id;
  }

  const Tokenizer& tokenizer_;
  const KimiMarkers& markers_;
  const Conversation& conversation_;
  RenderedPrompt prompt_;
  std::string run_;                                   // text since the last marker
  std::unordered_map<std::string, std::string> ids_;  // the client's to ours, latest call
  std::vector<std::string> last_ids_;                 // of the last assistant message
  std::size_t calls_ = 0;
  std::size_t results_ = 0;  // tool messages since the last assistant message
};

class KimiReplyParser final : public ReplyParser {
 public:
  KimiReplyParser(const Tokenizer& tokenizer, const KimiMarkers& markers,
                  const ReplyOptions& options)
      : tokenizer_(tokenizer), markers_(markers), drop_calls_(options.drop_calls) {}

  void feed(Token id, std::vector<Delta>* out) override {
    if (over_) return;
    const KimiMarkers& m = markers_;
    if (id == m.end || id == m.eos) {
      end_reply(out);
    } else if (id == m.calls_begin) {
      enter(Place::between_calls, out);
    } else if (id == m.calls_end) {
      enter(Place::content, out);
    } else if (id == m.call_begin) {
      enter(Place::call_id, out);
    } else if (id == m.argument_begin && place_ == Place::call_id) {
      enter(Place::arguments, out);
    } else if (id == m.call_end) {
      enter(Place::between_calls, out);
    } else {
      route(utf8_.feed(tokenizer_.bytes(id)), out);
    }
  }

  ReplyFinish finish(ReplyCut cut, std::vector<Delta>* out) override {
    if (!over_ && cut == ReplyCut::stopped) end_reply(out);
    if (!over_) {
      route(utf8_.flush(), out);
      over_ = true;
      return ReplyFinish::length;
    }
    return calls_ > 0 ? ReplyFinish::tool_calls : ReplyFinish::stop;
  }

  bool over() const override { return over_; }
  std::int64_t reasoning_tokens() const override { return 0; }

 private:
  enum class Place : std::uint8_t { content, between_calls, call_id, arguments };

  void route(std::string text, std::vector<Delta>* out) {
    if (text.empty()) return;
    switch (place_) {
      case Place::content: out->emplace_back(ContentDelta{std::move(text)}); break;
      case Place::between_calls: break;
      case Place::call_id: call_id_ += text; break;
      case Place::arguments:
        blank_ = blank_ && is_blank(text);
        emit_arguments(std::move(text), out);
        break;
    }
  }

  // A call that ends without arguments takes none.
  void enter(Place place, std::vector<Delta>* out) {
    route(utf8_.flush(), out);
    if (place_ == Place::call_id) open_call(out);
    if (place_ == Place::arguments && blank_) emit_arguments("{}", out);
    if (place_ == Place::call_id && place != Place::arguments) emit_arguments("{}", out);
    place_ = place;
    call_id_.clear();
    blank_ = true;
  }

  void open_call(std::vector<Delta>* out) {
    std::string name = name_in(call_id_);
    dropped_ = drop_calls_ || name.empty();
    if (dropped_) return;
    out->emplace_back(ToolCallDelta{calls_++, new_tool_call_id(), std::move(name)});
  }

  // "functions.NAME:INDEX", or what a model made of it.
  static std::string name_in(std::string_view id) {
    constexpr std::string_view kBlanks = " \t\r\n";
    id.remove_prefix(std::min(id.find_first_not_of(kBlanks), id.size()));
    id = id.substr(0, id.find_last_not_of(kBlanks) + 1);
    if (id.substr(0, kCallPrefix.size()) == kCallPrefix) id.remove_prefix(kCallPrefix.size());
    const std::size_t colon = id.rfind(':');
    const bool indexed = colon != std::string_view::npos &&
                         id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
    return std::string(indexed ? id.substr(0, colon) : id);
  }

  void emit_arguments(std::string text, std::vector<Delta>* out) const {
    if (!dropped_) out->emplace_back(ToolArgumentsDelta{calls_ - 1, std::move(text)});
  }

  void end_reply(std::vector<Delta>* out) {
    // A call whose id the model did not finish has no name.
    if (place_ == Place::call_id) place_ = Place::between_calls;
    enter(Place::content, out);
    over_ = true;
  }

  const Tokenizer& tokenizer_;
  const KimiMarkers markers_;
  const bool drop_calls_;
  Place place_ = Place::content;
  Utf8Stream utf8_;
  std::string call_id_;
  bool dropped_ = false;
  bool blank_ = true;  // no arguments came yet
  bool over_ = false;
  std::int32_t calls_ = 0;  // given out
};

class KimiFormat final : public ChatFormat {
 public:
  explicit KimiFormat(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), markers_(find_markers(tokenizer)) {}

  RenderedPrompt render(const Conversation& conversation) const override {
    return PromptWriter(tokenizer_, markers_, conversation).write();
  }
  std::unique_ptr<ReplyParser> make_reply_parser(const ReplyOptions& options) const override {
    return std::make_unique<KimiReplyParser>(tokenizer_, markers_, options);
  }
  std::vector<Token> stop_ids() const override { return {markers_.end, markers_.eos}; }

 private:
  const Tokenizer& tokenizer_;
  const KimiMarkers markers_;
};

}  // namespace

std::unique_ptr<const ChatFormat> make_kimi_format(const Tokenizer& tokenizer) {
  return std::make_unique<KimiFormat>(tokenizer);
}

}  // namespace penstock

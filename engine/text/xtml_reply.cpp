// SPDX-License-Identifier: Apache-2.0
//
// K3's replies (spec: chat-format.md A9, vendor-contract.md section 8): markers are ids; the text
// between them goes where the stack of open elements says.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/text/utf8.h"
#include "engine/text/xtml.h"

namespace penstock {
namespace {

std::string unescape_attribute(std::string_view text) {
  constexpr std::string_view kQuote = "&quot;";
  constexpr std::string_view kAmpersand = "&amp;";
  std::string out;
  while (!text.empty()) {
    const bool quote = text.substr(0, kQuote.size()) == kQuote;
    const bool ampersand = text.substr(0, kAmpersand.size()) == kAmpersand;
    out += quote ? '"' : text[0];
    text.remove_prefix(quote ? kQuote.size() : ampersand ? kAmpersand.size() : 1);
  }
  return out;
}

// What stands between <|open|> or <|close|> and <|sep|>: a name, then key="value" pairs.
struct Header {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;

  std::string get(std::string_view key) const {
    for (const auto& [k, value] : attributes) {
      if (k == key) return value;
    }
    return {};
  }
};

// A value without its first quote ends at the next blank, one without its last quote at the end.
Header parse_header(const std::string& text) {
  Header header;
  std::size_t at = std::min(text.find(' '), text.size());
  header.name = text.substr(0, at);
  while ((at = text.find_first_not_of(' ', at)) != std::string::npos) {
    const std::size_t equals = text.find('=', at);
    if (equals == std::string::npos) break;
    std::string key = text.substr(at, equals - at);
    const bool quoted = equals + 1 < text.size() && text[equals + 1] == '"';
    const std::size_t begin = equals + (quoted ? 2 : 1);
    const std::size_t end = std::min(text.find_first_of(quoted ? "\"" : " \"", begin), text.size());
    header.attributes.emplace_back(std::move(key),
                                   unescape_attribute(text.substr(begin, end - begin)));
    at = std::min(end + 1, text.size());
  }
  return header;
}

// An argument of the type string, also the default, flows as it is written; values of other types
// are JSON and go out when they are complete.
struct Argument {
  bool is_string;
  bool dropped;
  std::string key;
  std::string text;  // not of strings
};

struct Call {
  // Arguments are pairs or the text of a json element: the first that comes decides.
  enum class Form : std::uint8_t { none, pairs, json };
  bool dropped;  // has no name, or calls are not wanted
  std::int32_t index;
  Form form = Form::none;
  bool blank = true;  // nothing of a json element came yet
};

class XtmlReplyParser final : public ReplyParser {
 public:
  XtmlReplyParser(const Tokenizer& tokenizer, const XtmlMarkers& markers,
                  const ReplyOptions& options)
      : tokenizer_(tokenizer), markers_(markers), drop_calls_(options.drop_calls) {
    stack_.emplace_back(options.open == Channel::reasoning ? "think" : "response");
  }

  void feed(Token id, std::vector<Delta>* out) override {
    if (over_) return;
    if (id == markers_.open || id == markers_.close) {
      flush_text(out);
      pending_ = id;
      header_.clear();
    } else if (id == markers_.sep) {
      flush_text(out);
      if (pending_) finish_header(out);
      pending_.reset();
    } else if (id == markers_.end_of_msg || id == markers_.eos) {
      end_reply(out);
    } else if (pending_) {
      header_.append(tokenizer_.bytes(id));
    } else {
      if (sink() == Sink::reasoning) ++reasoning_tokens_;
      route(utf8_.feed(tokenizer_.bytes(id)), out);
    }
  }

  ReplyFinish finish(ReplyCut cut, std::vector<Delta>* out) override {
    if (!over_ && cut == ReplyCut::stopped) end_reply(out);
    if (!over_) {
      flush_text(out);
      if (argument_ && !argument_->is_string) emit_pair_opening(argument_->text, out);
      over_ = true;
      return ReplyFinish::length;
    }
    return calls_ > 0 ? ReplyFinish::tool_calls : ReplyFinish::stop;
  }

  bool over() const override { return over_; }
  std::int64_t reasoning_tokens() const override { return reasoning_tokens_; }

 private:
  bool is_open(std::string_view name) const {
    return std::find(stack_.begin(), stack_.end(), name) != stack_.end();
  }

  enum class Json : std::uint8_t { none, wanted, dropped };  // the element that is open
  enum class Sink : std::uint8_t { json, argument, reasoning, content, nowhere };

  Sink sink() const {
    if (json_ != Json::none) return Sink::json;
    if (argument_) return Sink::argument;
    for (auto name = stack_.rbegin(); name != stack_.rend(); ++name) {
      if (*name == "think") return Sink::reasoning;
      if (*name == "tools" || *name == "call") return Sink::nowhere;
      if (*name == "response") break;
    }
    return Sink::content;
  }

  // Partial characters do not live on across a marker.
  void flush_text(std::vector<Delta>* out) { route(utf8_.flush(), out); }

  void route(std::string text, std::vector<Delta>* out) {
    if (text.empty()) return;
    switch (sink()) {
      case Sink::json: return add_to_json(std::move(text), out);
      case Sink::argument: return add_to_argument(text, out);
      case Sink::reasoning: out->emplace_back(ReasoningDelta{std::move(text)}); return;
      case Sink::content: out->emplace_back(ContentDelta{std::move(text)}); return;
      case Sink::nowhere: return;
    }
  }

  void finish_header(std::vector<Delta>* out) {
    const bool opens = *pending_ == markers_.open;
    const Header header = parse_header(replace_invalid_utf8(header_));
    // The model forgets to close its thinking before it answers or calls.
    if (header.name == "response" || (opens && header.name == "tools")) pop_to("think", out);
    if (opens) {
      open_element(header, out);
    } else if (header.name == "message") {
      end_reply(out);
    } else {
      pop_to(header.name, out);
    }
  }

  void open_element(const Header& header, std::vector<Delta>* out) {
    // Elements that cannot lie inside each other end where the next begins.
    if (header.name == "call") pop_to("call", out);
    if (header.name == "argument" || header.name == "json") pop_to("argument", out);
    if (header.name == "json") pop_to("json", out);
    if (header.name == "call") open_call(header.get("tool"), out);
    if (header.name == "argument") open_argument(header, out);
    if (header.name == "json") open_json();
    stack_.push_back(header.name);
  }

  // Closes the elements down to the innermost of that name, if there is one.
  void pop_to(std::string_view name, std::vector<Delta>* out) {
    if (!is_open(name)) return;
    for (bool found = false; !found;) {
      found = stack_.back() == name;
      if (stack_.back() == "argument") close_argument(out);
      if (stack_.back() == "json") json_ = Json::none;
      if (stack_.back() == "call") close_call(out);
      stack_.pop_back();
    }
  }

  void open_call(std::string name, std::vector<Delta>* out) {
    call_ = Call{drop_calls_ || name.empty(), calls_};
    if (call_->dropped) return;
    ++calls_;
    out->emplace_back(ToolCallDelta{call_->index, new_tool_call_id(), std::move(name)});
  }

  void close_call(std::vector<Delta>* out) {
    if (!call_) return;
    if (call_->form == Call::Form::pairs) emit_arguments("}", out);
    if (call_->form == Call::Form::none) emit_arguments("{}", out);
    if (call_->form == Call::Form::json && call_->blank) emit_arguments("{}", out);
    call_.reset();
  }

  void open_argument(const Header& header, std::vector<Delta>* out) {
    const std::string type = header.get("type");
    const bool is_json = type == "number" || type == "object" || type == "array" ||
                         type == "boolean" || type == "null";
    const bool dropped = !call_ || call_->form == Call::Form::json;
    argument_ = Argument{!is_json, dropped, header.get("key"), {}};
    if (argument_->is_string) emit_pair_opening("\"", out);
  }

  void open_json() {
    json_ = call_ && call_->form == Call::Form::none ? Json::wanted : Json::dropped;
    if (json_ == Json::wanted) call_->form = Call::Form::json;
  }

  void add_to_json(std::string text, std::vector<Delta>* out) {
    if (json_ == Json::dropped) return;
    call_->blank = call_->blank && is_blank(text);
    emit_arguments(std::move(text), out);
  }

  void add_to_argument(const std::string& text, std::vector<Delta>* out) {
    if (!argument_->is_string) {
      argument_->text += text;
    } else if (!argument_->dropped) {
      std::string escaped;
      append_json_escaped(text, &escaped);
      emit_arguments(std::move(escaped), out);
    }
  }

  void close_argument(std::vector<Delta>* out) {
    if (!argument_) return;
    if (argument_->is_string) {
      if (!argument_->dropped) emit_arguments("\"", out);
    } else if (read_json(argument_->text, kArgumentLimits, nullptr)) {
      emit_pair_opening(argument_->text, out);
    } else {
      std::string quoted;
      append_json_string(argument_->text, &quoted);
      emit_pair_opening(quoted, out);
    }
    argument_.reset();
  }

  // Writes what stands before the value of the argument, {"key": or ,"key": and `value`, which may
  // be its beginning.
  void emit_pair_opening(std::string_view value, std::vector<Delta>* out) {
    if (argument_->dropped) return;
    std::string text = call_->form == Call::Form::pairs ? "," : "{";
    call_->form = Call::Form::pairs;
    append_json_string(argument_->key, &text);
    text += ':';
    text += value;
    emit_arguments(std::move(text), out);
  }

  void emit_arguments(std::string text, std::vector<Delta>* out) {
    if (!call_ || call_->dropped || text.empty()) return;
    out->emplace_back(ToolArgumentsDelta{call_->index, std::move(text)});
  }

  void end_reply(std::vector<Delta>* out) {
    flush_text(out);
    pending_.reset();
    while (!stack_.empty()) pop_to(std::string(stack_.back()), out);
    over_ = true;
  }

  static constexpr JsonLimits kArgumentLimits{.max_keys = std::string::npos};

  const Tokenizer& tokenizer_;
  const XtmlMarkers markers_;
  const bool drop_calls_;
  std::vector<std::string> stack_;  // names of the open elements
  std::optional<Token> pending_;    // the marker that began a header
  std::string header_;
  Utf8Stream utf8_;
  std::optional<Call> call_;
  std::optional<Argument> argument_;
  Json json_ = Json::none;
  bool over_ = false;
  std::int32_t calls_ = 0;  // given out
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace

std::unique_ptr<ReplyParser> make_xtml_reply_parser(const Tokenizer& tokenizer,
                                                    const XtmlMarkers& markers,
                                                    const ReplyOptions& options) {
  return std::make_unique<XtmlReplyParser>(tokenizer, markers, options);
}

}  // namespace penstock

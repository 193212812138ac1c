// SPDX-License-Identifier: Apache-2.0
#include "tests/text/xtml_reference.h"

#include <algorithm>
#include <map>
#include <regex>

#include "engine/text/utf8.h"
#include "engine/text/xtml.h"

namespace penstock {
namespace {

struct Event {
  enum class Kind { text, open, close, stop };
  Kind kind;
  std::string text;
  std::int64_t ids = 0;  // of a text
};

struct Value {
  std::string key, type, text;
  bool closed = false;
};

struct RawCall {
  std::string name;
  std::vector<Value> pairs;
  std::optional<std::string> json;
  bool closed = false;
};

// Text between two markers, or a finished header; unfinished ones vanish.
std::vector<Event> events_of(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  std::vector<Event> events;
  std::string text;
  std::int64_t count = 0;
  std::optional<Event::Kind> header;
  const auto end_text = [&] {
    if (!header && count > 0)
      events.push_back({Event::Kind::text, replace_invalid_utf8(text), count});
    text.clear();
    count = 0;
  };
  for (const Token id : ids) {
    const std::string bytes(tokenizer.bytes(id));
    if (!tokenizer.is_special(id) || (bytes[0] != '<' && bytes != "[EOS]")) {
      text += bytes;
      ++count;
    } else if (bytes == "<|open|>" || bytes == "<|close|>") {
      end_text();
      header = bytes == "<|open|>" ? Event::Kind::open : Event::Kind::close;
    } else if (bytes == "<|sep|>") {
      if (header) {
        events.push_back({*header, replace_invalid_utf8(text)});
        text.clear();
        count = 0;
      }
      end_text();
      header.reset();
    } else if (bytes == "<|end_of_msg|>" || bytes == "[EOS]") {
      end_text();
      events.push_back({Event::Kind::stop, ""});
      return events;
    } else {
      text += bytes;
      ++count;
    }
  }
  end_text();
  return events;
}

std::map<std::string, std::string> attributes_of(const std::string& header) {
  std::map<std::string, std::string> attributes;
  static const std::regex kPair(" *([^=]*)=(\"([^\"]*)(\"|$)|([^ \"]*)( |\"|$))");
  static const std::regex kQuote("&quot;");
  static const std::regex kAmpersand("&amp;");
  const std::size_t space = header.find(' ');
  std::string rest = space == std::string::npos ? "" : header.substr(space);
  for (std::smatch match;
       std::regex_search(rest, match, kPair, std::regex_constants::match_continuous);
       rest = match.suffix()) {
    std::string value = match[3].matched ? match[3].str() : match[5].str();
    value = std::regex_replace(value, kQuote, "\"");
    value = std::regex_replace(value, kAmpersand, "&");
    attributes.emplace(match[1].str(), value);
  }
  return attributes;
}

std::string quoted(const std::string& text) {
  std::string out;
  append_json_string(text, &out);
  return out;
}

std::string arguments_of(const RawCall& call) {
  if (call.json) return *call.json + (call.closed && is_blank(*call.json) ? "{}" : "");
  std::string out;
  for (const Value& value : call.pairs) {
    const bool is_json = value.type == "number" || value.type == "object" ||
                         value.type == "array" || value.type == "boolean" || value.type == "null";
    out += (out.empty() ? "{" : ",") + quoted(value.key) + ":";
    if (is_json && (!value.closed || read_json(value.text, {}, nullptr))) {
      out += value.text;
    } else {
      const std::string text = quoted(value.text);
      out += value.closed ? text : text.substr(0, text.size() - 1);
    }
  }
  if (call.closed) out += out.empty() ? "{}" : "}";
  return out;
}

class Reading {
 public:
  explicit Reading(Channel open) {
    stack_.emplace_back(open == Channel::reasoning ? "think" : "response");
  }

  void take(const Event& event) {
    if (event.kind == Event::Kind::text) return take_text(event);
    if (event.kind == Event::Kind::stop) return end();
    const std::string name = event.text.substr(0, event.text.find(' '));
    const bool opens = event.kind == Event::Kind::open;
    if (name == "response" || (name == "tools" && opens)) unwind("think");
    if (!opens) return name == "message" ? end() : unwind(name);
    if (name == "call") unwind("call");
    if (name == "argument" || name == "json") unwind("argument");
    if (name == "json") unwind("json");
    stack_.push_back(name);
    std::map<std::string, std::string> attributes = attributes_of(event.text);
    if (name == "call") {
      calls_.push_back({attributes["tool"], {}, {}, false});
      in_call_ = true;
    }
    if (name == "argument" && in_call_ && !calls_.back().json) {
      calls_.back().pairs.push_back({attributes["key"], attributes["type"], ""});
      value_ = true;
    }
    if (name == "json" && in_call_ && calls_.back().pairs.empty() && !calls_.back().json) {
      calls_.back().json = "";
      json_ = true;
    }
  }

  void end() {
    while (!stack_.empty()) unwind(std::string(stack_.back()));
    over_ = true;
  }
  bool over() const { return over_; }

  ReadReply result(std::int64_t reasoning_ids) const {
    ReadReply read{};
    read.reply = reply_;
    for (const RawCall& call : calls_) {
      if (!call.name.empty()) read.reply.tool_calls.push_back({"", call.name, arguments_of(call)});
    }
    read.finish = !over_                          ? ReplyFinish::length
                  : read.reply.tool_calls.empty() ? ReplyFinish::stop
                                                  : ReplyFinish::tool_calls;
    read.reasoning_tokens = reasoning_ids;
    return read;
  }
  std::int64_t reasoning_ids() const { return reasoning_ids_; }

 private:
  bool has(const std::string& name) const {
    return std::count(stack_.begin(), stack_.end(), name) > 0;
  }

  void unwind(const std::string& name) {
    if (!has(name)) return;
    std::string popped;
    do {
      popped = stack_.back();
      stack_.pop_back();
      if (popped == "argument" && value_) {
        calls_.back().pairs.back().closed = true;
        value_ = false;
      }
      if (popped == "json") json_ = false;
      if (popped == "call" && in_call_) {
        calls_.back().closed = true;
        in_call_ = false;
      }
    } while (popped != name);
  }

  void take_text(const Event& event) {
    if (has("json")) {
      if (json_) *calls_.back().json += event.text;
    } else if (has("argument")) {
      if (value_) calls_.back().pairs.back().text += event.text;
    } else {
      for (auto name = stack_.rbegin(); name != stack_.rend(); ++name) {
        if (*name == "tools" || *name == "call") return;
        if (*name == "response") break;
        if (*name != "think") continue;
        reasoning_ids_ += event.ids;
        reply_.reasoning += event.text;
        return;
      }
      reply_.content += event.text;
    }
  }

  Reply reply_;
  std::vector<RawCall> calls_;
  std::vector<std::string> stack_;
  bool in_call_ = false;
  bool value_ = false;  // text belongs to the last pair of the last call
  bool json_ = false;   // text belongs to the last call's json
  bool over_ = false;
  std::int64_t reasoning_ids_ = 0;
};

}  // namespace

ReadReply reference_reply(const Tokenizer& tokenizer, const std::vector<Token>& ids, Channel open,
                          ReplyCut cut) {
  Reading reading(open);
  for (const Event& event : events_of(tokenizer, ids)) {
    if (!reading.over()) reading.take(event);
  }
  if (!reading.over() && cut == ReplyCut::stopped) reading.end();
  return reading.result(reading.reasoning_ids());
}

}  // namespace penstock

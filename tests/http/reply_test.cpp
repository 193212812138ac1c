// SPDX-License-Identifier: Apache-2.0
//
// Scripted replies through parser, stop strings and writers: a stream folded together equals the
// unstreamed answer, and its frames have the shape that clients take (vendor-contract.md 3).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/text/chat_format.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/reply_assembler.h"
#include "tests/http/http_client.h"
#include "tests/text/chat_fixtures.h"

namespace penstock::testing {
namespace {

const ChatFormat& format() {
  static const auto kFormat = make_chat_format("kimi-k3", demo_tokenizer());
  return *kFormat;
}

struct Script {
  std::string text;  // of the reply, markers by name; it begins inside think
  std::vector<std::string> stops;
  ReplyCut cut = ReplyCut::stopped;
  bool drop_calls = false;
  bool thinking = true;
};

// What the client gets for the script.
std::string respond(const Script& script, bool stream, std::size_t limit = std::string::npos) {
  ApiCall call;
  call.stream = stream;
  call.include_usage = stream;
  const auto writer = make_chat_writer(call, {.model = "demo", .created_s = 1});
  ReplyAssembler assembler(
      format().make_reply_parser({.open = script.thinking ? Channel::reasoning : Channel::content,
                                  .drop_calls = script.drop_calls}),
      {.stops = script.stops, .drop_reasoning = !script.thinking});
  std::string out = writer->start();
  std::vector<Token> ids = demo_tokenizer().encode_with_specials(script.text);
  const bool is_cut = limit < ids.size();
  if (is_cut) ids.resize(limit);
  for (std::size_t i = 0; i < ids.size() && !assembler.complete(); ++i) {
    for (const Delta& delta : assembler.feed(ids[i])) out += writer->delta(delta);
  }
  std::vector<Delta> rest;
  const ReplyFinish finish = assembler.finish(is_cut ? ReplyCut::limit : script.cut, &rest);
  for (const Delta& delta : rest) out += writer->delta(delta);
  return out + writer->end(finish, {.prompt_tokens = 10,
                                    .cached_tokens = 4,
                                    .completion_tokens = assembler.tokens(),
                                    .reasoning_tokens = assembler.reasoning_tokens()});
}

// The message and what stands beside it, as one text; call ids, which are random, by their length.
struct Folded {
  std::string reasoning, content, calls, finish, usage;
  bool operator==(const Folded&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Folded& folded) {
  return out << "reasoning=" << folded.reasoning << "\ncontent=" << folded.content
             << "\ncalls=" << folded.calls << "\nfinish=" << folded.finish
             << "\nusage=" << folded.usage;
}

Folded of_body(const std::string& body) {
  const JsonValue json = parse(body);
  Folded folded;
  folded.reasoning = text_at(json, "choices.0.message.reasoning_content");
  folded.content = text_at(json, "choices.0.message.content");
  if (const JsonValue* calls = at(json, "choices.0.message.tool_calls")) {
    for (const JsonValue& call : calls->items) {
      folded.calls += text_at(call, "type") + " " + std::to_string(text_at(call, "id").size()) +
                      " " + text_at(call, "function.name") + "(" +
                      text_at(call, "function.arguments") + ") ";
    }
  }
  folded.finish = text_at(json, "choices.0.finish_reason");
  folded.usage = write_json(*at(json, "usage"), kAsSpeltJson);
  return folded;
}

// Folds as clients do, and checks each frame.
class StreamFolder {
 public:
  Folded fold(const std::string& stream) {
    std::vector<std::string> frames = data_frames(stream);
    EXPECT_EQ(frames.back(), "[DONE]");
    frames.pop_back();
    const JsonValue closing = parse(frames.back());
    frames.pop_back();
    EXPECT_EQ(at(closing, "choices")->items.size(), 0U);
    EXPECT_EQ(frames.front().find(R"({"role":"assistant","content":""})") == std::string::npos,
              false);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      add(parse(frames[i]), i == 0, i + 1 == frames.size());
    }
    folded_.usage = write_json(*at(closing, "usage"), kAsSpeltJson);
    EXPECT_EQ(folded_.usage, usage_in_choice_);
    for (const std::string& call : calls_) folded_.calls += call + ") ";
    return folded_;
  }

 private:
  void add(const JsonValue& frame, bool first, bool last) {
    EXPECT_EQ(text_at(frame, "object"), "chat.completion.chunk");
    if (first) id_ = text_at(frame, "id");
    EXPECT_EQ(text_at(frame, "id"), id_);
    EXPECT_EQ(frame.find("usage"), nullptr);
    const JsonValue& choice = *at(frame, "choices.0");
    EXPECT_EQ(choice.find("logprobs"), nullptr);
    EXPECT_EQ(choice.find("usage") != nullptr, last);
    EXPECT_EQ(choice.find("finish_reason")->is(JsonKind::null), !last);
    const JsonValue& delta = *choice.find("delta");
    EXPECT_EQ(delta.members.size(), first ? 2U : last ? 0U : 1U);
    for (const JsonMember& member : delta.members) {
      EXPECT_FALSE(member.value.is(JsonKind::null)) << member.key;
      if (member.key == "content") folded_.content += member.value.text;
      if (member.key == "reasoning_content") folded_.reasoning += member.value.text;
      if (member.key == "tool_calls") add_call(member.value.items.at(0));
    }
    if (!last) return;
    folded_.finish = text_at(choice, "finish_reason");
    usage_in_choice_ = write_json(*choice.find("usage"), kAsSpeltJson);
  }

  void add_call(const JsonValue& call) {
    const std::size_t index = std::stoul(text_at(call, "index"));
    if (index == calls_.size()) {
      EXPECT_EQ(call.members.size(), 4U);
      EXPECT_EQ(text_at(call, "function.arguments"), "");
      EXPECT_NE(at(call, "function.arguments"), nullptr);
      calls_.push_back(text_at(call, "type") + " " + std::to_string(text_at(call, "id").size()) +
                       " " + text_at(call, "function.name") + "(");
    } else {
      EXPECT_EQ(call.members.size(), 2U);
      EXPECT_EQ(call.find("function")->members.size(), 1U);
    }
    calls_.at(index) += text_at(call, "function.arguments");
  }

  Folded folded_;
  std::string id_, usage_in_choice_;
  std::vector<std::string> calls_;
};

Folded folded(const Script& script, std::size_t limit = std::string::npos) {
  const Folded unstreamed = of_body(respond(script, false, limit));
  EXPECT_EQ(StreamFolder().fold(respond(script, true, limit)), unstreamed) << script.text;
  return unstreamed;
}

constexpr const char* kEndThink = "<|close|>think<|sep|>";
constexpr const char* kResponse = "<|open|>response<|sep|>";
constexpr const char* kEndResponse = "<|close|>response<|sep|>";
constexpr const char* kEnd = "<|close|>message<|sep|><|end_of_msg|>";

std::string answer(const std::string& reasoning, const std::string& content,
                   const std::string& tools = "") {
  return reasoning + kEndThink + kResponse + content + kEndResponse + tools + kEnd;
}

std::string tools(const std::string& calls) {
  return "<|open|>tools<|sep|>" + calls + "<|close|>tools<|sep|>";
}

std::string call(const std::string& name, const std::string& arguments) {
  return "<|open|>call tool=\"" + name + "\" index=\"1\"<|sep|>" + arguments +
         "<|close|>call<|sep|>";
}

std::string argument(const std::string& key, const std::string& type, const std::string& value) {
  return "<|open|>argument key=\"" + key + "\" type=\"" + type + "\"<|sep|>" + value +
         "<|close|>argument<|sep|>";
}

const std::string kLook = call("look", argument("city", "string", "Par\"is\n"));
const std::string kCount =
    call("count", argument("n", "number", "1e2") + argument("list", "array", "[1, 2]"));

TEST(Reply, StreamEqualsBodyForManyReplies) {
  const std::vector<std::string> reasonings = {"", "Let me see.", "\xE6\x88\x91\xE5\x9C\xA8 ok",
                                               "a\nb \"c\" \\"};
  const std::vector<std::string> contents = {"", "Hello.", "{\"a\": [1, 2]}",
                                             "\xF0\x9F\x98\x80 STOP \xE5\xA5\xBD"};
  const std::vector<std::string> called = {"", tools(kLook), tools(kLook + kCount),
                                           tools(call("none", ""))};
  int scripts = 0;
  for (const std::string& reasoning : reasonings) {
    for (const std::string& content : contents) {
      for (const std::string& calls : called) {
        const std::string text = answer(reasoning, content, calls);
        for (const Script& script : {Script{text, {}}, Script{text, {"STOP", "]"}},
                                     Script{text, {}, ReplyCut::stopped, true},
                                     Script{text, {"lo"}, ReplyCut::stopped, false, false}}) {
          folded(script);
          ++scripts;
        }
      }
    }
  }
  EXPECT_GE(scripts, 200);
}

TEST(Reply, StreamEqualsBodyCutAnywhere) {
  const Script script{answer("Let me see.", "Hello \xF0\x9F\x98\x80.", tools(kLook + kCount)), {}};
  const std::size_t length = demo_tokenizer().encode_with_specials(script.text).size();
  ASSERT_GT(length, 40U);
  for (std::size_t limit = 0; limit < length; ++limit) {
    EXPECT_EQ(folded(script, limit).finish, limit + 1 < length ? "length" : "tool_calls") << limit;
  }
}

TEST(Reply, HasTheFieldsOfTheContract) {
  const JsonValue plain = parse(respond({answer("Hm.", "Hi."), {}}, false));
  EXPECT_EQ(text_at(plain, "object"), "chat.completion");
  EXPECT_EQ(text_at(plain, "id").rfind("chatcmpl-", 0), 0U);
  EXPECT_EQ(text_at(plain, "id").size(), 9U + 24U);
  EXPECT_EQ(write_json(*at(plain, "choices.0"), kAsSpeltJson),
            R"({"index":0,"message":{"role":"assistant","content":"Hi.",)"
            R"("reasoning_content":"Hm."},"finish_reason":"stop"})");
  EXPECT_EQ(at(plain, "usage.total_tokens")->text,
            std::to_string(10 + std::stoi(text_at(plain, "usage.completion_tokens"))));
  EXPECT_EQ(text_at(plain, "usage.prompt_tokens_details.cached_tokens"), "4");
  EXPECT_EQ(text_at(plain, "usage.cached_tokens"), "4");
  EXPECT_GT(std::stoi(text_at(plain, "usage.completion_tokens_details.reasoning_tokens")), 0);

  const JsonValue silent = parse(respond({answer("", ""), {}}, false));
  EXPECT_EQ(write_json(*at(silent, "choices.0.message"), kAsSpeltJson),
            R"({"role":"assistant","content":""})");

  const JsonValue calls = parse(respond({answer("", "", tools(kLook)), {}}, false));
  EXPECT_TRUE(at(calls, "choices.0.message.content")->is(JsonKind::null));
  EXPECT_EQ(text_at(calls, "choices.0.finish_reason"), "tool_calls");
  EXPECT_EQ(text_at(calls, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"city":"Par\"is\n"})");
  const JsonValue both = parse(respond({answer("", "Wait.", tools(kCount)), {}}, false));
  EXPECT_EQ(text_at(both, "choices.0.message.content"), "Wait.");
  EXPECT_EQ(text_at(both, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"n":1e2,"list":[1, 2]})");
}

TEST(Reply, NeverShowsReasoningWhenThinkingIsOff) {
  const std::string text = std::string("Hi.<|open|>think<|sep|>secret") + kEndThink + kEndResponse;
  const Folded off = folded({text + kEnd, {}, ReplyCut::stopped, false, false});
  EXPECT_EQ(off.content, "Hi.");
  EXPECT_EQ(off.reasoning, "");
}

TEST(Reply, DropsCallsThatWereNotWanted) {
  const Folded none = folded({answer("Hm.", "Hi.", tools(kLook)), {}, ReplyCut::stopped, true});
  EXPECT_EQ(none.calls, "");
  EXPECT_EQ(none.finish, "stop");
  EXPECT_EQ(none.content, "Hi.");
}

TEST(Reply, StopsMatchContentOnly) {
  const std::string text = answer("one STOP two", "three STOP four", tools(kLook));
  const Folded stopped = folded({text, {"STOP"}});
  EXPECT_EQ(stopped.reasoning, "one STOP two");
  EXPECT_EQ(stopped.content, "three ");
  EXPECT_EQ(stopped.calls, "");
  EXPECT_EQ(stopped.finish, "stop");
  const std::string in_call =
      answer("", "three", tools(call("f", argument("x", "string", "a STOP b"))));
  EXPECT_EQ(folded({in_call, {"STOP"}}).finish, "tool_calls");
  EXPECT_NE(folded({in_call, {"STOP"}}).calls.find("a STOP b"), std::string::npos);
}

// Every border between tokens: the stop string may begin and end inside any of them.
TEST(Reply, StopsMatchAcrossTokens) {
  const std::string content = "The quick brown fox jumps.";
  for (std::size_t begin = 0; begin < content.size(); ++begin) {
    for (std::size_t size = 1; begin + size <= content.size(); size += 3) {
      const std::string stop = content.substr(begin, size);
      const Folded stopped = folded({answer("", content), {stop}});
      EXPECT_EQ(stopped.content, content.substr(0, content.find(stop))) << stop;
    }
  }
  // Held back because it could have become one.
  EXPECT_EQ(folded({answer("", content), {"jumps. Over", "fox jumps!"}}).content, content);
}

TEST(Reply, CutsAModelThatGoesOnAfterItsEnd) {
  ReplyAssembler assembler(format().make_reply_parser({}), {});
  const std::vector<Token> ids = demo_tokenizer().encode_with_specials(
      std::string("Hi.") + kEndResponse + "<|close|>message<|sep|> and so on and on and on and on");
  std::size_t fed = 0;
  std::string content;
  while (fed < ids.size() && !assembler.complete()) {
    for (const Delta& delta : assembler.feed(ids[fed])) {
      content += std::get<ContentDelta>(delta).text;
    }
    ++fed;
  }
  EXPECT_LT(fed, ids.size());
  EXPECT_EQ(content, "Hi.");
  std::vector<Delta> rest;
  EXPECT_EQ(assembler.finish(ReplyCut::stopped, &rest), ReplyFinish::stop);
  EXPECT_TRUE(rest.empty());
}

TEST(Reply, CompletionsPrintMarkersAsText) {
  for (const bool stream : {false, true}) {
    ApiCall call;
    call.stream = stream;
    const auto writer = make_completion_writer(call, {.model = "demo", .created_s = 1});
    const Token end = *demo_tokenizer().special("[EOS]");
    ReplyAssembler assembler(make_text_parser(demo_tokenizer(), {end}), {});
    std::string out = writer->start();
    std::vector<Token> ids =
        demo_tokenizer().encode_with_specials("a <|open|>think<|sep|> \xE5\xA5\xBD");
    ids.push_back(end);
    for (const Token id : ids) {
      for (const Delta& delta : assembler.feed(id)) out += writer->delta(delta);
    }
    std::vector<Delta> rest;
    const ReplyFinish finish = assembler.finish(ReplyCut::stopped, &rest);
    EXPECT_TRUE(rest.empty());
    out += writer->end(finish, {.prompt_tokens = 1, .completion_tokens = assembler.tokens()});
    std::string text;
    if (stream) {
      std::vector<std::string> frames = data_frames(out);
      EXPECT_EQ(frames.back(), "[DONE]");
      frames.pop_back();
      for (const std::string& frame : frames) text += text_at(parse(frame), "choices.0.text");
      EXPECT_EQ(text_at(parse(frames.back()), "choices.0.finish_reason"), "stop");
      EXPECT_EQ(text_at(parse(frames.back()), "choices.0.usage.completion_tokens"),
                std::to_string(ids.size()));
    } else {
      const JsonValue json = parse(out);
      EXPECT_EQ(text_at(json, "object"), "text_completion");
      text = text_at(json, "choices.0.text");
      EXPECT_EQ(text_at(json, "usage.completion_tokens"), std::to_string(ids.size()));
    }
    EXPECT_EQ(text, "a <|open|>think<|sep|> \xE5\xA5\xBD");
  }
}

TEST(Reply, ErrorsAreOneFrameOrTheBody) {
  for (const bool stream : {false, true}) {
    ApiCall call;
    call.stream = stream;
    const auto writer = make_chat_writer(call, {.model = "demo", .created_s = 1});
    const std::string out = writer->error(shutting_down());
    const std::string json = stream ? data_frames(out).at(0) : out;
    EXPECT_EQ(text_at(parse(json), "error.code"), "shutting_down");
    EXPECT_EQ(stream ? data_frames(out).at(1) : "[DONE]", "[DONE]");
  }
}

}  // namespace
}  // namespace penstock::testing

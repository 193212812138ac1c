// SPDX-License-Identifier: Apache-2.0
//
// What a chat request may say and what not (api.md 5.1, vendor-contract.md).
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/text/chat_format.h"
#include "server/api_error.h"
#include "server/openai_chat.h"
#include "tests/http/http_client.h"
#include "tests/text/chat_fixtures.h"

namespace penstock::testing {
namespace {

constexpr const char* kUser = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kTool =
    R"({"type":"function","function":{"name":"look","parameters":{"type":"object"}}})";

// A request: one user message, and more members.
std::string with(const std::string& members) {
  return std::string("{") + kUser + "," + members + "}";
}

std::string messages(const std::string& list) {
  return R"({"messages":[)" + list + "]}";
}

// A system message that declares the tools.
std::string declares(const std::string& tools, const std::string& more = "") {
  return messages(R"({"role":"system","tools":)" + tools + more +
                  R"(},{"role":"user","content":"hi"})");
}

ApiCall parse_call(const std::string& body) {
  return parse_chat_call(parse(body), {.effort = ThinkingEffort::high});
}

Conversation conversation_of(const std::string& body) {
  return std::get<Conversation>(parse_call(body).prompt);
}

std::optional<ApiError> refusal(const std::string& body) {
  try {
    parse_call(body);
  } catch (const ApiError& error) {
    return error;
  }
  return std::nullopt;
}

struct Refused {
  std::string body;
  const char* param;
  const char* code;
};

void expect_refused(const std::vector<Refused>& cases) {
  for (const Refused& wrong : cases) {
    const std::optional<ApiError> error = refusal(wrong.body);
    ASSERT_TRUE(error) << wrong.body;
    EXPECT_EQ(error->details().status, 400) << wrong.body;
    EXPECT_EQ(error->details().type, "invalid_request_error") << wrong.body;
    EXPECT_EQ(error->details().param, wrong.param) << wrong.body << ": " << error->what();
    EXPECT_EQ(error->details().code, wrong.code) << wrong.body << ": " << error->what();
    EXPECT_NE(std::string(error->what()).find(wrong.param), std::string::npos) << error->what();
  }
}

void expect_taken(const std::vector<std::string>& bodies) {
  for (const std::string& body : bodies) {
    const std::optional<ApiError> error = refusal(body);
    EXPECT_FALSE(error) << body << ": " << error->what();
  }
}

TEST(ChatRequest, NamesTheFieldThatIsWrong) {
  expect_refused({
      {"[]", "the request body", "invalid_type"},
      {"{}", "messages", "missing_required_parameter"},
      {R"({"messages":null})", "messages", "missing_required_parameter"},
      {R"({"messages":{}})", "messages", "invalid_type"},
      {R"({"messages":[]})", "messages", "invalid_value"},
      {messages("5"), "messages[0]", "invalid_type"},
      {messages("{}"), "messages[0].role", "missing_required_parameter"},
      {messages(R"({"role":7})"), "messages[0].role", "invalid_type"},
      {messages(R"({"role":"king"})"), "messages[0].role", "unsupported_value"},
      {messages(R"({"role":"user","content":5})"), "messages[0].content", "invalid_type"},
      {messages(R"({"role":"user","content":{}})"), "messages[0].content", "invalid_type"},
      {messages(R"({"role":"user","content":[5]})"), "messages[0].content[0]", "invalid_type"},
      {messages(R"({"role":"user","content":[{"type":"text"}]})"), "messages[0].content[0].text",
       "missing_required_parameter"},
      {messages(R"({"role":"user","name":[],"content":"x"})"), "messages[0].name", "invalid_type"},
      {messages(R"({"role":"assistant","reasoning_content":5})"), "messages[0].reasoning_content",
       "invalid_type"},
      {messages(R"({"role":"assistant","tool_calls":{}})"), "messages[0].tool_calls",
       "invalid_type"},
      {messages(R"({"role":"assistant","tool_calls":[{"id":"a"}]})"),
       "messages[0].tool_calls[0].function", "missing_required_parameter"},
      {messages(R"({"role":"assistant","tool_calls":[{"function":{"name":""}}]})"),
       "messages[0].tool_calls[0].function.name", "unsupported_value"},
      {messages(R"({"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":5}}]})"),
       "messages[0].tool_calls[0].function.arguments", "invalid_type"},
      {with(R"("n":2)"), "n", "unsupported_value"},
      {with(R"("n":0)"), "n", "unsupported_value"},
      {with(R"("n":"1")"), "n", "invalid_type"},
      {with(R"("n":1.5)"), "n", "invalid_type"},
      {with(R"("max_tokens":0)"), "max_tokens", "unsupported_value"},
      {with(R"("max_tokens":-2)"), "max_tokens", "unsupported_value"},
      {with(R"("max_tokens":"9")"), "max_tokens", "invalid_type"},
      {with(R"("max_completion_tokens":1.5)"), "max_completion_tokens", "invalid_type"},
      {with(R"("stop":5)"), "stop", "invalid_type"},
      {with(R"("stop":["a",5])"), "stop[1]", "invalid_type"},
      {with(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
       "stop", "unsupported_value"},
      {with(R"("stream":"yes")"), "stream", "invalid_type"},
      {with(R"("stream_options":5)"), "stream_options", "invalid_type"},
      {with(R"("stream_options":{"include_usage":1})"), "stream_options.include_usage",
       "invalid_type"},
      {with(R"("modalities":["text","audio"])"), "modalities", "unsupported_value"},
      {with(R"("audio":{"voice":"x"})"), "audio", "unsupported_value"},
  });
}

TEST(ChatRequest, RefusesWhatIsNotText) {
  for (const char* part : {R"({"type":"image_url","image_url":{"url":"x"}})",
                           R"({"type":"input_audio","input_audio":{}})", R"({"type":"file"})",
                           R"({"type":"video_url"})"}) {
    expect_refused({{messages(R"({"role":"user","content":[{"type":"text","text":"a"},)" +
                              std::string(part) + "]}"),
                     "messages[0].content[1].type", "unsupported_content"}});
  }
}

TEST(ChatRequest, IgnoresWhatItHasNoUseFor) {
  expect_taken({
      with(R"("store":false,"prompt_cache_key":"k","temperature":0.7,"top_p":1,"seed":5,
           "user":"u","metadata":{"a":1},"logprobs":true,"top_logprobs":3,"logit_bias":{"5":1},
           "presence_penalty":0,"parallel_tool_calls":false,"context_management":{},
           "client_metadata":{},"modalities":["text"],"service_tier":"auto","verbosity":"low",
           "unknown":[{"deep":null}],"n":1,"stop":null,"tools":null,"tool_choice":null,
           "response_format":null,"thinking":null,"max_tokens":null,"stream":null,"audio":null)"),
      messages(R"({"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,
                   "function_call":null,"tool_calls":null},
                  {"role":"user","content":[{"type":"text","text":"x",
                   "cache_control":{"type":"ephemeral"}}]})"),
  });
}

TEST(ChatRequest, ReadsEveryRoleAndShapeOfContent) {
  const Conversation chat = conversation_of(messages(R"(
      {"role":"developer","content":"a"},
      {"role":"system","content":[{"type":"text","text":"b"},"c"]},
      {"role":"user","name":"Ann","content":[{"type":"input_text","text":"d"},{"text":"e"}]},
      {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[
        {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1e2}"}},
        {"id":"2","type":"function","function":{"name":"g","arguments":{"y":[1,2]}}},
        {"id":"3","type":"custom","custom":{"name":"h","input":"a\"b"}}]},
      {"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"result"}]},
      {"role":"tool","tool_call_id":"1"},
      {"role":"function","name":"h","content":"legacy"},
      {"role":"assistant","reasoning":"q","content":[{"type":"refusal","refusal":"no"}]},
      {"role":"assistant","reasoning_details":[{"text":"not a string"}],"content":""},
      {"role":"assistant","function_call":{"name":"old","arguments":""}})"));
  ASSERT_EQ(chat.messages.size(), 10U);
  EXPECT_EQ(chat.messages[0].role, Role::system);
  ASSERT_EQ(chat.messages[1].content.size(), 2U);
  EXPECT_EQ(chat.messages[1].content[1].text, "c");
  EXPECT_EQ(chat.messages[2].name, "Ann");
  EXPECT_EQ(chat.messages[2].content[1].text, "e");
  const Message& calling = chat.messages[3];
  EXPECT_TRUE(calling.content.empty());
  EXPECT_EQ(calling.reasoning, "r");
  ASSERT_EQ(calling.tool_calls.size(), 3U);
  EXPECT_EQ(calling.tool_calls[0].arguments, "{\"x\":1e2}");
  EXPECT_EQ(calling.tool_calls[1].arguments, "{\"y\": [1, 2]}");
  EXPECT_EQ(calling.tool_calls[2].name, "h");
  EXPECT_EQ(calling.tool_calls[2].arguments, "{\"input\": \"a\\\"b\"}");
  EXPECT_EQ(chat.messages[4].role, Role::tool);
  EXPECT_EQ(chat.messages[4].tool_call_id, "2");
  EXPECT_EQ(chat.messages[5].content.size(), 0U);
  EXPECT_EQ(chat.messages[6].role, Role::tool);
  EXPECT_EQ(chat.messages[6].name, "h");
  EXPECT_EQ(chat.messages[7].reasoning, "q");
  EXPECT_EQ(chat.messages[7].content[0].text, "no");
  EXPECT_EQ(chat.messages[8].reasoning, "");
  EXPECT_EQ(chat.messages[9].tool_calls[0].name, "old");
}

TEST(ChatRequest, ReadsLimitsStopsAndStreaming) {
  EXPECT_EQ(parse_call(with(R"("max_tokens":5)")).max_tokens, 5);
  EXPECT_EQ(parse_call(with(R"("max_tokens":5,"max_completion_tokens":7)")).max_tokens, 7);
  EXPECT_EQ(parse_call(with(R"("max_tokens":1e3)")).max_tokens, 1000);
  EXPECT_EQ(parse_call(with(R"("max_tokens":1e30)")).max_tokens, INT64_MAX);
  EXPECT_EQ(parse_call(with(R"("max_tokens":-1)")).max_tokens, std::nullopt);
  EXPECT_EQ(parse_call(with(R"("x":1)")).max_tokens, std::nullopt);
  EXPECT_EQ(parse_call(with(R"("stop":"a")")).stops, std::vector<std::string>{"a"});
  EXPECT_EQ(parse_call(with(R"("stop":["a","","b"])")).stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(parse_call(with(R"("x":1)")).stream);
  const ApiCall call = parse_call(with(R"("stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_TRUE(call.stream);
  EXPECT_TRUE(call.include_usage);
}

struct Thinks {
  const char* members;
  bool on;
  ThinkingEffort effort;
};

// vendor-contract.md section 1; the server's default is "high" here.
TEST(ChatRequest, FindsThinkingAndEffortInTheirOrder) {
  using enum ThinkingEffort;
  const Thinks cases[] = {
      {R"("x":1)", true, high},
      {R"("thinking":{"type":"enabled"})", true, high},
      {R"("thinking":{"type":"adaptive","keep":"all"})", true, high},
      {R"("thinking":{"type":"disabled","keep":17,"effort":"low"})", false, low},
      {R"("thinking":{"keep":null,"effort":"low"})", true, low},
      {R"("thinking":{"effort":"max"},"reasoning_effort":"low")", true, max},
      {R"("chat_template_kwargs":{"thinking":false},"thinking":{"type":"enabled"})", false, high},
      {R"("chat_template_kwargs":{"enable_thinking":false},"enable_thinking":true)", false, high},
      {R"("chat_template_kwargs":{"thinking":true,"enable_thinking":false})", true, high},
      {R"("chat_template_kwargs":{"thinking_effort":"low"},"thinking":{"effort":"max"})", true,
       low},
      {R"("enable_thinking":false)", false, high},
      {R"("enable_thinking":false,"thinking":{"type":"enabled"})", true, high},
      {R"("reasoning_effort":"low")", true, low},
      {R"("reasoning_effort":"medium")", true, high},
      {R"("reasoning_effort":"xhigh")", true, max},
      {R"("reasoning_effort":"ultra")", true, max},
      {R"("reasoning_effort":"none")", false, low},
      {R"("reasoning_effort":"minimal")", false, low},
      {R"("reasoning_effort":"off")", false, low},
      {R"("reasoning":{"effort":"low","summary":"auto"})", true, low},
      {R"("reasoning":{"effort":"none"})", false, low},
      {R"("reasoning_effort":"max","reasoning":{"effort":"low"})", true, max},
      {R"("reasoning_effort":"none","enable_thinking":true)", true, low},
      {R"("reasoning_effort":null,"thinking":{"type":null})", true, high},
  };
  for (const Thinks& wanted : cases) {
    const Conversation chat = conversation_of(with(wanted.members));
    EXPECT_EQ(chat.thinking, wanted.on) << wanted.members;
    EXPECT_EQ(chat.effort, wanted.effort) << wanted.members;
  }
}

TEST(ChatRequest, RefusesUnknownThinkingAndEffort) {
  expect_refused({
      {with(R"("thinking":true)"), "thinking", "invalid_type"},
      {with(R"("thinking":{"type":"on"})"), "thinking.type", "unsupported_value"},
      {with(R"("thinking":{"type":1})"), "thinking.type", "invalid_type"},
      {with(R"("thinking":{"effort":"huge"})"), "thinking.effort", "unsupported_value"},
      {with(R"("thinking":{"effort":3})"), "thinking.effort", "invalid_type"},
      {with(R"("thinking":{"type":"disabled","effort":3})"), "thinking.effort", "invalid_type"},
      {with(R"("reasoning_effort":"huge")"), "reasoning_effort", "unsupported_value"},
      {with(R"("reasoning_effort":1)"), "reasoning_effort", "invalid_type"},
      {with(R"("reasoning":"high")"), "reasoning", "invalid_type"},
      {with(R"("reasoning":{"effort":"huge"})"), "reasoning.effort", "unsupported_value"},
      {with(R"("enable_thinking":1)"), "enable_thinking", "invalid_type"},
      {with(R"("chat_template_kwargs":{"thinking":"yes"})"), "chat_template_kwargs.thinking",
       "invalid_type"},
      {with(R"("chat_template_kwargs":{"thinking_effort":"none"})"),
       "chat_template_kwargs.thinking_effort", "unsupported_value"},
  });
}

TEST(ChatRequest, ReadsToolChoices) {
  const std::string tools = R"("tools":[)" + std::string(kTool) + "],";
  const auto choice = [&](const char* value) {
    return conversation_of(with(tools + R"("tool_choice":)" + value)).tool_choice;
  };
  EXPECT_EQ(choice(R"("auto")"), ToolChoice::automatic);
  EXPECT_EQ(choice(R"("none")"), ToolChoice::none);
  EXPECT_EQ(choice(R"("required")"), ToolChoice::required);
  EXPECT_EQ(choice("null"), ToolChoice::automatic);
  EXPECT_EQ(choice(R"({"type":"function","function":{"name":"look"}})"), ToolChoice::required);
  EXPECT_EQ(choice(R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})"),
            ToolChoice::required);
  EXPECT_EQ(choice(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto"}})"),
            ToolChoice::automatic);
  expect_taken({with(R"("tool_choice":"auto")"), with(R"("tool_choice":"none")"),
                with(R"("tool_choice":"auto","tools":[])")});
}

TEST(ChatRequest, RefusesToolChoicesThatCannotBe) {
  const std::string tools = R"("tools":[)" + std::string(kTool) + "],";
  expect_refused({
      {with(R"("tool_choice":"required")"), "tool_choice", "invalid_value"},
      {with(R"("tool_choice":"required","tools":[])"), "tool_choice", "invalid_value"},
      {with(R"("tool_choice":"required","tools":[{"type":"web_search"}])"), "tool_choice",
       "invalid_value"},
      {with(R"("tool_choice":{"type":"function","function":{"name":"look"}})"), "tool_choice",
       "invalid_value"},
      {with(tools + R"("tool_choice":"sometimes")"), "tool_choice", "unsupported_value"},
      {with(tools + R"("tool_choice":5)"), "tool_choice", "invalid_type"},
      {with(tools + R"("tool_choice":{})"), "tool_choice.type", "missing_required_parameter"},
      {with(tools + R"("tool_choice":{"type":"any"})"), "tool_choice.type", "unsupported_value"},
      {with(tools + R"("tool_choice":{"type":"function"})"), "tool_choice.name",
       "missing_required_parameter"},
      {with(tools + R"("tool_choice":{"type":"function","function":{}})"),
       "tool_choice.function.name", "missing_required_parameter"},
      {with(tools + R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"x"}})"),
       "tool_choice.allowed_tools.mode", "unsupported_value"},
  });
}

TEST(ChatRequest, SkipsToolsOfUnknownTypes) {
  const Conversation chat = conversation_of(
      with(R"("tools":[{"type":"web_search"},{"type":"namespace","name":"n","tools":[]},)" +
           std::string(kTool) + R"(,{"type":"custom","custom":{"name":"c"}},{"type":5}])"));
  ASSERT_EQ(chat.tools.size(), 1U);
  EXPECT_EQ(write_json(chat.tools[0], kAsSpeltJson), kTool);
  expect_taken({with(R"("tools":[{"type":"function","function":{"name":"9 strange","strict":null}},
                                 {"type":"function","function":{"name":"9 strange"}}])")});
  expect_refused({
      {with(R"("tools":{})"), "tools", "invalid_type"},
      {with(R"("tools":[5])"), "tools[0]", "invalid_type"},
      {with(R"("tools":[{"type":"function"}])"), "tools[0].function", "missing_required_parameter"},
      {with(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name",
       "missing_required_parameter"},
  });
}

// vendor-contract.md section 4.
TEST(ChatRequest, TakesToolsOfSystemMessages) {
  const std::string tools = "[" + std::string(kTool) + "]";
  EXPECT_EQ(conversation_of(declares(tools)).messages[0].tools.size(), 1U);
  expect_taken({
      declares(tools, R"(,"content":"")"),
      declares(tools, R"(,"content":null)"),
      declares("null", R"(,"content":"text")"),
      declares(R"([{"type":"function","function":{"name":"a","strict":false}}])"),
      messages(R"({"role":"user","content":"hi"},{"role":"system","tools":)" + tools + "}"),
      R"({"tool_choice":"required",)" + declares(tools).substr(1),
      R"({"tools":[{"type":"function","function":{"name":"other"}}],)" + declares(tools).substr(1),
  });
}

TEST(ChatRequest, RefusesWrongToolsOfMessages) {
  const std::string tools = "[" + std::string(kTool) + "]";
  const auto named = [](const std::string& name) {
    return declares(R"([{"type":"function","function":{"name":")" + name + "\"}}]");
  };
  const char* const name = "messages[0].tools[0].function.name";
  expect_refused({
      {messages(R"({"role":"user","content":"x","tools":)" + tools + "}"), "messages[0].tools",
       "invalid_value"},
      {messages(R"({"role":"assistant","content":"x","tools":[]})"), "messages[0].tools",
       "invalid_value"},
      {declares(tools, R"(,"content":"x")"), "messages[0].content", "invalid_value"},
      {declares("{}"), "messages[0].tools", "invalid_type"},
      {declares("[5]"), "messages[0].tools[0]", "invalid_type"},
      {declares(R"([{"function":{"name":"a"}}])"), "messages[0].tools[0].type",
       "missing_required_parameter"},
      {declares(R"([{"type":"custom","function":{"name":"a"}}])"), "messages[0].tools[0].type",
       "unsupported_value"},
      {declares(R"([{"type":"function"}])"), "messages[0].tools[0].function",
       "missing_required_parameter"},
      {declares(R"([{"type":"function","function":{}}])"), name, "missing_required_parameter"},
      {named(""), name, "unsupported_value"},
      {named("9a"), name, "unsupported_value"},
      {named("a b"), name, "unsupported_value"},
      {named("-a"), name, "unsupported_value"},
      {named("\xC3\xA9"), name, "unsupported_value"},
      {named(std::string(257, 'a')), name, "unsupported_value"},
      {declares("[" + std::string(kTool) + "," + kTool + "]"), "messages[0].tools[1].function.name",
       "unsupported_value"},
      {messages(R"({"role":"system","tools":)" + tools + R"(},{"role":"system","tools":)" + tools +
                "}"),
       "messages[1].tools[0].function.name", "unsupported_value"},
      {R"({"tools":)" + tools + "," + declares(tools).substr(1), name, "unsupported_value"},
  });
  expect_taken({named("a"), named("_"), named("A-b_9"), named(std::string(256, 'a'))});
}

TEST(ChatRequest, RefusesAResultWithoutACall) {
  expect_refused({{messages(R"({"role":"tool","content":"x"})"), "messages[0].tool_call_id",
                   "missing_required_parameter"},
                  {messages(R"({"role":"tool","name":"f","content":"x"})"),
                   "messages[0].tool_call_id", "missing_required_parameter"}});
  expect_taken({messages(R"({"role":"assistant","tool_calls":[{"function":{"name":"f"}}]},
                            {"role":"tool","content":"x"})")});
}

TEST(ChatRequest, ReadsResponseFormats) {
  const auto format = [](const char* value) {
    return conversation_of(with(R"("response_format":)" + std::string(value)));
  };
  EXPECT_EQ(format(R"({"type":"text"})").response_format, ResponseFormat::text);
  EXPECT_EQ(format(R"({"type":"json_object"})").response_format, ResponseFormat::json_object);
  const Conversation schema = format(
      R"({"type":"json_schema","json_schema":{"name":"a","strict":false,"schema":{"b":1.0}}})");
  EXPECT_EQ(schema.response_format, ResponseFormat::json_schema);
  EXPECT_EQ(write_json(schema.response_schema, kAsSpeltJson), R"({"b":1.0})");
}

TEST(ChatRequest, RefusesWrongResponseFormats) {
  const auto format = [](const char* value) {
    return with(R"("response_format":)" + std::string(value));
  };
  expect_refused({
      {format("5"), "response_format", "invalid_type"},
      {format("{}"), "response_format.type", "missing_required_parameter"},
      {format(R"({"type":"xml"})"), "response_format.type", "unsupported_value"},
      {format(R"({"type":"json_schema"})"), "response_format.json_schema",
       "missing_required_parameter"},
      {format(R"({"type":"json_schema","json_schema":5})"), "response_format.json_schema",
       "invalid_type"},
      {format(R"({"type":"json_schema","json_schema":{"schema":{}}})"),
       "response_format.json_schema.name", "missing_required_parameter"},
      {format(R"({"type":"json_schema","json_schema":{"name":"a"}})"),
       "response_format.json_schema.schema", "missing_required_parameter"},
      {format(R"({"type":"json_schema","json_schema":{"name":"a","schema":[]}})"),
       "response_format.json_schema.schema", "invalid_type"},
      {format(R"({"type":"json_schema","json_schema":{"name":"a","schema":{},"strict":1}})"),
       "response_format.json_schema.strict", "invalid_type"},
  });
}

// The vendor's counts, from the body to the ids.
TEST(ChatRequest, CountsPromptTokensAsTheVendor) {
  const std::optional<std::string> dir = published_k3_dir();
  if (!dir) GTEST_SKIP() << "K3's published files are not here: set PENSTOCK_SHARED";
  const Tokenizer tokenizer = Tokenizer::load(*dir);
  const auto format = make_chat_format("kimi-k3", tokenizer);
  const JsonValue fixture = read_fixture(*dir + "/contract_cases.json");
  const std::vector<JsonValue>& cases = fixture.find("cases")->items;
  EXPECT_EQ(cases.size(), 4U);
  for (const JsonValue& one : cases) {
    const ApiCall call = parse_chat_call(*one.find("request"), {});
    const RenderedPrompt prompt = format->render(std::get<Conversation>(call.prompt));
    EXPECT_EQ(std::to_string(prompt.ids.size()), text_at(one, "rendered_ids"));
    EXPECT_EQ(std::to_string(prompt.prompt_tokens), text_at(one, "prompt_tokens"));
  }
}

TEST(ChatRequest, TakesPartialOnTheLastAnswerOnly) {
  EXPECT_TRUE(conversation_of(messages(R"({"role":"user","content":"x"},
      {"role":"assistant","content":"y","partial":true})"))
                  .messages[1]
                  .partial);
  expect_taken({messages(R"({"role":"user","content":"x","partial":false})"),
                messages(R"({"role":"user","content":"x","partial":null})")});
  expect_refused({
      {messages(R"({"role":"user","content":"x","partial":true})"), "messages[0].partial",
       "invalid_value"},
      {messages(R"({"role":"assistant","partial":true},{"role":"user","content":"x"})"),
       "messages[0].partial", "invalid_value"},
      {messages(R"({"role":"assistant","partial":true,
                    "tool_calls":[{"function":{"name":"f"}}]})"),
       "messages[0].partial", "invalid_value"},
      {messages(R"({"role":"assistant","partial":1})"), "messages[0].partial", "invalid_type"},
  });
}

}  // namespace
}  // namespace penstock::testing

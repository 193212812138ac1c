// SPDX-License-Identifier: Apache-2.0
//
// Bodies that are wrong in every way: each is a 4xx, and the daemon lives.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/http/http_client.h"
#include "tests/http/test_server.h"

namespace penstock::testing {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string object_of(int keys) {
  std::string out = "{";
  for (int i = 0; i < keys; ++i) out += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":0";
  return out + "}";
}

// Every value in the place of every field of a request that would be good.
std::vector<std::string> wrong_types() {
  const std::vector<std::pair<std::string, std::vector<std::string>>> fields = {
      {"messages", {"1", "\"a\"", "{}", "[]", "[1]", "[[]]", "[null]", "[{}]", "true"}},
      {"tools", {"1", "\"a\"", "{}", "[1]", "[null]", "[[]]", "true"}},
      {"tool_choice", {"1", "\"b\"", "{}", "[]", "true", "\"required\""}},
      {"response_format", {"1", "\"text\"", "{}", "[]", "{\"type\":1}", "{\"type\":\"x\"}"}},
      {"thinking", {"1", "\"on\"", "[]", "{\"type\":\"x\"}", "{\"type\":0}", "true"}},
      {"reasoning_effort", {"1", "\"x\"", "{}", "[]", "true"}},
      {"reasoning", {"1", "\"x\"", "[]", "{\"effort\":1}"}},
      {"chat_template_kwargs", {"1", "\"x\"", "[]", "{\"thinking\":1}"}},
      {"enable_thinking", {"1", "\"x\"", "{}", "[]"}},
      {"stream", {"1", "\"true\"", "{}", "[]"}},
      {"stream_options", {"1", "\"x\"", "[]", "true", "{\"include_usage\":{}}"}},
      {"stop", {"1", "{}", "[1]", "[[]]", "true"}},
      {"n", {"0", "2", "-1", "1e300", "\"1\"", "{}", "[]", "true"}},
      {"max_tokens", {"0", "-5", "0.5", "\"1\"", "{}", "[]", "true"}},
      {"max_completion_tokens", {"0", "-5", "0.5", "\"1\"", "{}", "[]", "true"}},
  };
  std::vector<std::string> bodies;
  for (const auto& [field, values] : fields) {
    for (const std::string& value : values) {
      const std::string messages =
          field == "messages" ? "" : R"("messages":[{"role":"user","content":"x"}],)";
      bodies.push_back("{" + messages + "\"" + field + "\":" + value + "}");
    }
  }
  return bodies;
}

std::vector<std::string> wrong_messages() {
  std::vector<std::string> bodies;
  for (const char* message :
       {R"({"role":1})",
        R"({"role":null})",
        R"({"role":"x"})",
        R"({"content":"x"})",
        R"({"role":"user","content":1})",
        R"({"role":"user","content":{}})",
        R"({"role":"user","content":[1]})",
        R"({"role":"user","content":[{"type":"image_url"}]})",
        R"({"role":"user","content":[{"type":1}]})",
        R"({"role":"user","name":1})",
        R"({"role":"user","tools":[]})",
        R"({"role":"user","partial":1})",
        R"({"role":"user","partial":true})",
        R"({"role":"tool"})",
        R"({"role":"assistant","tool_calls":1})",
        R"({"role":"assistant","tool_calls":[1]})",
        R"({"role":"assistant","tool_calls":[{}]})",
        R"({"role":"assistant","tool_calls":[{"function":{"name":1}}]})",
        R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":1}}]})",
        R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]})",
        R"({"role":"assistant","function_call":1})",
        R"({"role":"system","tools":{}})",
        R"({"role":"system","tools":[{}]})",
        R"({"role":"assistant","reasoning_content":1})"}) {
    bodies.push_back(std::string("{\"messages\":[") + message + "]}");
  }
  return bodies;
}

std::vector<std::string> wrong_json() {
  const std::string good = chat_body("\xE5\xA5\xBD", "\"a\":[1,2,{\"b\":null}]");
  std::vector<std::string> bodies = {
      "",
      " ",
      "null",
      "1",
      "\"x\"",
      "[]",
      "{",
      "}",
      "{]",
      "{\"a\"}",
      "{\"a\":}",
      "{\"a\":1,}",
      "{'a':1}",
      "{\"a\":01}",
      "{\"a\":+1}",
      "{\"a\":.5}",
      "{\"a\":NaN}",
      "{\"a\":\"\t\"}",
      "{\"a\":\"\\x\"}",
      "{\"a\":\"\\u12\"}",
      std::string("{\"a\":\0}", 7),
      good + good,
      good + "\xFF",
      "\xEF\xBB\xBF" + good,
      "\xFF\xFE{\0}",
      repeated("[", 100'000),
      repeated("{\"a\":", 100'000),
      "{\"messages\":" + repeated("[", 100'000) + repeated("]", 100'000) + "}",
      object_of(40'000),
      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"," + object_of(40'000).substr(1) + "]}",
      chat_body("x", "\"a\":" + object_of(5000)),
      repeated("x", 1 << 20) + "x",
      R"({"messages":1,"messages":2})",
      R"({"messages":[{"role":"user","content":"x"}],"messages":5})",
      "{\"messages\":\"" + repeated("a", 500'000) + "\"}",
      "[" + repeated("0,", 500'000) + "0]",
  };
  for (std::size_t size = 1; size < good.size(); size += 1) bodies.push_back(good.substr(0, size));
  return bodies;
}

TEST(Malformed, EveryBodyIsA4xxAndTheDaemonLives) {
  TestServer server;
  std::vector<std::string> bodies = wrong_types();
  for (const auto& more : {wrong_messages(), wrong_json()}) {
    bodies.insert(bodies.end(), more.begin(), more.end());
  }
  ASSERT_GE(bodies.size(), 200U);
  for (const std::string& body : bodies) {
    const Answer answer = ask(server.port(), "POST", "/v1/chat/completions", body);
    EXPECT_GE(answer.status, 400) << body.substr(0, 200);
    EXPECT_LT(answer.status, 500) << body.substr(0, 200);
    EXPECT_NE(text_at(answer.json(), "error.message"), "") << body.substr(0, 200);
    EXPECT_LT(answer.body.size(), 2000U);
  }
  EXPECT_TRUE(server.engine().idle());
  const Answer good =
      ask(server.port(), "POST", "/v1/chat/completions", chat_body("Hello", "\"max_tokens\":1"));
  EXPECT_EQ(good.status, 200);
}

TEST(Malformed, CompletionsToo) {
  TestServer server;
  for (const std::string& body :
       {std::string("{}"), std::string("{\"prompt\":"), std::string("{\"prompt\":[\"a\",1]}"),
        "{\"prompt\":" + repeated("[", 100'000) + "}",
        "{\"prompt\":[" + repeated("1,", 200'000) + "1]}", std::string("{\"prompt\":[4352]}")}) {
    EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", body).status, 400)
        << body.substr(0, 100);
  }
  EXPECT_TRUE(server.engine().idle());
}

}  // namespace
}  // namespace penstock::testing

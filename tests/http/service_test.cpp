// SPDX-License-Identifier: Apache-2.0
//
// The demo model over sockets: what a client sees of a whole call, in which order, also when the
// drive stalls, fails, or the client goes away.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/http/http_client.h"
#include "tests/http/test_server.h"

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

Answer chat(const TestServer& server, const std::string& user, const std::string& members = {}) {
  return ask(server.port(), "POST", kChat, chat_body(user, members));
}

std::string content_of(const std::string& stream) {
  std::string content;
  for (const std::string& frame : data_frames(stream)) {
    if (frame != "[DONE]") content += text_at(parse(frame), "choices.0.delta.content");
  }
  return content;
}

bool is_keep_alive(const std::string& chunk) {
  return chunk == ": ping\n\n" || chunk == " ";
}

TEST(Service, AnswersTheSameStreamedAndNot) {
  TestServer server;
  const std::string question = "What is the capital of France?";
  const Answer whole = chat(server, question);
  ASSERT_EQ(whole.status, 200);
  EXPECT_EQ(whole.header("content-type"), "application/json");
  EXPECT_EQ(whole.header("transfer-encoding"), "chunked");
  const JsonValue json = whole.json();
  EXPECT_EQ(text_at(json, "model"), "demo");
  EXPECT_EQ(text_at(json, "choices.0.finish_reason"), "stop");
  const std::string content = text_at(json, "choices.0.message.content");
  EXPECT_NE(content.find("Paris"), std::string::npos) << content;

  const Answer stream =
      chat(server, question, R"("stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(stream.header("content-type"), "text/event-stream");
  EXPECT_EQ(stream.header("cache-control"), "no-cache");
  EXPECT_EQ(content_of(stream.body), content);
  const std::vector<std::string> frames = data_frames(stream.body);
  const JsonValue closing = parse(frames.at(frames.size() - 2));
  EXPECT_EQ(text_at(closing, "usage.prompt_tokens"), text_at(json, "usage.prompt_tokens"));
  EXPECT_EQ(text_at(closing, "usage.completion_tokens"), text_at(json, "usage.completion_tokens"));
}

// The same prompt again starts from the state that was kept; with a stop string too, where the
// engine does not come to tell its statistics.
TEST(Service, CountsCachedTokens) {
  TestServer server;
  const JsonValue first = chat(server, "Hello there").json();
  EXPECT_EQ(text_at(first, "usage.cached_tokens"), "0");
  const JsonValue again = chat(server, "Hello there").json();
  EXPECT_EQ(text_at(again, "usage.cached_tokens"), text_at(again, "usage.prompt_tokens"));
  const std::string content = text_at(again, "choices.0.message.content");
  ASSERT_GT(content.size(), 4U);
  std::string stop = R"("stop":)";
  append_json_string(content.substr(2, 2), &stop);
  const JsonValue stopped = chat(server, "Hello there", stop).json();
  EXPECT_EQ(text_at(stopped, "choices.0.message.content"),
            content.substr(0, content.find(content.substr(2, 2))));
  EXPECT_EQ(text_at(stopped, "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(stopped, "usage.cached_tokens"), text_at(again, "usage.prompt_tokens"));
  EXPECT_LT(std::stoi(text_at(stopped, "usage.completion_tokens")),
            std::stoi(text_at(again, "usage.completion_tokens")));
  EXPECT_TRUE(server.becomes_idle_within(1s));
}

TEST(Service, ClampsAndCutsAtMaxTokens) {
  TestServer server;
  const JsonValue cut = chat(server, "Hello", R"("max_tokens":3)").json();
  EXPECT_EQ(text_at(cut, "choices.0.finish_reason"), "length");
  EXPECT_EQ(text_at(cut, "usage.completion_tokens"), "3");
  EXPECT_EQ(text_at(cut, "choices.0.message.content"), "");
  EXPECT_NE(text_at(cut, "choices.0.message.reasoning_content"), "");
  EXPECT_EQ(chat(server, "Hello", R"("max_tokens":262144)").status, 200);
}

TEST(Service, ContinuesAPartialAnswer) {
  TestServer server;
  const Answer answer = ask(server.port(), "POST", kChat, R"({"thinking":{"type":"disabled"},
      "messages":[{"role":"user","content":"What is the capital of France?"},
      {"role":"assistant","content":"The capital of France is","partial":true}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(text_at(answer.json(), "choices.0.message.content"), " Paris.");
}

TEST(Service, CompletesTextAndIds) {
  TestServer server;
  const Answer text =
      ask(server.port(), "POST", kText, R"({"prompt":"The capital of","max_tokens":5})");
  ASSERT_EQ(text.status, 200) << text.body;
  EXPECT_EQ(text_at(text.json(), "object"), "text_completion");
  EXPECT_EQ(text_at(text.json(), "usage.completion_tokens"), "5");
  const std::vector<Token> ids = server.model().tokenizer().encode_ordinary("The capital of");
  std::string list;
  for (const Token id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  const std::string by_ids = "{\"prompt\":[" + list + "],\"max_tokens\":5";
  const Answer same = ask(server.port(), "POST", kText, by_ids + "}");
  EXPECT_EQ(text_at(same.json(), "choices.0.text"), text_at(text.json(), "choices.0.text"));
  EXPECT_EQ(text_at(same.json(), "usage.prompt_tokens"), std::to_string(ids.size()));
  std::string streamed;
  const Answer stream = ask(server.port(), "POST", kText, by_ids + ",\"stream\":true}");
  for (const std::string& frame : data_frames(stream.body)) {
    if (frame != "[DONE]") streamed += text_at(parse(frame), "choices.0.text");
  }
  EXPECT_EQ(streamed, text_at(text.json(), "choices.0.text"));
  EXPECT_EQ(ask(server.port(), "POST", kText, R"({"prompt":[999999]})").status, 400);
}

TEST(Service, RefusesAPromptThatIsTooLong) {
  TestServer server({.context_tokens = 128});
  std::string text;
  for (int i = 0; i < 200; ++i) text += " word";
  const Answer answer = chat(server, text, "\"stream\":true");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(text_at(answer.json(), "error.code"), "context_length_exceeded");
  const std::string message = text_at(answer.json(), "error.message");
  EXPECT_NE(message.find("maximum context length is 128 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("reduce the length of the messages"), std::string::npos) << message;
}

TEST(Service, ListsModelsAndHealthAlsoWhileLoading) {
  TestServer loading({.load = false});
  const Answer health = ask(loading.port(), "GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(text_at(health.json(), "error.code"), "model_loading");
  EXPECT_NE(health.header("retry-after"), "");
  EXPECT_EQ(text_at(ask(loading.port(), "GET", "/v1/models").json(), "data.0.id"), "demo");
  const Answer early = chat(loading, "Hello");
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(text_at(early.json(), "error.code"), "model_loading");

  TestServer ready;
  EXPECT_EQ(text_at(ask(ready.port(), "GET", "/v1/health").json(), "status"), "ok");
  const JsonValue models = ask(ready.port(), "GET", "/models").json();
  EXPECT_EQ(text_at(models, "object"), "list");
  EXPECT_EQ(text_at(models, "data.0.context_length"), "1024");
  EXPECT_EQ(text_at(ask(ready.port(), "GET", "/v1/models/demo").json(), "id"), "demo");
  const Answer unknown = ask(ready.port(), "GET", "/v1/models/other/one");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(text_at(unknown.json(), "error.code"), "model_not_found");
  EXPECT_EQ(ask(ready.port(), "POST", "/v1/embeddings", "{}").status, 501);
}

TEST(Service, TellsWrongBodies) {
  TestServer server;
  const auto post = [&](const std::string& body, const char* type) {
    return ask(server.port(), "POST", kChat, body, {{"Content-Type", type}}).status;
  };
  EXPECT_EQ(post("", "application/json"), 400);
  EXPECT_EQ(post("{", "application/json"), 400);
  EXPECT_EQ(post("<xml/>", "application/xml"), 415);
  EXPECT_EQ(post("a=b", "application/x-www-form-urlencoded"), 400);
  EXPECT_EQ(post(chat_body("x", "\"max_tokens\":1"), "text/plain"), 200);
  // Refused by the chat format.
  const Answer lost = ask(server.port(), "POST", kChat, R"({"messages":[
      {"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"a","content":"x"},
      {"role":"tool","tool_call_id":"b","content":"x"}]})");
  EXPECT_EQ(lost.status, 400);
  EXPECT_NE(text_at(lost.json(), "error.message").find("tool_call_id b not found"),
            std::string::npos)
      << lost.body;
}

// The drive hangs: head and role come all the same, then signs of life, and at last the answer.
TEST(Service, ShowsLifeInASilentPrefill) {
  TestServer server;
  for (const bool stream : {true, false}) {
    server.hang();
    HttpClient client(server.port());
    client.send_request("POST", kChat,
                        chat_body(stream ? "Hello" : "Hello again",
                                  stream ? "\"stream\":true" : "\"stream\":false"));
    EXPECT_EQ(client.read_head().status, 200);
    if (stream) {
      EXPECT_NE(client.read_chunk()->find(R"("delta":{"role":"assistant","content":""})"),
                std::string::npos);
    }
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_keep_alive(*client.read_chunk()));
    server.release();
    const std::string rest = client.read_rest();
    if (stream) {
      EXPECT_EQ(data_frames(rest).back(), "[DONE]");
    } else {
      EXPECT_EQ(text_at(parse(rest), "choices.0.finish_reason"), "stop");
    }
  }
}

TEST(Service, ShowsLifeInTheQueueAndServesInOrder) {
  TestServer server;
  server.hang();
  HttpClient first(server.port()), second(server.port());
  first.send_request("POST", kChat, chat_body("Hello", "\"stream\":true"));
  first.read_head();
  first.read_chunk();
  second.send_request("POST", kChat, chat_body("What is 1+1?", "\"stream\":true"));
  EXPECT_EQ(second.read_head().status, 200);
  EXPECT_NE(second.read_chunk()->find("assistant"), std::string::npos);
  EXPECT_TRUE(is_keep_alive(*second.read_chunk()));
  server.release();
  EXPECT_EQ(data_frames(first.read_rest()).back(), "[DONE]");
  EXPECT_EQ(data_frames(second.read_rest()).back(), "[DONE]");
}

TEST(Service, RefusesWhenTheQueueIsFullBeforeAnyFrame) {
  TestServer server({.max_waiting = 1});
  server.hang();
  std::vector<std::unique_ptr<HttpClient>> taken;
  for (int i = 0; i < 2; ++i) {
    taken.push_back(std::make_unique<HttpClient>(server.port()));
    taken.back()->send_request("POST", kChat, chat_body("Hello", "\"stream\":true"));
    EXPECT_EQ(taken.back()->read_head().status, 200);
    // The engine has taken the first one up when a sign of life came.
    while (!is_keep_alive(*taken.back()->read_chunk())) {
    }
  }
  const Answer refused = chat(server, "Hello", "\"stream\":true");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "30");
  EXPECT_EQ(text_at(refused.json(), "error.code"), "queue_full");
  EXPECT_EQ(text_at(refused.json(), "error.type"), "requests");
  server.release();
  for (auto& client : taken) EXPECT_EQ(data_frames(client->read_rest()).back(), "[DONE]");
}

enum class Phase { prefill, decode, queue };

// A client is killed; another one, which waits, gets its answer.
void kill_a_client(Phase phase, bool stream) {
  TestServer server;
  const std::string members = stream ? "\"stream\":true" : "\"stream\":false";
  if (phase != Phase::decode) server.hang();
  HttpClient before(server.port()), after(server.port());
  if (phase == Phase::queue) {
    before.send_request("POST", kChat, chat_body("Hello", members));
    before.read_head();
  }
  {
    HttpClient killed(server.port());
    killed.send_request("POST", kChat, chat_body("Tell me a long story about ducks", members));
    killed.read_head();
    if (phase == Phase::decode && stream) {
      while (killed.read_chunk()->find("content\":\"") == std::string::npos) {
      }
      server.hang();
    }
    after.send_request("POST", kChat, chat_body("What is 1+1?", members));
    after.read_head();
    if (phase == Phase::decode && !stream) std::this_thread::sleep_for(5ms);
  }
  if (phase == Phase::queue) {
    server.release();
    EXPECT_NE(before.read_rest(), "");
  }
  // While the drive still hangs, the one behind the killed one is next.
  if (phase != Phase::queue) server.release();
  const std::string rest = after.read_rest();
  EXPECT_NE(rest.find("\"stop\""), std::string::npos) << rest;
  EXPECT_TRUE(server.becomes_idle_within(1s));
}

TEST(Service, SurvivesAClientKilledInPrefill) {
  kill_a_client(Phase::prefill, true);
  kill_a_client(Phase::prefill, false);
}
TEST(Service, SurvivesAClientKilledInDecode) {
  kill_a_client(Phase::decode, true);
  kill_a_client(Phase::decode, false);
}
TEST(Service, SurvivesAClientKilledInTheQueue) {
  kill_a_client(Phase::queue, true);
  kill_a_client(Phase::queue, false);
}

// Nothing but the killed request, and a drive that never answers: only cancelling ends it.
TEST(Service, IsIdleSoonAfterTheOnlyClientIsGone) {
  for (const char* members : {"\"stream\":true", "\"stream\":false"}) {
    TestServer server;
    server.hang();
    {
      HttpClient client(server.port());
      client.send_request("POST", kChat, chat_body("Hello", members));
      client.read_head();
    }
    EXPECT_TRUE(server.becomes_idle_within(1s)) << members;
  }
}

TEST(Service, TellsAFailedReadAndGoesOn) {
  TestServer server;
  server.fail_reads();
  const Answer stream = chat(server, "Hello", "\"stream\":true");
  EXPECT_EQ(stream.status, 200);
  const std::vector<std::string> frames = data_frames(stream.body);
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(text_at(parse(frames[1]), "error.type"), "server_error");
  EXPECT_EQ(frames[2], "[DONE]");
  const Answer whole = chat(server, "Hello");
  EXPECT_EQ(text_at(whole.json(), "error.type"), "server_error");
  server.release();
  EXPECT_EQ(text_at(chat(server, "Hello").json(), "choices.0.finish_reason"), "stop");
}

TEST(Service, DrainsThenStops) {
  TestServer server;
  server.hang();
  HttpClient running(server.port()), waiting(server.port());
  running.send_request("POST", kChat, chat_body("Hello", "\"stream\":true"));
  running.read_head();
  while (!is_keep_alive(*running.read_chunk())) {
  }
  waiting.send_request("POST", kChat, chat_body("Hello", "\"stream\":true"));
  waiting.read_head();
  server.state().drain();
  // What waits does not begin, what comes is refused, what runs goes on.
  const std::vector<std::string> refused = data_frames(waiting.read_rest());
  EXPECT_EQ(text_at(parse(refused.at(refused.size() - 2)), "error.code"), "shutting_down");
  EXPECT_EQ(chat(server, "Hello").status, 503);
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 503);
  EXPECT_TRUE(comes_true([&] { return server.state().active_replies() == 1; }));
  server.state().stop();
  const std::vector<std::string> stopped = data_frames(running.read_rest());
  EXPECT_EQ(text_at(parse(stopped.at(stopped.size() - 2)), "error.code"), "shutting_down");
  EXPECT_EQ(stopped.back(), "[DONE]");
  server.stop();
}

TEST(Service, LetsTheRunningReplyFinishWhileDraining) {
  TestServer server;
  server.hang();
  HttpClient running(server.port());
  running.send_request("POST", kChat, chat_body("Hello", "\"stream\":true"));
  running.read_head();
  while (!is_keep_alive(*running.read_chunk())) {
  }
  server.state().drain();
  server.release();
  const std::vector<std::string> frames = data_frames(running.read_rest());
  EXPECT_EQ(text_at(parse(frames.at(frames.size() - 2)), "choices.0.finish_reason"), "stop");
}

TEST(Service, AnswersOthersBesideManyIdleConnections) {
  ServerOptions options = test_options();
  options.worker_threads = 384;
  options.idle_connection = 5s;
  TestServer server({.server = options, .max_waiting = 0});
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(std::make_unique<HttpClient>(server.port()));
  EXPECT_EQ(ask(server.port(), "GET", "/health").status, 200);
  EXPECT_EQ(chat(server, "Hello").status, 429);
  for (const auto& client : idle) client->send_request("GET", "/health");
  for (const auto& client : idle) EXPECT_EQ(client->read_answer().status, 200);
}

}  // namespace
}  // namespace penstock::testing

// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "server/api_error.h"
#include "tests/http/http_client.h"
#include "tests/http/test_server.h"
#include "tests/support/expect_error.h"

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;

HttpResponse echo(const HttpRequest& request) {
  return {.content_type = "text/plain", .body = request.path + "|" + request.body};
}

std::vector<HttpRoute> echo_routes() {
  return {{"GET", "/", false, echo},
          {"GET", "/open", false, echo},
          {"GET", "/things/", true, echo},
          {"POST", "/echo", true, echo},
          {"POST", "/throws", true,
           [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("a secret"); }},
          {"POST", "/slow", true,
           [](const HttpRequest& request) {
             std::this_thread::sleep_for(20ms);
             return echo(request);
           }},
          {"POST", "/refused", true, echo, [] { throw shutting_down(); }},
          {"POST", "/stream", true, [](const HttpRequest&) -> HttpResponse {
             return {.content_type = "text/event-stream", .stream = [](HttpStream& out) {
                       out.write("one");
                       out.write("two");
                     }};
           }}};
}

class EchoServer {
 public:
  explicit EchoServer(ServerOptions options = test_options(),
                      std::vector<HttpRoute> routes = echo_routes())
      : server_(options, std::move(routes)) {
    server_.start();
  }
  int port() const { return server_.port(); }

 private:
  HttpServer server_;
};

TEST(HttpServer, ServesPathsAsClientsSpellThem) {
  const EchoServer server;
  for (const char* path : {"/echo", "/v1/echo", "//v1//echo", "/v1/echo/", "/echo?beta=true",
                           "/v1/echo/?a=b/c", "/echo#x", "/%65cho"}) {
    const Answer answer = ask(server.port(), "POST", path, "hello");
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.body, "/echo|hello") << path;
  }
  EXPECT_EQ(ask(server.port(), "GET", "/v1/things/a%2Fb/c").body, "/things/a/b/c|");
  EXPECT_EQ(ask(server.port(), "GET", "/v1").body, "/|");
}

TEST(HttpServer, AnswersHeadAndUnknownPathsAndMethods) {
  const EchoServer server;
  const Answer head = ask(server.port(), "HEAD", "/");
  EXPECT_EQ(head.status, 200);
  const Answer unknown = ask(server.port(), "GET", "/v1/nothing");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(text_at(unknown.json(), "error.code"), "unknown_url");
  EXPECT_EQ(ask(server.port(), "GET", "/things").status, 404);
  const Answer wrong = ask(server.port(), "GET", "/echo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST, OPTIONS");
  EXPECT_EQ(text_at(wrong.json(), "error.type"), "invalid_request_error");
  for (const char* method : {"PUT", "PATCH", "DELETE"}) {
    EXPECT_EQ(ask(server.port(), method, "/echo", "x").status, 405) << method;
  }
  const Answer strange = ask(server.port(), "BREW", "/echo");
  EXPECT_EQ(strange.status, 400);
  EXPECT_EQ(text_at(strange.json(), "error.type"), "invalid_request_error");
  EXPECT_NE(strange.header("x-request-id"), "");
}

TEST(HttpServer, KeepsAConnectionForManyRequests) {
  const EchoServer server;
  HttpClient client(server.port());
  for (int i = 0; i < 30; ++i) {
    const std::string body = std::to_string(i);
    client.send_request(i % 3 == 2 ? "GET" : "POST", i % 3 == 2 ? "/open" : "/echo",
                        i % 3 == 2 ? "" : body);
    EXPECT_EQ(client.read_answer().body, i % 3 == 2 ? "/open|" : "/echo|" + body);
  }
}

// Errors that come before the body is read must leave the connection usable, or end it.
TEST(HttpServer, DoesNotReadABodyAsTheNextRequest) {
  ServerOptions options = test_options();
  options.max_body_bytes = 100;
  const EchoServer server(options);
  std::optional<HttpClient> client;
  for (const auto& [path, status] : {std::pair("/nothing", 404),
                                     {"/throws", 500},
                                     {"/echo", 200},
                                     {"/echo", 413},
                                     {"/open", 405},
                                     {"/echo", 200}}) {
    if (!client) client.emplace(server.port());
    const std::string body = "GET /open HTTP/1.1\r\n\r\n";
    client->send_request("POST", path, status == 413 ? std::string(101, 'x') : body);
    const Answer answer = client->read_answer();
    EXPECT_EQ(answer.status, status) << path;
    if (answer.header("connection") != "close") continue;
    EXPECT_TRUE(client->closed_by_server()) << path;
    client.reset();
  }
  HttpClient getter(server.port());
  getter.send_request("GET", "/open", "GET /open HTTP/1.1\r\n\r\n");
  EXPECT_EQ(getter.read_answer().status, 200);
  EXPECT_TRUE(getter.closed_by_server());
}

TEST(HttpServer, LimitsBodiesHoweverTheyAreSent) {
  ServerOptions options = test_options();
  options.max_body_bytes = 1000;
  const EchoServer server(options);
  EXPECT_EQ(ask(server.port(), "POST", "/echo", std::string(1000, 'x')).status, 200);
  const Answer large = ask(server.port(), "POST", "/echo", std::string(1001, 'x'));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(text_at(large.json(), "error.code"), "request_too_large");
  EXPECT_EQ(ask(server.port(), "POST", "/echo", std::string(300'000, 'x')).status, 413);

  HttpClient chunked(server.port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) chunked.send("190\r\n" + std::string(400, 'x') + "\r\n");
  chunked.send("0\r\n\r\n");
  EXPECT_EQ(chunked.read_answer().status, 413);

  const Headers form = {{"Content-Type", "application/x-www-form-urlencoded"}};
  EXPECT_EQ(ask(server.port(), "POST", "/echo", std::string(900, 'x'), form).status, 200);
}

TEST(HttpServer, TakesFormBodiesOfAnySize) {
  const EchoServer server;
  const Headers form = {{"Content-Type", "application/x-www-form-urlencoded"}};
  const std::string body(100'000, 'x');
  EXPECT_EQ(ask(server.port(), "POST", "/echo", body, form).body, "/echo|" + body);
}

TEST(HttpServer, EndsAConnectionWhoseBodyEndsEarly) {
  const EchoServer server;
  HttpClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  client.stop_sending();
  // The library's versions differ in what a client that sends no more gets to read.
  EXPECT_NO_THROW(client.read_to_end());
}

TEST(HttpServer, AnswersAPostWithoutBodyAtOnce) {
  const EchoServer server;
  HttpClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "/echo|");
}

TEST(HttpServer, AnswersExpectContinue) {
  const EchoServer server;
  HttpClient client(server.port());
  client.send_request("POST", "/echo", "abc", {{"Expect", "100-continue"}});
  EXPECT_EQ(client.read_head().status, 100);
  EXPECT_EQ(client.read_answer().body, "/echo|abc");
}

TEST(HttpServer, IgnoresRangesAndCompression) {
  const EchoServer server;
  const Answer part = ask(server.port(), "GET", "/open", "", {{"Range", "bytes=0-1"}});
  EXPECT_EQ(part.status, 200);
  EXPECT_EQ(part.body, "/open|");
  HttpClient client(server.port());
  client.send_request("POST", "/stream", "", {{"Accept-Encoding", "gzip, br"}});
  const Head head = client.read_head();
  EXPECT_EQ(head.header("content-encoding"), "");
  EXPECT_EQ(client.read_chunk(), "one");
  EXPECT_EQ(client.read_chunk(), "two");
  EXPECT_EQ(client.read_chunk(), std::nullopt);
}

TEST(HttpServer, StreamsToOldClientsWithoutChunks) {
  const EchoServer server;
  HttpClient client(server.port());
  client.send("POST /stream HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "onetwo");
}

TEST(HttpServer, HidesWhatItDidNotExpect) {
  const EchoServer server;
  const Answer answer = ask(server.port(), "POST", "/throws");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(text_at(answer.json(), "error.type"), "server_error");
  EXPECT_EQ(answer.body.find("secret"), std::string::npos);
}

TEST(HttpServer, RefusesBeforeItReadsABody) {
  const EchoServer server;
  HttpClient client(server.port());
  client.send("POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("retry-after"), "30");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_EQ(text_at(answer.json(), "error.code"), "shutting_down");
  EXPECT_TRUE(client.closed_by_server());
}

TEST(HttpServer, NamesEveryRequest) {
  const EchoServer server;
  const std::string own = ask(server.port(), "GET", "/open").header("x-request-id");
  EXPECT_EQ(own.rfind("req_", 0), 0U);
  EXPECT_EQ(own.size(), 28U);
  EXPECT_EQ(
      ask(server.port(), "GET", "/open", "", {{"X-Request-Id", "abc-1"}}).header("x-request-id"),
      "abc-1");
  EXPECT_EQ(ask(server.port(), "GET", "/no", "", {{"X-Client-Request-Id", "abc-2"}})
                .header("x-request-id"),
            "abc-2");
  EXPECT_EQ(ask(server.port(), "GET", "/open", "", {{"X-Request-Id", "not <sane>"}})
                .header("x-request-id")
                .rfind("req_", 0),
            0U);
}

TEST(HttpServer, SaysHowLongTheHeadersTook) {
  const EchoServer server;
  const auto is_count = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const char* path : {"/echo", "/stream", "/throws", "/nothing"}) {
    const std::string taken = ask(server.port(), "POST", path, "x").header("openai-processing-ms");
    EXPECT_TRUE(is_count(taken)) << path << ": " << taken;
  }
  const std::string slow = ask(server.port(), "POST", "/slow", "x").header("openai-processing-ms");
  ASSERT_TRUE(is_count(slow)) << slow;
  EXPECT_GE(std::stoi(slow), 20);
}

TEST(HttpServer, AsksForAKeyInAnyOfTheForms) {
  ServerOptions options = test_options();
  options.api_keys = {"first", "second"};
  const EchoServer server(options);
  for (const Headers& headers :
       {Headers{{"Authorization", "Bearer first"}}, Headers{{"authorization", "bearer second"}},
        Headers{{"x-api-key", "first"}}, Headers{{"api-key", "second"}},
        Headers{{"Authorization", "Bearer no"}, {"x-api-key", "first"}}}) {
    EXPECT_EQ(ask(server.port(), "POST", "/echo", "x", headers).status, 200);
  }
  for (const Headers& headers :
       {Headers{}, Headers{{"Authorization", "Bearer firs"}}, Headers{{"Authorization", "first"}},
        Headers{{"x-api-key", ""}}, Headers{{"api-key", "Bearer first"}}}) {
    const Answer answer = ask(server.port(), "POST", "/echo", "x", headers);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.header("www-authenticate"), "Bearer");
    EXPECT_EQ(text_at(answer.json(), "error.code"), "invalid_api_key");
  }
  EXPECT_EQ(ask(server.port(), "GET", "/open").status, 200);
  EXPECT_EQ(ask(server.port(), "OPTIONS", "/echo").status, 204);
}

TEST(HttpServer, AnswersPreflights) {
  ServerOptions options = test_options();
  options.api_keys = {"key"};
  const EchoServer server(options);
  const Answer answer =
      ask(server.port(), "OPTIONS", "/v1/echo", "",
          {{"Origin", "http://localhost:3000"},
           {"Access-Control-Request-Method", "POST"},
           {"Access-Control-Request-Headers", "authorization,x-stainless-timeout"},
           {"Access-Control-Request-Private-Network", "true"}});
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "http://localhost:3000");
  EXPECT_EQ(answer.header("access-control-allow-headers"), "authorization,x-stainless-timeout");
  EXPECT_EQ(answer.header("access-control-allow-methods"), "GET, POST, DELETE, OPTIONS, HEAD");
  EXPECT_EQ(answer.header("access-control-allow-private-network"), "true");
  EXPECT_EQ(answer.header("access-control-max-age"), "86400");
  EXPECT_EQ(answer.header("vary"), "Origin");
}

TEST(HttpServer, LetsOnlyKnownPagesCall) {
  ServerOptions options = test_options();
  options.cors_origins = {"localhost", "https://chat.example"};
  const EchoServer server(options);
  for (const char* origin : {"http://localhost:3000", "http://127.0.0.1", "http://[::1]:5173",
                             "https://chat.example", "chrome-extension://abc"}) {
    const Answer answer = ask(server.port(), "POST", "/echo", "x", {{"Origin", origin}});
    EXPECT_EQ(answer.status, 200) << origin;
    EXPECT_EQ(answer.header("access-control-allow-origin"), origin);
    EXPECT_EQ(answer.header("access-control-expose-headers"), "x-request-id, retry-after");
  }
  for (const char* origin : {"https://evil.example", "null", "http://localhost.evil.example"}) {
    const Answer answer = ask(server.port(), "POST", "/echo", "x", {{"Origin", origin}});
    EXPECT_EQ(answer.status, 403) << origin;
    EXPECT_EQ(answer.header("access-control-allow-origin"), "");
    EXPECT_EQ(text_at(answer.json(), "error.type"), "permission_error");
    EXPECT_EQ(ask(server.port(), "OPTIONS", "/echo", "", {{"Origin", origin}}).status, 403);
  }
  ServerOptions open = test_options();
  open.cors_origins = {"*"};
  const EchoServer anyone(open);
  const Headers evil = {{"Origin", "https://evil.example"}, {"Host", "evil.example"}};
  EXPECT_EQ(ask(anyone.port(), "POST", "/echo", "x", evil).status, 200);
}

TEST(HttpServer, RefusesNamesThatRebindingWouldUse) {
  const EchoServer server;
  for (const char* host : {"localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.localhost"}) {
    EXPECT_EQ(ask(server.port(), "GET", "/open", "", {{"Host", host}}).status, 200) << host;
  }
  EXPECT_EQ(ask(server.port(), "GET", "/open", "", {{"Host", "evil.example:80"}}).status, 403);
  EXPECT_EQ(ask(server.port(), "GET", "/open", "",
                {{"Host", "evil.example"}, {"Origin", "http://evil.example"}})
                .status,
            403);
  ServerOptions options = test_options();
  options.api_keys = {"key"};
  const EchoServer keyed(options);
  EXPECT_EQ(ask(keyed.port(), "GET", "/open", "", {{"Host", "box.example"}}).status, 200);
}

TEST(HttpServer, NeedsAKeyWhereOthersReachIt) {
  ServerOptions options = test_options();
  options.host = "0.0.0.0";
  const Error error = error_of([&] { const EchoServer server(options); });
  EXPECT_EQ(error.code(), ErrorCode::usage);
  options.allow_no_key = true;
  EXPECT_EQ(ask(EchoServer(options).port(), "GET", "/open").status, 200);
  options.allow_no_key = false;
  options.api_keys = {"key"};
  EXPECT_EQ(ask(EchoServer(options).port(), "GET", "/open").status, 200);
}

TEST(HttpServer, SharesItsPortWithNobody) {
  const EchoServer server;
  ServerOptions options = test_options();
  options.port = server.port();
  const Error error = error_of([&] { const EchoServer second(options); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_NE(std::string(error.what()).find("Address already in use"), std::string::npos)
      << error.what();
}

TEST(HttpServer, NoticesThatAClientIsGone) {
  std::promise<bool> noticed;
  std::vector<HttpRoute> routes = {
      {"POST", "/wait", true, [&noticed](const HttpRequest&) -> HttpResponse {
         return {.stream = [&noticed](HttpStream& out) {
           const auto end = std::chrono::steady_clock::now() + 10s;
           while (!out.client_gone() && std::chrono::steady_clock::now() < end) {
             std::this_thread::sleep_for(5ms);
           }
           noticed.set_value(out.client_gone() && !out.write("x"));
         }};
       }}};
  const EchoServer server(test_options(), routes);
  {
    HttpClient client(server.port());
    client.send_request("POST", "/wait", "{}");
    EXPECT_EQ(client.read_head().status, 200);  // although nothing was written yet
  }
  EXPECT_TRUE(noticed.get_future().get());
}

TEST(HttpServer, SurvivesWhatIsNotHttp) {
  const EchoServer server;
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("\x16\x03\x01\x02\x00"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"),
        "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + std::string(9000, 'a') + "\r\n\r\n",
        std::string("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    HttpClient client(server.port());
    client.send(bytes);
    client.stop_sending();
    try {
      EXPECT_LT(client.read_answer().status, 500);
    } catch (const std::runtime_error&) {
      // Closed without an answer.
    }
  }
  EXPECT_EQ(ask(server.port(), "GET", "/open").status, 200);
}

}  // namespace
}  // namespace penstock::testing

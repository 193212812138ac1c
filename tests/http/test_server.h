// SPDX-License-Identifier: Apache-2.0
//
// A server for tests: the demo model behind sockets on loopback, its drive under our control.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/chat_service.h"
#include "server/http_server.h"
#include "server/served_model.h"
#include "tests/support/faulty_source.h"

namespace penstock::testing {

// Options of a test: a free port, few threads, short intervals.
ServerOptions test_options();

struct TestServerOptions {
  ServerOptions server = test_options();
  std::int32_t max_waiting = 16;
  std::int64_t context_tokens = 1024;
  bool load = true;  // false: the model never gets ready
};

class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  int port() const { return http_->port(); }
  ServerState& state() { return state_; }
  Engine& engine() { return state_.model()->engine(); }
  const ServedModel& model() { return *state_.model(); }

  // Reads that start from now on block, until release().
  void hang();
  void release();
  void fail_reads();  // every read from now on, until release()

  // Nothing runs, waits, or is still written.
  bool becomes_idle_within(std::chrono::milliseconds time);
  void stop();  // waits for all handlers

 private:
  EngineOptions engine_options(const TestServerOptions& options);
  void load(const EngineOptions& options);

  ServerState state_{"demo"};
  std::unique_ptr<ChatService> service_;
  std::unique_ptr<HttpServer> http_;
  std::mutex mutex_;
  std::vector<FaultySource*> sources_;
};

bool comes_true(const std::function<bool()>& condition,
                std::chrono::milliseconds time = std::chrono::seconds(10));

// A chat body: one user message, and more members ("\"stream\": true").
std::string chat_body(const std::string& user, const std::string& members = {});

}  // namespace penstock::testing

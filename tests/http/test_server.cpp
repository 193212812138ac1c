// SPDX-License-Identifier: Apache-2.0
#include "tests/http/test_server.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "engine/io/byte_source.h"
#include "server/admin_routes.h"

namespace penstock::testing {
namespace {

// The log is for operators; a failing test says what it saw.
class QuietLog : public ::testing::Environment {
 public:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};
[[maybe_unused]] const auto* const kQuietLog =
    ::testing::AddGlobalTestEnvironment(new QuietLog);  // owned by GoogleTest

}  // namespace

using namespace std::chrono_literals;

ServerOptions test_options() {
  ServerOptions options;
  options.port = 0;
  options.worker_threads = 16;
  options.keep_alive = 50ms;
  options.poll_interval = 20ms;
  options.idle_connection = 1s;
  options.max_body_bytes = 1 << 20;
  return options;
}

EngineOptions TestServer::engine_options(const TestServerOptions& options) {
  EngineOptions engine;
  engine.max_waiting = options.max_waiting;
  engine.model.dir = PENSTOCK_SOURCE_DIR "/config/demo-model";
  engine.model.threads = 2;
  engine.model.memory.context_tokens = options.context_tokens;
  engine.model.memory.expert_slots = 1;  // as few as possible: every token reads
  engine.model.opener = [this](const std::string& path) {
    auto source = std::make_unique<FaultySource>(open_source(path));
    const bool is_shard = std::filesystem::path(path).extension() == ".safetensors";
    const std::lock_guard lock(mutex_);
    if (is_shard) sources_.push_back(source.get());
    return source;
  };
  return engine;
}

TestServer::TestServer(const TestServerOptions& options) {
  service_ = std::make_unique<ChatService>(state_, options.server);
  std::vector<HttpRoute> routes = admin_routes(state_);
  for (HttpRoute& route : service_->routes()) routes.push_back(std::move(route));
  http_ = std::make_unique<HttpServer>(options.server, std::move(routes));
  if (options.load) load(engine_options(options));
  http_->start();
}

void TestServer::load(const EngineOptions& options) {
  auto tokenizer = std::make_unique<const Tokenizer>(Tokenizer::load(options.model.dir));
  auto format = make_chat_format("kimi-k3", *tokenizer);
  state_.set_model(std::make_shared<ServedModel>(std::move(tokenizer), std::move(format), options));
}

TestServer::~TestServer() {
  stop();
}

void TestServer::stop() {
  state_.stop();
  release();
  http_->stop();
}

void TestServer::hang() {
  for (FaultySource* source : sources_) source->hang();
}

void TestServer::release() {
  for (FaultySource* source : sources_) {
    source->clear_faults();
    source->release();
  }
}

void TestServer::fail_reads() {
  for (FaultySource* source : sources_) source->inject({.fault = Fault::eio});
}

bool TestServer::becomes_idle_within(std::chrono::milliseconds time) {
  return comes_true([this] { return engine().idle() && state_.active_replies() == 0; }, time);
}

bool comes_true(const std::function<bool()>& condition, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

std::string chat_body(const std::string& user, const std::string& members) {
  std::string body = R"({"messages":[{"role":"user","content":)";
  append_json_string(user, &body);
  return body + "}]" + (members.empty() ? "" : "," + members) + "}";
}

}  // namespace penstock::testing

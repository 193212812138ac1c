// SPDX-License-Identifier: Apache-2.0
//
// `penstock serve`: the HTTP server.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/config.h"
#include "engine/base/error.h"
#include "engine/weights/memory_plan.h"
#include "server/admin_routes.h"
#include "server/chat_service.h"
#include "server/commands/command.h"
#include "server/commands/model_text.h"
#include "server/commands/profile.h"
#include "server/commands/signal_waiter.h"
#include "server/commands/signals.h"
#include "server/commands/start.h"
#include "server/http_server.h"
#include "server/served_model.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock serve                                the demo model on http://127.0.0.1:8080\n"
    "  penstock serve --model kimi-k3 --port 9000\n"
    "  penstock serve --host 0.0.0.0 --api-key-file keys.txt\n"
    "\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d \\\n"
    "    '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'\n"
    "\n"
    "Answers at once; GET /health says 503 until the model is loaded, then 200. The first SIGINT\n"
    "or SIGTERM lets the running request finish within --shutdown-grace, the second stops it.";

// "/models/kimi-k3/" is "kimi-k3".
std::string model_id_of(std::string model) {
  while (model.size() > 1 && model.back() == '/') model.pop_back();
  return model.substr(model.rfind('/') + 1);
}

std::string url_of(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return "http://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::vector<HttpRoute> all_routes(ServerState& state, ChatService& service) {
  std::vector<HttpRoute> routes = admin_routes(state);
  for (HttpRoute& route : service.routes()) routes.push_back(std::move(route));
  return routes;
}

// From the first byte to the last: the model loads while the server already answers.
class Daemon {
 public:
  Daemon(const ServerOptions& options, EngineOptions engine, std::string model_id,
         SignalWaiter& signals)
      : options_(options),
        engine_(std::move(engine)),
        signals_(signals),
        state_(std::move(model_id)),
        service_(state_, options_),
        http_(options_, all_routes(state_, service_)) {
    engine_.model.stop = &stop_loading_;
  }

  // Ends the process, or throws what the load of the model threw.
  [[noreturn]] void run() {
    http_.start();
    spdlog::info("listening on {}/v1", url_of(options_.host, http_.port()));
    spdlog::info("keys: {}", options_.api_keys.empty()
                                 ? "none asked for"
                                 : std::to_string(options_.api_keys.size()) + " accepted");
    loader_ = std::thread([this] { load(); });
    for (int asked = 0; !finished_;) {
      const bool signalled = signals_.wait();
      if (load_failed_ && asked == 0) asked = shut_down(asked);
      if (signalled) asked = shut_down(asked);
    }
    closer_.join();
    if (load_failed_ && !stopped_by_signal_) {
      loader_.join();
      std::rethrow_exception(load_error_);
    }
    // All is answered. What is left would hold the end up: connections that wait for a next
    // request, which the library cannot be told to drop, and a drive that does not answer a read.
    spdlog::info("ended");
    std::_Exit(0);
  }

 private:
  void load() {
    const Clock::time_point begin = Clock::now();
    try {
      spdlog::info("loading {} from {}", state_.model_id(), engine_.model.dir);
      ModelText text = load_model_text(engine_.model.dir);
      auto model =
          std::make_shared<ServedModel>(std::move(text.tokenizer), std::move(text.format), engine_);
      state_.set_model(model);
      const ModelInfo& info = model->info();
      spdlog::info("{} is ready after {:.1f} s: {}, {} layers, context of {} tokens",
                   state_.model_id(), std::chrono::duration<double>(Clock::now() - begin).count(),
                   info.architecture, info.layers, info.max_context);
      spdlog::info("spine in {}, {} of memory{}", info.spine, format_bytes(info.budget_bytes),
                   info.spine == "int8" ? "; int8 is lossy: answers differ from the model's" : "");
      for (const std::string& note : info.notes) spdlog::info("{}", note);
    } catch (...) {
      load_error_ = std::current_exception();
      load_failed_ = true;
      signals_.wake();
    }
  }

  // One more request to end; returns how many there were.
  int shut_down(int asked) {
    if (asked == 0) {
      if (!load_failed_) {
        spdlog::info("shutting down: {} replies are being made", state_.active_replies());
        stopped_by_signal_ = true;
      }
      stop_loading_.request_stop();
      state_.drain();
      closer_ = std::thread([this] { close(); });
    } else if (asked == 1) {
      state_.stop();
    } else {
      ::_exit(kExitInterrupted);
    }
    return asked + 1;
  }

  void close() {
    const Clock::time_point end = Clock::now() + options_.shutdown_grace;
    while (state_.active_replies() > 0 && !state_.stopping() && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    state_.stop();
    http_.drain();
    finished_ = true;
    signals_.wake();
  }

  const ServerOptions options_;
  EngineOptions engine_;
  SignalWaiter& signals_;
  StopFlag stop_loading_;
  ServerState state_;
  ChatService service_;
  HttpServer http_;
  std::thread loader_;
  std::thread closer_;
  std::exception_ptr load_error_;  // set before load_failed_
  std::atomic<bool> load_failed_{false};
  bool stopped_by_signal_ = false;
  std::atomic<bool> finished_{false};
};

class ServeCommand : public Command {
 public:
  explicit ServeCommand(CLI::App* app)
      : Command(app), settings_(*app, kModelSettings | kEngineSettings | kServerSettings) {
    app->footer(kExamples);
  }

  int run() override {
    const Config config = settings_.resolve();
    set_up_logging(config, "info");
    SignalWaiter signals;
    EngineOptions engine = config.engine;
    engine.model.dir = model_folder(config);
    engine.on_profile = profile_writer(config);
    Daemon(config.server, std::move(engine), model_id_of(config.model), signals).run();
  }

 private:
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_serve_command(CLI::App& app) {
  return std::make_unique<ServeCommand>(
      app.add_subcommand("serve", "Answer the clients of OpenAI's API over HTTP"));
}

}  // namespace penstock

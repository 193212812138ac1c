// SPDX-License-Identifier: Apache-2.0
//
// `penstock health`: is the server up and its model loaded? For containers and scripts.
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "config/config.h"
#include "server/commands/command.h"
#include "server/commands/http_probe.h"
#include "server/commands/output.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock health                              the server of this machine\n"
    "  penstock health --url http://10.0.0.7:8080   another one\n"
    "  penstock serve & until penstock health; do sleep 1; done\n"
    "\n"
    "Exit status 0 when the server is ready to answer; 1 while it loads its model, while it shuts\n"
    "down, or when nobody answers. Without --url it asks where `penstock serve` listens by the\n"
    "same settings: host and port of the environment and the config file.";

// Who listens on every address listens on this one.
std::string reachable(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  return host == "::" || host == "[::]" ? "::1" : host;
}

class HealthCommand : public Command {
 public:
  explicit HealthCommand(CLI::App* app) : Command(app), settings_(*app, 0) {
    app->add_option("--url", url_, "The server, as http://HOST:PORT")->type_name("URL");
    app->add_option("--timeout", timeout_s_, "Seconds to wait for the answer (default: 5)")
        ->type_name("SECONDS")
        ->check(CLI::Range(1, 3600).description(""));
    app->footer(kExamples);
  }

  int run() override {
    std::signal(SIGPIPE, SIG_IGN);  // a server that hangs up is an answer too
    const HttpAnswer answer = http_get(server(), "/health", std::chrono::seconds(timeout_s_));
    const std::string body = answer.body.substr(0, answer.body.find_last_not_of(" \r\n") + 1);
    write_stdout(std::to_string(answer.status) + " " + body + "\n");
    return answer.status == 200 ? 0 : 1;
  }

 private:
  HttpUrl server() const {
    if (!url_.empty()) return parse_http_url(url_);
    const ServerOptions server = settings_.resolve().server;
    return {.host = reachable(server.host), .port = std::to_string(server.port)};
  }

  std::string url_;
  int timeout_s_ = 5;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_health_command(CLI::App& app) {
  return std::make_unique<HealthCommand>(
      app.add_subcommand("health", "Ask a running server whether it is ready"));
}

}  // namespace penstock

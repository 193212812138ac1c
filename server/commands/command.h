// SPDX-License-Identifier: Apache-2.0
//
// A sub-command of `penstock`. Each lives in one file of this folder and is listed once, in
// command_line.cpp. Main thread.
#pragma once

#include <memory>

namespace CLI {
class App;
}  // namespace CLI

namespace penstock {

class Command {
 public:
  explicit Command(const CLI::App* app) : app_(app) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Does the work, once its options were parsed; returns the exit status. Throws Error.
  virtual int run() = 0;

  const CLI::App* app() const { return app_; }  // its sub-command

 private:
  const CLI::App* app_;
};

// Each adds its sub-command to `app`, which outlives what is returned.
std::unique_ptr<Command> add_serve_command(CLI::App& app);
std::unique_ptr<Command> add_run_command(CLI::App& app);
std::unique_ptr<Command> add_chat_command(CLI::App& app);
std::unique_ptr<Command> add_tokenize_command(CLI::App& app);
std::unique_ptr<Command> add_health_command(CLI::App& app);
std::unique_ptr<Command> add_logits_command(CLI::App& app);
std::unique_ptr<Command> add_plan_command(CLI::App& app);
std::unique_ptr<Command> add_bench_command(CLI::App& app);
std::unique_ptr<Command> add_convert_command(CLI::App& app);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/commands/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/version.h"

namespace penstock {
namespace {

constexpr const char* kDescription =
    "Penstock runs mixture-of-experts models that are far larger than the machine's memory:\n"
    "the weights stay on the drive and are read as they are needed.";

constexpr const char* kFooter =
    "Examples:\n"
    "  penstock run \"What is the capital of France?\"   ask the tiny demo model\n"
    "  penstock chat                                  talk with it\n"
    "  penstock serve                                 the same for OpenAI's clients, over HTTP\n"
    "  penstock plan --model /models/kimi-k3          what a real one would keep in memory\n"
    "  penstock run --help                            all options of a command\n"
    "\n"
    "Settings are looked up on the command line, then in PENSTOCK_* variables, then in\n"
    "~/.config/penstock/config.toml.";

struct TopLevel {
  bool version = false;
  bool json = false;
};

void add_top_level_options(CLI::App& app, TopLevel& options) {
  app.set_help_flag("-h,--help", "Print this help");
  app.add_flag("--version", options.version, "Print the version and the kernel tables, then exit");
  app.add_flag("--json", options.json, "With --version: as a JSON object");
  app.footer(kFooter);
  app.get_formatter()->column_width(26);
}

// "penstock run": what the arguments have named so far.
std::string spoken_name(const CLI::App& app) {
  std::string name = "penstock";
  for (auto parsed = app.get_subcommands(); !parsed.empty();
       parsed = parsed.front()->get_subcommands()) {
    name += " " + parsed.front()->get_name();
  }
  return name;
}

[[noreturn]] void fail_usage(const CLI::App& app, std::string problem) {
  std::ranges::replace(problem, '\n', ' ');
  throw Error(ErrorCode::usage, problem + "; see " + spoken_name(app) + " --help");
}

// True when the command line asked for help and got it.
bool parse_or_help(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());  // of the sub-command, when there is one
    return true;
  } catch (const CLI::ParseError& error) {
    fail_usage(app, error.what());
  }
  return false;
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app(kDescription, "penstock");
  TopLevel top_level;
  add_top_level_options(app, top_level);
  app.require_subcommand(0, 1);
  const std::array commands = {
      add_serve_command(app), add_health_command(app),   add_run_command(app),
      add_chat_command(app),  add_tokenize_command(app), add_logits_command(app),
      add_plan_command(app),  add_convert_command(app),  add_bench_command(app)};
  if (parse_or_help(app, argc, argv)) return 0;
  if (top_level.version) {
    write_stdout((top_level.json ? version_json() : version_line()) + "\n");
    return 0;
  }
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) fail_usage(app, "no command given");
  for (const std::unique_ptr<Command>& command : commands) {
    if (command->app() != parsed.front()) continue;
    try {
      return command->run();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::usage) fail_usage(app, error.what());
      throw;
    }
  }
  return 1;  // every sub-command is in `commands`
}

}  // namespace penstock

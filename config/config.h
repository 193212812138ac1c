// SPDX-License-Identifier: Apache-2.0
//
// What the user sets, from four places. The first that says something wins: command line,
// PENSTOCK_* variable, config file, default. One table in config.cpp names every setting;
// --expert-slots on the command line is PENSTOCK_EXPERT_SLOTS in the environment and expert-slots
// in the file. One owner thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/model_folder.h"
#include "engine/engine.h"
#include "server/server_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock {

struct Config {
  std::string model = "demo";  // as the user named it: a folder or a name
  std::string models_dir;      // the folder of models by name
  EngineOptions engine;        // engine.model.dir is model_folder(), set by who loads it
  ServerOptions server;
  bool profile = false;
  std::string profile_json;        // file; empty: none
  std::string log_level = "auto";  // trace, debug, info, warn, err, off; auto: the command's own
};

// The folder of config.model. Throws Error(usage) when there is no model of that name.
std::string model_folder(const Config& config);
// The same, or what is published of a model without weights here.
PlannedFolder planned_folder(const Config& config);

// Groups of settings, to be added up: what the options of a sub-command are. The environment and
// the config file may hold all of them; log-level belongs to every command.
inline constexpr unsigned kModelSettings = 1;   // where the model lies
inline constexpr unsigned kEngineSettings = 2;  // how it runs
inline constexpr unsigned kServerSettings = 4;  // how it is served

// The settings as options of one sub-command.
class ConfigOptions {
 public:
  // Adds --config and the settings of `groups` to `command`, which outlives this object.
  explicit ConfigOptions(CLI::App& command, unsigned groups = kModelSettings | kEngineSettings);

  // Once `command` was parsed: the settings of all four places. Throws Error(usage) naming the
  // place (option, variable, or file and line) and what was expected: unknown key or bad value, a
  // config file that cannot be read. An empty variable counts as not set.
  Config resolve() const;

 private:
  CLI::Option* config_file_;
  std::vector<CLI::Option*> options_;  // in the order of the table; null: of another group
};

// The names of all settings, as in the config file.
std::vector<std::string_view> setting_names();

// The config file read when neither --config nor PENSTOCK_CONFIG names one and it exists:
// $XDG_CONFIG_HOME/penstock/config.toml, else ~/.config/penstock/config.toml; "" without a home.
std::string default_config_path();

}  // namespace penstock

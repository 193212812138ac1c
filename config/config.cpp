// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "config/config_file.h"
#include "config/model_folder.h"
#include "engine/base/error.h"
#include "engine/base/system_memory.h"
#include "engine/weights/memory_plan.h"

namespace penstock {
namespace {

// A value that a setting does not take. What was expected, without the place it came from.
struct BadValue {
  std::string expected;
};

std::int64_t parse_count(const std::string& text, std::int64_t max) {
  std::int64_t value = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < 0 || value > max) {
    throw BadValue{"a number from 0 to " + std::to_string(max)};
  }
  return value;
}

void set_model(Config& config, const std::string& text) {
  if (text.empty()) throw BadValue{"a folder or a name"};
  config.model = text;
}

void set_models_dir(Config& config, const std::string& text) {
  config.models_dir = text;
}

void set_ram(Config& config, const std::string& text) {
  if (text == "auto") {
    config.engine.model.memory.budget_bytes = 0;
    return;
  }
  const std::optional<std::uint64_t> bytes = parse_byte_size(text);
  if (!bytes || *bytes == 0) throw BadValue{"a size such as 24G or 800M, or auto"};
  config.engine.model.memory.budget_bytes = *bytes;
}

void set_threads(Config& config, const std::string& text) {
  config.engine.model.threads = static_cast<int>(parse_count(text, 1024));
}

void set_isa(Config& config, const std::string& text) {
  config.engine.model.isa = text == "auto" ? "" : text;
}

void set_context(Config& config, const std::string& text) {
  config.engine.model.memory.context_tokens = parse_count(text, 1 << 24);
}

// A sweep has a limit of its own: any larger number means "as many as a sweep takes".
void set_chunk(Config& config, const std::string& text) {
  const std::int64_t tokens = std::min<std::int64_t>(parse_count(text, INT32_MAX), kMaxSweepTokens);
  config.engine.model.memory.chunk_tokens = static_cast<std::int32_t>(tokens);
}

void set_expert_slots(Config& config, const std::string& text) {
  config.engine.model.memory.expert_slots = parse_count(text, INT32_MAX);
}

void set_log_level(Config& config, const std::string& text) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                       "warn",  "err",   "off"};
  if (std::ranges::find(kLevels, text) == kLevels.end()) {
    throw BadValue{"trace, debug, info, warn, err or off"};
  }
  config.log_level = text;
}

struct Setting {
  const char* name;  // --NAME; NAME in the file
  const char* variable;
  const char* type;
  const char* help;
  unsigned group;  // 0: of every command
  void (*set)(Config& config, const std::string& text);
};

constexpr std::array kSettings = {
    Setting{"model", "PENSTOCK_MODEL", "MODEL",
            "Folder of a model, or a name: demo, or one below --models-dir (default: demo)",
            kModelSettings, set_model},
    Setting{"models-dir", "PENSTOCK_MODELS_DIR", "DIR",
            "Folder of models by name (default: ~/.local/share/penstock/models)", kModelSettings,
            set_models_dir},
    Setting{"ram", "PENSTOCK_RAM", "SIZE",
            "Memory for the whole process, e.g. 24G (default: auto, 75 % of what there is)",
            kEngineSettings, set_ram},
    Setting{"threads", "PENSTOCK_THREADS", "N", "Compute threads (default: 0, all cores)",
            kEngineSettings, set_threads},
    Setting{"isa", "PENSTOCK_ISA", "NAME",
            "Kernel table, one of those that --version lists (default: auto, the best)",
            kEngineSettings, set_isa},
    Setting{"context", "PENSTOCK_CONTEXT", "N",
            "Most tokens of a sequence (default: 0, the model's limit or 32768)", kEngineSettings,
            set_context},
    Setting{"chunk", "PENSTOCK_CHUNK", "N",
            "Most prompt tokens per sweep over the layers (default: 0, what memory allows)",
            kEngineSettings, set_chunk},
    Setting{"expert-slots", "PENSTOCK_EXPERT_SLOTS", "N",
            "Routed experts kept in memory (default: 0, what memory allows)", kEngineSettings,
            set_expert_slots},
    Setting{"log-level", "PENSTOCK_LOG_LEVEL", "LEVEL",
            "trace, debug, info, warn, err or off (default: warn)", 0, set_log_level},
};

void apply(Config& config, const Setting& setting, const std::string& text,
           const std::string& place) {
  try {
    setting.set(config, text);
  } catch (const BadValue& bad) {
    throw Error(ErrorCode::usage, place + " is \"" + text + "\", expected " + bad.expected);
  }
}

// An empty variable is how a unit file or a compose file unsets one.
const char* find_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void apply_file(Config& config, const std::string& path) {
  for (const ConfigEntry& entry : read_config_file(path)) {
    const std::string place = path + ":" + std::to_string(entry.line) + ": ";
    const auto* setting =
        std::ranges::find_if(kSettings, [&entry](const Setting& s) { return entry.key == s.name; });
    if (setting == kSettings.end()) {
      std::string names;
      for (const Setting& s : kSettings) names += (names.empty() ? "" : ", ") + std::string(s.name);
      throw Error(ErrorCode::usage, place + "unknown key " + entry.key + "; known: " + names);
    }
    apply(config, *setting, entry.value, place + entry.key);
  }
}

// The file to read, "" for none.
std::string config_path(const CLI::Option& option) {
  if (option.count() > 0) return option.results().front();
  if (const char* path = find_variable("PENSTOCK_CONFIG")) return path;
  std::string path = default_config_path();
  std::error_code ignored;
  // A folder that may not be looked into holds no file of this user.
  return std::filesystem::exists(path, ignored) ? path : "";
}

}  // namespace

std::string model_folder(const Config& config) {
  const std::string models = config.models_dir.empty() ? default_models_dir() : config.models_dir;
  return find_model_folder(config.model, {.models_dir = models, .demo = demo_model_places()});
}

ConfigOptions::ConfigOptions(CLI::App& command, unsigned groups)
    : config_file_(command.add_option("--config")
                       ->description("Config file (default: ~/.config/penstock/config.toml)")
                       ->type_name("FILE")
                       ->group("Settings")) {
  for (const Setting& setting : kSettings) {
    if (setting.group != 0 && (setting.group & groups) == 0) {
      options_.push_back(nullptr);
      continue;
    }
    options_.push_back(command.add_option(std::string("--") + setting.name)
                           ->description(setting.help)
                           ->type_name(setting.type)
                           ->group("Settings"));
  }
}

Config ConfigOptions::resolve() const {
  Config config;
  const std::string path = config_path(*config_file_);
  if (!path.empty()) apply_file(config, path);
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    const Setting& setting = kSettings[i];
    if (options_[i] != nullptr && options_[i]->count() > 0) {
      apply(config, setting, options_[i]->results().front(), std::string("--") + setting.name);
    } else if (const char* value = find_variable(setting.variable)) {
      apply(config, setting, value, setting.variable);
    }
  }
  return config;
}

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  return names;
}

std::string default_config_path() {
  constexpr const char* kFile = "penstock/config.toml";
  // The XDG specification tells to ignore a relative path.
  if (const char* home = find_variable("XDG_CONFIG_HOME"); home != nullptr && *home == '/') {
    return std::string(home) + "/" + kFile;
  }
  if (const char* home = find_variable("HOME")) return std::string(home) + "/.config/" + kFile;
  return "";
}

}  // namespace penstock

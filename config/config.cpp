// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

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

void set_model_path(Config& config, const std::string& text) {
  config.engine.model.more_dirs.clear();
  std::istringstream list(text);
  for (std::string dir; std::getline(list, dir, ',');) {
    if (!dir.empty()) config.engine.model.more_dirs.push_back(dir);
  }
}

void set_spine(Config& config, const std::string& text) {
  constexpr std::array<std::pair<std::string_view, SpineChoice>, 4> kChoices = {
      {{"auto", SpineChoice::automatic},
       {"bf16", SpineChoice::published},
       {"bf12", SpineChoice::bf12},
       {"int8", SpineChoice::int8}}};
  const auto* choice = std::ranges::find(kChoices, text, [](const auto& row) { return row.first; });
  if (choice == kChoices.end()) throw BadValue{"auto, bf16, bf12 or int8"};
  config.engine.model.spine = choice->second;
}

bool parse_flag(const std::string& text) {
  if (text != "true" && text != "false") throw BadValue{"true or false"};
  return text == "true";
}

void set_no_look_ahead(Config& config, const std::string& text) {
  config.engine.model.look_ahead = !parse_flag(text);
}

void set_mlock(Config& config, const std::string& text) {
  config.engine.model.lock_spine = parse_flag(text);
}

void set_io(Config& config, const std::string& text) {
  if (text == "auto") {
    config.engine.model.read_backend = ReadBackendChoice::automatic;
  } else if (text == "io_uring") {
    config.engine.model.read_backend = ReadBackendChoice::uring;
  } else if (text == "pread") {
    config.engine.model.read_backend = ReadBackendChoice::pread;
  } else {
    throw BadValue{"auto, io_uring or pread"};
  }
}

void set_profile(Config& config, const std::string& text) {
  // PENSTOCK_PROFILE=1 is what everybody types.
  config.profile = text == "1" || (text != "0" && parse_flag(text));
}

void set_profile_json(Config& config, const std::string& text) {
  config.profile_json = text;
}

void set_host(Config& config, const std::string& text) {
  if (text.empty()) throw BadValue{"an address, such as 127.0.0.1 or 0.0.0.0"};
  config.server.host = text;
}

void set_port(Config& config, const std::string& text) {
  config.server.port = static_cast<int>(parse_count(text, 65535));
}

void set_api_key(Config& config, const std::string& text) {
  if (text.empty()) throw BadValue{"a key"};
  config.server.api_keys.push_back(text);
}

void set_api_key_file(Config& config, const std::string& text) {
  std::ifstream file(text);
  const std::size_t before = config.server.api_keys.size();
  for (std::string line; std::getline(file, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) config.server.api_keys.push_back(line);
  }
  if (config.server.api_keys.size() == before) {
    throw BadValue{"a file that can be read, with one key a line"};
  }
}

void set_insecure_no_auth(Config& config, const std::string& text) {
  config.server.allow_no_key = parse_flag(text);
}

void set_cors_origins(Config& config, const std::string& text) {
  config.server.cors_origins.clear();
  std::istringstream list(text);
  for (std::string origin; std::getline(list, origin, ',');) {
    origin.erase(0, origin.find_first_not_of(' '));
    origin.erase(origin.find_last_not_of(" /") + 1);
    if (!origin.empty()) config.server.cors_origins.push_back(origin);
  }
}

void set_max_body(Config& config, const std::string& text) {
  const std::optional<std::uint64_t> bytes = parse_byte_size(text);
  if (!bytes || *bytes == 0) throw BadValue{"a size such as 64M"};
  config.server.max_body_bytes = *bytes;
}

void set_max_waiting(Config& config, const std::string& text) {
  config.engine.max_waiting = static_cast<std::int32_t>(parse_count(text, 10000));
}

void set_keep_alive(Config& config, const std::string& text) {
  const std::int64_t seconds = parse_count(text, 60);
  if (seconds == 0) throw BadValue{"a number from 1 to 60"};
  config.server.keep_alive = std::chrono::seconds(seconds);
}

void set_shutdown_grace(Config& config, const std::string& text) {
  config.server.shutdown_grace = std::chrono::seconds(parse_count(text, 1'000'000));
}

void set_effort(Config& config, const std::string& text) {
  if (text == "low") {
    config.server.effort = ThinkingEffort::low;
  } else if (text == "high") {
    config.server.effort = ThinkingEffort::high;
  } else if (text == "max") {
    config.server.effort = ThinkingEffort::max;
  } else {
    throw BadValue{"low, high or max"};
  }
}

void set_log_level(Config& config, const std::string& text) {
  constexpr std::array<std::string_view, 7> kLevels = {"auto", "trace", "debug", "info",
                                                       "warn", "err",   "off"};
  if (std::ranges::find(kLevels, text) == kLevels.end()) {
    throw BadValue{"auto, trace, debug, info, warn, err or off"};
  }
  config.log_level = text;
}

struct Setting {
  const char* name;  // --NAME; NAME in the file
  const char* variable;
  const char* type;  // null: a flag on the command line
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
    Setting{"model-path", "PENSTOCK_MODEL_PATH", "DIRS",
            "More folders with shards of the model, on other drives say, with commas between",
            kModelSettings, set_model_path},
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
    Setting{"spine", "PENSTOCK_SPINE", "FORMAT",
            "Spine in bf16, bf12 (same answers) or int8 (others) (default: auto, bf12 if there)",
            kEngineSettings, set_spine},
    Setting{"no-look-ahead", "PENSTOCK_NO_LOOK_AHEAD", nullptr,
            "Read no experts before their layer asks for them", kEngineSettings, set_no_look_ahead},
    Setting{"mlock", "PENSTOCK_MLOCK", nullptr,
            "Lock the pinned spine into RAM; the memory lock limit must allow it", kEngineSettings,
            set_mlock},
    Setting{"io", "PENSTOCK_IO", "NAME",
            "How weights are read: io_uring or pread (default: auto, io_uring where allowed)",
            kEngineSettings, set_io},
    Setting{"profile", "PENSTOCK_PROFILE", nullptr, "Say after each answer where its time went",
            kEngineSettings, set_profile},
    Setting{"profile-json", "PENSTOCK_PROFILE_JSON", "FILE",
            "Append to FILE, as one JSON object a line, where each answer's time went",
            kEngineSettings, set_profile_json},
    Setting{"host", "PENSTOCK_HOST", "ADDRESS",
            "Address to listen on (default: 127.0.0.1); one that others reach needs a key",
            kServerSettings, set_host},
    Setting{"port", "PENSTOCK_PORT", "N", "Port to listen on (default: 8080; 0: any free one)",
            kServerSettings, set_port},
    Setting{"api-key", "PENSTOCK_API_KEY", "KEY",
            "Key that clients must send; others may read it on a command line: prefer a file",
            kServerSettings, set_api_key},
    Setting{"api-key-file", "PENSTOCK_API_KEY_FILE", "FILE", "File of keys, one a line",
            kServerSettings, set_api_key_file},
    Setting{"insecure-no-auth", "PENSTOCK_INSECURE_NO_AUTH", nullptr,
            "Let everybody who reaches the address in, without a key", kServerSettings,
            set_insecure_no_auth},
    Setting{"cors-origins", "PENSTOCK_CORS_ORIGINS", "LIST",
            "Web pages that may call: localhost, origins such as https://chat.example, or * "
            "(default: localhost)",
            kServerSettings, set_cors_origins},
    Setting{"max-body", "PENSTOCK_MAX_BODY", "SIZE", "Largest request body (default: 64M)",
            kServerSettings, set_max_body},
    Setting{"max-waiting", "PENSTOCK_MAX_WAITING", "N",
            "Requests that may wait behind the running one (default: 16)", kServerSettings,
            set_max_waiting},
    Setting{"keep-alive", "PENSTOCK_KEEP_ALIVE", "SECONDS",
            "Longest silence of a reply, 1 to 60 (default: 8)", kServerSettings, set_keep_alive},
    Setting{"shutdown-grace", "PENSTOCK_SHUTDOWN_GRACE", "SECONDS",
            "Time that the running request gets at the first SIGTERM (default: 5)", kServerSettings,
            set_shutdown_grace},
    Setting{"effort", "PENSTOCK_EFFORT", "LEVEL",
            "Thinking effort of requests that name none or medium: low, high, max (default: max)",
            kServerSettings, set_effort},
    Setting{"log-level", "PENSTOCK_LOG_LEVEL", "LEVEL",
            "trace, debug, info, warn, err or off (default: auto; serve: info, others: warn)", 0,
            set_log_level},
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

// "model, ram, ..."
std::string known_keys() {
  std::string keys;
  for (const Setting& setting : kSettings) {
    if (!keys.empty()) keys += ", ";
    keys += setting.name;
  }
  return keys;
}

void apply_file(Config& config, const std::string& path) {
  for (const ConfigEntry& entry : read_config_file(path)) {
    const std::string place = path + ":" + std::to_string(entry.line) + ": ";
    const auto* setting =
        std::ranges::find_if(kSettings, [&entry](const Setting& s) { return entry.key == s.name; });
    if (setting == kSettings.end()) {
      throw Error(ErrorCode::usage,
                  place + "unknown key " + entry.key + "; known: " + known_keys());
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

ModelPlaces places_of(const Config& config) {
  return {.models_dir = config.models_dir.empty() ? default_models_dir() : config.models_dir,
          .demo = demo_model_places(),
          .configs = published_config_places()};
}

}  // namespace

std::string model_folder(const Config& config) {
  return find_model_folder(config.model, places_of(config));
}

PlannedFolder planned_folder(const Config& config) {
  return find_planned_folder(config.model, places_of(config));
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
    const std::string name = std::string("--") + setting.name;
    CLI::Option* option = setting.type == nullptr
                              ? command.add_flag(name)
                              : command.add_option(name)->type_name(setting.type);
    options_.push_back(option->description(setting.help)->group("Settings"));
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
  names.reserve(kSettings.size());
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

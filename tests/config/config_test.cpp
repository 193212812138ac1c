// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/config_file.h"
#include "engine/base/error.h"
#include "engine/weights/memory_plan.h"

namespace penstock {
namespace {

// A test begins without any PENSTOCK_* variable and with an empty home.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    home_ =
        std::filesystem::temp_directory_path() / ("penstock-config-" + std::to_string(::getpid()));
    std::filesystem::create_directories(home_);
    for (const std::string_view name : setting_names()) ::unsetenv(variable_of(name).c_str());
    ::unsetenv("PENSTOCK_CONFIG");
    ::unsetenv("XDG_CONFIG_HOME");
    ::setenv("HOME", home_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(home_); }

  // "expert-slots" -> "PENSTOCK_EXPERT_SLOTS"
  static std::string variable_of(std::string_view setting) {
    std::string name = "PENSTOCK_";
    for (const char c : setting) name += c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');
    return name;
  }

  std::string write_file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = home_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  static Config resolve(std::vector<std::string> arguments) {
    CLI::App app;
    const ConfigOptions options(app, kModelSettings | kEngineSettings | kServerSettings);
    std::ranges::reverse(arguments);  // as CLI11 takes a vector
    app.parse(arguments);
    return options.resolve();
  }

  static std::string resolve_error(const std::vector<std::string>& arguments) {
    try {
      resolve(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path home_;
};

TEST_F(ConfigTest, HasDefaults) {
  const Config config = resolve({});
  EXPECT_EQ(config.model, "demo");
  EXPECT_EQ(config.models_dir, "");
  EXPECT_EQ(config.engine.model.isa, "");
  EXPECT_EQ(config.engine.model.threads, 0);
  EXPECT_EQ(config.engine.model.memory.budget_bytes, 0U);
  EXPECT_EQ(config.engine.model.memory.context_tokens, 0);
  EXPECT_EQ(config.engine.model.memory.chunk_tokens, 0);
  EXPECT_EQ(config.engine.model.memory.expert_slots, 0);
  EXPECT_EQ(config.log_level, "auto");
}

// Every pair of places: the earlier of command line, environment, file, default wins.
TEST_F(ConfigTest, PrefersTheEarlierPlace) {
  const std::string file = write_file("some.toml", "threads = 3\n");
  for (int places = 0; places < 8; ++places) {
    const bool on_line = (places & 1) != 0;
    const bool in_environment = (places & 2) != 0;
    const bool in_file = (places & 4) != 0;
    std::vector<std::string> arguments;
    if (on_line) arguments = {"--threads", "1"};
    if (in_file) arguments.insert(arguments.end(), {"--config", file});
    if (in_environment) {
      ::setenv("PENSTOCK_THREADS", "2", 1);
    } else {
      ::unsetenv("PENSTOCK_THREADS");
    }
    const int expected = on_line ? 1 : in_environment ? 2 : in_file ? 3 : 0;
    EXPECT_EQ(resolve(arguments).engine.model.threads, expected)
        << "line " << on_line << " environment " << in_environment << " file " << in_file;
  }
}

TEST_F(ConfigTest, FindsTheFileByTheEarlierPlace) {
  const std::string by_option = write_file("option.toml", "threads = 1\n");
  const std::string by_variable = write_file("variable.toml", "threads = 2\n");
  write_file("xdg/penstock/config.toml", "threads = 3\n");
  write_file(".config/penstock/config.toml", "threads = 4\n");

  EXPECT_EQ(resolve({}).engine.model.threads, 4);
  ::setenv("XDG_CONFIG_HOME", "relative", 1);
  EXPECT_EQ(resolve({}).engine.model.threads, 4);
  ::setenv("XDG_CONFIG_HOME", (home_ / "xdg").c_str(), 1);
  EXPECT_EQ(resolve({}).engine.model.threads, 3);
  ::setenv("PENSTOCK_CONFIG", by_variable.c_str(), 1);
  EXPECT_EQ(resolve({}).engine.model.threads, 2);
  EXPECT_EQ(resolve({"--config", by_option}).engine.model.threads, 1);
}

// One value per setting, given on the command line, in the environment and in the file in turn.
TEST_F(ConfigTest, TakesEverySettingFromEveryPlace) {
  struct Sample {
    const char* setting;
    const char* value;
    bool (*arrived)(const Config& config);
  };
  const std::string keys = write_file("keys", "a\n\nb c \r\n");
  const std::vector<Sample> samples = {
      {"model", "/models/k3", [](const Config& c) { return c.model == "/models/k3"; }},
      {"models-dir", "/models", [](const Config& c) { return c.models_dir == "/models"; }},
      {"ram", "24G",
       [](const Config& c) { return c.engine.model.memory.budget_bytes == 24ULL << 30U; }},
      {"threads", "5", [](const Config& c) { return c.engine.model.threads == 5; }},
      {"isa", "scalar", [](const Config& c) { return c.engine.model.isa == "scalar"; }},
      {"context", "4096",
       [](const Config& c) { return c.engine.model.memory.context_tokens == 4096; }},
      {"chunk", "7", [](const Config& c) { return c.engine.model.memory.chunk_tokens == 7; }},
      {"expert-slots", "64",
       [](const Config& c) { return c.engine.model.memory.expert_slots == 64; }},
      {"model-path", "/a,/b c",
       [](const Config& c) {
         return c.engine.model.more_dirs == std::vector<std::string>{"/a", "/b c"};
       }},
      {"spine", "int8", [](const Config& c) { return c.engine.model.spine == SpineChoice::int8; }},
      {"no-look-ahead", "true", [](const Config& c) { return !c.engine.model.look_ahead; }},
      {"mlock", "true", [](const Config& c) { return c.engine.model.lock_spine; }},
      {"io", "pread",
       [](const Config& c) { return c.engine.model.read_backend == ReadBackendChoice::pread; }},
      {"profile", "true", [](const Config& c) { return c.profile; }},
      {"profile-json", "/tmp/p.json",
       [](const Config& c) { return c.profile_json == "/tmp/p.json"; }},
      {"host", "::1", [](const Config& c) { return c.server.host == "::1"; }},
      {"port", "9000", [](const Config& c) { return c.server.port == 9000; }},
      {"api-key", "secret",
       [](const Config& c) { return c.server.api_keys == std::vector<std::string>{"secret"}; }},
      {"api-key-file", keys.c_str(),
       [](const Config& c) {
         return c.server.api_keys == std::vector<std::string>{"a", "b c"};
       }},
      {"insecure-no-auth", "true", [](const Config& c) { return c.server.allow_no_key; }},
      {"cors-origins", "localhost, https://a.example/",
       [](const Config& c) {
         return c.server.cors_origins == std::vector<std::string>{"localhost", "https://a.example"};
       }},
      {"max-body", "1M", [](const Config& c) { return c.server.max_body_bytes == 1U << 20U; }},
      {"max-waiting", "3", [](const Config& c) { return c.engine.max_waiting == 3; }},
      {"keep-alive", "2", [](const Config& c) { return c.server.keep_alive.count() == 2000; }},
      {"shutdown-grace", "60",
       [](const Config& c) { return c.server.shutdown_grace.count() == 60; }},
      {"effort", "low", [](const Config& c) { return c.server.effort == ThinkingEffort::low; }},
      {"log-level", "info", [](const Config& c) { return c.log_level == "info"; }},
  };
  ASSERT_EQ(samples.size(), setting_names().size());
  for (const Sample& sample : samples) {
    const std::string setting = sample.setting;
    EXPECT_FALSE(sample.arrived(resolve({}))) << setting;
    EXPECT_TRUE(sample.arrived(resolve({"--" + setting + "=" + sample.value}))) << setting;
    const std::string file =
        write_file("one.toml", setting + " = \"" + std::string(sample.value) + "\"\n");
    EXPECT_TRUE(sample.arrived(resolve({"--config", file}))) << setting;
    ::setenv(variable_of(setting).c_str(), sample.value, 1);
    EXPECT_TRUE(sample.arrived(resolve({}))) << setting;
    ::unsetenv(variable_of(setting).c_str());
  }
}

TEST_F(ConfigTest, TakesAutoAndEmptyVariablesForTheDefault) {
  ::setenv("PENSTOCK_RAM", "", 1);
  ::setenv("PENSTOCK_CONFIG", "", 1);
  EXPECT_EQ(resolve({}).engine.model.memory.budget_bytes, 0U);
  ::setenv("PENSTOCK_RAM", "12G", 1);
  ::setenv("PENSTOCK_ISA", "scalar", 1);
  const Config config = resolve({"--ram", "auto", "--isa", "auto"});
  EXPECT_EQ(config.engine.model.memory.budget_bytes, 0U);
  EXPECT_EQ(config.engine.model.isa, "");
}

TEST_F(ConfigTest, TakesAFlagAndRefusesUnusableKeys) {
  EXPECT_TRUE(resolve({"--insecure-no-auth"}).server.allow_no_key);
  EXPECT_EQ(resolve_error({"--api-key-file", (home_ / "none").string()}),
            "--api-key-file is \"" + (home_ / "none").string() +
                "\", expected a file that can be read, with one key a line");
  const std::string blank = write_file("blank", "\n \n");
  EXPECT_NE(resolve_error({"--api-key-file", blank}), "no error");
  EXPECT_EQ(resolve_error({"--keep-alive", "0"}),
            "--keep-alive is \"0\", expected a number from 1 to 60");
}

TEST_F(ConfigTest, CapsAChunkAtTheLongestSweep) {
  EXPECT_EQ(resolve({"--chunk", "1000000"}).engine.model.memory.chunk_tokens, kMaxSweepTokens);
}

TEST_F(ConfigTest, NamesThePlaceOfABadValue) {
  EXPECT_EQ(resolve_error({"--threads", "many"}),
            "--threads is \"many\", expected a number from 0 to 1024");
  EXPECT_EQ(resolve_error({"--threads", "-1"}),
            "--threads is \"-1\", expected a number from 0 to 1024");
  EXPECT_EQ(resolve_error({"--threads", "4x"}),
            "--threads is \"4x\", expected a number from 0 to 1024");
  EXPECT_EQ(resolve_error({"--ram", "24Q"}),
            "--ram is \"24Q\", expected a size such as 24G or 800M, or auto");
  EXPECT_EQ(resolve_error({"--ram", "0"}),
            "--ram is \"0\", expected a size such as 24G or 800M, or auto");
  EXPECT_EQ(resolve_error({"--log-level", "loud"}),
            "--log-level is \"loud\", expected auto, trace, debug, info, warn, err or "
            "off");
  ::setenv("PENSTOCK_EXPERT_SLOTS", "99999999999999999999", 1);
  EXPECT_EQ(resolve_error({}),
            "PENSTOCK_EXPERT_SLOTS is \"99999999999999999999\", expected a number from 0 to "
            "2147483647");
  // What is overridden need not be right.
  EXPECT_EQ(resolve({"--expert-slots", "2"}).engine.model.memory.expert_slots, 2);
}

TEST_F(ConfigTest, NamesFileAndLineOfABadEntry) {
  const std::string unknown = write_file("unknown.toml", "# x\nthread = 4\n");
  EXPECT_EQ(
      resolve_error({"--config", unknown}),
      unknown +
          ":2: unknown key thread; known: model, models-dir, model-path, ram, threads, isa, " +
          "context, chunk, expert-slots, spine, no-look-ahead, mlock, io, profile, " +
          "profile-json, host, port, api-key, api-key-file, insecure-no-auth, " +
          "cors-origins, max-body, max-waiting, keep-alive, shutdown-grace, effort, " +
          "log-level");
  const std::string bad = write_file("bad.toml", "threads = -4\n");
  EXPECT_EQ(resolve_error({"--config", bad, "--threads", "2"}),
            bad + ":1: threads is \"-4\", expected a number from 0 to 1024");
  const std::string missing = (home_ / "missing.toml").string();
  EXPECT_EQ(resolve_error({"--config", missing}),
            missing + ": cannot read the config file: No such file or directory");
  ::setenv("PENSTOCK_CONFIG", missing.c_str(), 1);
  EXPECT_EQ(resolve_error({}),
            missing + ": cannot read the config file: No such file or directory");
}

TEST_F(ConfigTest, ReadsNoFileWithoutAHome) {
  ::unsetenv("HOME");
  EXPECT_EQ(default_config_path(), "");
  EXPECT_EQ(resolve({}).engine.model.threads, 0);
}

// config/default.toml says every setting, and says the default.
TEST_F(ConfigTest, DefaultFileIsTheDefault) {
  const std::string path = PENSTOCK_SOURCE_DIR "/config/default.toml";
  const Config config = resolve({"--config", path});
  const Config defaults;
  EXPECT_EQ(config.model, defaults.model);
  EXPECT_EQ(config.models_dir, defaults.models_dir);
  EXPECT_EQ(config.engine.model.isa, defaults.engine.model.isa);
  EXPECT_EQ(config.engine.model.threads, defaults.engine.model.threads);
  EXPECT_EQ(config.engine.model.memory.budget_bytes, defaults.engine.model.memory.budget_bytes);
  EXPECT_EQ(config.engine.model.memory.context_tokens, defaults.engine.model.memory.context_tokens);
  EXPECT_EQ(config.engine.model.memory.chunk_tokens, defaults.engine.model.memory.chunk_tokens);
  EXPECT_EQ(config.engine.model.memory.expert_slots, defaults.engine.model.memory.expert_slots);
  EXPECT_EQ(config.engine.max_waiting, defaults.engine.max_waiting);
  EXPECT_EQ(config.server.host, defaults.server.host);
  EXPECT_EQ(config.server.port, defaults.server.port);
  EXPECT_EQ(config.server.api_keys, defaults.server.api_keys);
  EXPECT_EQ(config.server.allow_no_key, defaults.server.allow_no_key);
  EXPECT_EQ(config.server.cors_origins, defaults.server.cors_origins);
  EXPECT_EQ(config.server.max_body_bytes, defaults.server.max_body_bytes);
  EXPECT_EQ(config.server.keep_alive, defaults.server.keep_alive);
  EXPECT_EQ(config.server.shutdown_grace, defaults.server.shutdown_grace);
  EXPECT_EQ(config.server.effort, defaults.server.effort);
  EXPECT_EQ(config.log_level, defaults.log_level);
  std::vector<std::string> keys;
  for (const ConfigEntry& entry : read_config_file(path)) keys.push_back(entry.key);
  std::vector<std::string_view> names = setting_names();
  std::erase_if(names, [](std::string_view name) { return name.rfind("api-key", 0) == 0; });
  EXPECT_EQ(keys, std::vector<std::string>(names.begin(), names.end()));
}

TEST_F(ConfigTest, AddsTheSettingsOfAGroup) {
  CLI::App app;
  const ConfigOptions options(app, kModelSettings);
  EXPECT_NE(app.get_option_no_throw("--model"), nullptr);
  EXPECT_NE(app.get_option_no_throw("--log-level"), nullptr);
  EXPECT_EQ(app.get_option_no_throw("--ram"), nullptr);
  ::setenv("PENSTOCK_RAM", "2G", 1);
  app.parse("--model x");
  const Config config = options.resolve();
  EXPECT_EQ(config.model, "x");
  EXPECT_EQ(config.engine.model.memory.budget_bytes, 2ULL << 30U);
}

TEST_F(ConfigTest, FindsTheFolderOfTheModel) {
  EXPECT_EQ(model_folder(resolve({"--model", "/some/where"})), "/some/where");
  write_file("models/tiny/config.json", "{}");
  const std::string models = (home_ / "models").string();
  EXPECT_EQ(model_folder(resolve({"--model", "tiny", "--models-dir", models})), models + "/tiny");
  write_file(".local/share/penstock/models/mine/config.json", "{}");
  EXPECT_EQ(model_folder(resolve({"--model", "mine"})),
            (home_ / ".local/share/penstock/models/mine").string());
  EXPECT_TRUE(std::filesystem::exists(model_folder(resolve({})) + "/tiktoken.model"));
}

}  // namespace
}  // namespace penstock

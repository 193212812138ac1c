// SPDX-License-Identifier: Apache-2.0
#include "config/model_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

// A folder of models, and the working folder, each with some models in it.
class ModelFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"models/kimi-k3", "models/both", "models/demo", "work/both",
                               "work/here", "work/demo", "share"}) {
      std::filesystem::create_directories(dir_.path(folder));
    }
    old_ = std::filesystem::current_path();
    std::filesystem::current_path(dir_.path("work"));
  }
  void TearDown() override { std::filesystem::current_path(old_); }

  std::string find(const std::string& model) const { return find_model_folder(model, places()); }
  ModelPlaces places() const {
    return {.models_dir = dir_.path("models"),
            .demo = {dir_.path("nowhere"), dir_.path("share")},
            .configs = {dir_.path("nowhere"), dir_.path("configs")}};
  }

  TempDir dir_;
  std::filesystem::path old_;
};

TEST_F(ModelFolderTest, TakesWhatHasASlashAsAFolder) {
  EXPECT_EQ(find("/models/kimi-k3"), "/models/kimi-k3");
  EXPECT_EQ(find("./demo"), "./demo");
  EXPECT_EQ(find("both/"), "both/");
  EXPECT_EQ(find("."), ".");
  EXPECT_EQ(find(".."), "..");
}

TEST_F(ModelFolderTest, LooksForANameInTheModelsFolderFirst) {
  EXPECT_EQ(find("kimi-k3"), dir_.path("models/kimi-k3"));
  EXPECT_EQ(find("both"), dir_.path("models/both"));
  EXPECT_EQ(find("here"), "here");
}

TEST_F(ModelFolderTest, NamesThePlacesOfAnUnknownName) {
  const Error error = error_of([this] { find("kimi"); });
  EXPECT_EQ(error.code(), ErrorCode::usage);
  EXPECT_EQ(std::string(error.what()),
            "no model kimi: there is no folder " + dir_.path("models/kimi") +
                " and no ./kimi (--models-dir names the folder of models)");
  EXPECT_EQ(std::string(error_of([] { find_model_folder("kimi", {}); }).what()),
            "no model kimi: there is no folder ./kimi (--models-dir names the folder of models)");
}

TEST_F(ModelFolderTest, FindsTheFirstDemoThatHoldsAModel) {
  const Error error = error_of([this] { find("demo"); });
  EXPECT_EQ(error.code(), ErrorCode::usage);
  EXPECT_EQ(std::string(error.what()), "the demo model is in none of its places (" +
                                           dir_.path("nowhere") + ", " + dir_.path("share") +
                                           "); name a folder with --model DIR");
  dir_.write("share/config.json", "{}");
  EXPECT_EQ(find("demo"), dir_.path("share"));
  dir_.write("models/demo/config.json", "{}");
  EXPECT_EQ(find("demo"), dir_.path("share"));
}

TEST_F(ModelFolderTest, PlansPublishedConfigurationsWhereNoFolderHasTheName) {
  for (const char* name : {"kimi-k3", "here", "kimi-linear", "demo"}) {
    std::filesystem::create_directories(dir_.path(std::string("configs/") + name));
    dir_.write(std::string("configs/") + name + "/config.json", "{}");
  }
  dir_.write("share/config.json", "{}");
  const auto plan = [this](const std::string& model) {
    const PlannedFolder folder = find_planned_folder(model, places());
    return std::pair(folder.path, folder.has_weights);
  };
  EXPECT_EQ(plan("kimi-linear"), std::pair(dir_.path("configs/kimi-linear"), false));
  EXPECT_EQ(plan("kimi-k3"), std::pair(dir_.path("models/kimi-k3"), true));
  EXPECT_EQ(plan("here"), std::pair(std::string("here"), true));
  EXPECT_EQ(plan("demo"), std::pair(dir_.path("share"), true));
  EXPECT_EQ(plan("./kimi-linear"), std::pair(std::string("./kimi-linear"), true));
  EXPECT_EQ(error_of([&] { plan("unknown"); }).code(), ErrorCode::usage);
  EXPECT_EQ(error_of([this] { find("kimi-linear"); }).code(), ErrorCode::usage);
}

TEST(ModelPlaces, KnowTheConfigurationsOfTheSourceTree) {
  for (const char* name : {"kimi-k3", "kimi-linear"}) {
    const PlannedFolder folder = find_planned_folder(name, {.configs = published_config_places()});
    EXPECT_FALSE(folder.has_weights);
    EXPECT_TRUE(std::filesystem::exists(folder.path + "/config.json")) << folder.path;
  }
}

TEST(ModelPlaces, KnowTheDemoOfTheSourceTree) {
  const std::string folder = find_model_folder("demo", {.demo = demo_model_places()});
  EXPECT_TRUE(std::filesystem::exists(folder + "/model-00001-of-000010.safetensors"));
}

TEST(ModelPlaces, DefaultIsBelowTheDataFolder) {
  ::setenv("HOME", "/home/someone", 1);
  ::unsetenv("XDG_DATA_HOME");
  EXPECT_EQ(default_models_dir(), "/home/someone/.local/share/penstock/models");
  ::setenv("XDG_DATA_HOME", "relative", 1);
  EXPECT_EQ(default_models_dir(), "/home/someone/.local/share/penstock/models");
  ::setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(default_models_dir(), "/data/penstock/models");
  ::unsetenv("XDG_DATA_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(default_models_dir(), "");
}

}  // namespace
}  // namespace penstock

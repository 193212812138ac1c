// SPDX-License-Identifier: Apache-2.0
//
// From what the user calls a model to the folder that holds it: MODEL is a folder, or the name of
// one below the models folder, or "demo". Plain functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

inline constexpr std::string_view kDemoModel = "demo";  // ships with Penstock; the default

struct ModelPlaces {
  std::string models_dir{};            // --models-dir
  std::vector<std::string> demo{};     // where the demo model may lie, best first
  std::vector<std::string> configs{};  // where the published configurations may lie, best first
};

// "demo": the first demo folder that holds a config.json. Another name without a slash: the folder
// of that name below models_dir, else below the working folder. Anything else is a folder, which is
// checked when it is opened. Throws Error(usage) naming the places that were looked at.
std::string find_model_folder(const std::string& model, const ModelPlaces& places);

// What can be planned: a model's folder, or the one of a published configuration.
struct PlannedFolder {
  std::string path;
  bool has_weights;
};

// As find_model_folder, but where no folder has the name, a published configuration of that name
// does: kimi-k3, kimi-linear.
PlannedFolder find_planned_folder(const std::string& model, const ModelPlaces& places);

// Beside the executable (an archive), in ../share/penstock (installed), in the source tree that
// this was built from.
std::vector<std::string> demo_model_places();
std::vector<std::string> published_config_places();

// $XDG_DATA_HOME/penstock/models, else ~/.local/share/penstock/models; "" without a home.
std::string default_models_dir();

}  // namespace penstock

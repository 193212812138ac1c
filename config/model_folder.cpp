// SPDX-License-Identifier: Apache-2.0
#include "config/model_folder.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "engine/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";

// The folder of the running program, links resolved; "" when the system does not say.
std::string executable_folder() {
  std::error_code failed;
#ifdef __APPLE__
  std::uint32_t bytes = 0;
  _NSGetExecutablePath(nullptr, &bytes);
  std::string path(bytes, '\0');
  if (_NSGetExecutablePath(path.data(), &bytes) != 0) return "";
  const fs::path executable = fs::canonical(path.c_str(), failed);
#else
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
#endif
  return failed ? "" : executable.parent_path().string();
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;  // a folder that may not be looked into is none
  return fs::is_directory(path, ignored);
}

bool holds_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kConfigFile, ignored);
}

std::string find_demo(const std::vector<std::string>& places) {
  std::string tried;
  for (const std::string& folder : places) {
    if (holds_model(folder)) return folder;
    tried += (tried.empty() ? "" : ", ") + folder;
  }
  throw Error(ErrorCode::usage, "the demo model is in none of its places (" + tried +
                                    "); name a folder with --model DIR");
}

bool is_name(const std::string& model) {
  return !model.empty() && model.find('/') == std::string::npos && model != "." && model != "..";
}

// Where a folder of this name may lie, best first.
std::vector<std::string> places_of_name(const std::string& model, const ModelPlaces& places) {
  std::vector<std::string> folders;
  if (!places.models_dir.empty()) {
    folders.push_back((fs::path(places.models_dir) / model).string());
  }
  folders.push_back(model);
  return folders;
}

// The places where what ships with the program may lie: see demo_model_places.
std::vector<std::string> places_of_data(const std::string& name, const char* source_tree) {
  std::vector<std::string> places;
  const std::string folder = executable_folder();
  if (!folder.empty()) {
    places.push_back(folder + "/" + name);
    places.push_back((fs::path(folder) / "../share/penstock" / name).lexically_normal().string());
  }
  places.push_back(std::string(source_tree) + "/" + name);
  return places;
}

}  // namespace

std::string find_model_folder(const std::string& model, const ModelPlaces& places) {
  if (model == kDemoModel) return find_demo(places.demo);
  if (!is_name(model)) return model;
  const std::vector<std::string> folders = places_of_name(model, places);
  for (const std::string& folder : folders) {
    if (is_folder(folder)) return folder;
  }
  const std::string tried = folders.size() > 1 ? folders.front() + " and no " : "";
  throw Error(ErrorCode::usage, "no model " + model + ": there is no folder " + tried + "./" +
                                    model + " (--models-dir names the folder of models)");
}

PlannedFolder find_planned_folder(const std::string& model, const ModelPlaces& places) {
  const std::vector<std::string> folders = places_of_name(model, places);
  if (is_name(model) && std::none_of(folders.begin(), folders.end(), is_folder)) {
    for (const std::string& configs : places.configs) {
      const fs::path folder = fs::path(configs) / model;
      if (holds_model(folder)) return {folder.string(), false};
    }
  }
  return {find_model_folder(model, places), true};
}

std::vector<std::string> demo_model_places() {
  return places_of_data("demo-model", PENSTOCK_CONFIG_DIR);
}

std::vector<std::string> published_config_places() {
  return places_of_data("models", PENSTOCK_CONFIG_DIR);
}

std::string default_models_dir() {
  constexpr const char* kFolder = "penstock/models";
  const char* data = std::getenv("XDG_DATA_HOME");
  // The XDG specification tells to ignore a relative path.
  if (data != nullptr && *data == '/') return std::string(data) + "/" + kFolder;
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.local/share/" + kFolder;
  return "";
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "config/model_folder.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

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

}  // namespace

std::string find_model_folder(const std::string& model, const ModelPlaces& places) {
  if (model == kDemoModel) return find_demo(places.demo);
  if (!is_name(model)) return model;
  std::string tried;
  if (!places.models_dir.empty()) {
    const fs::path folder = fs::path(places.models_dir) / model;
    if (is_folder(folder)) return folder.string();
    tried = folder.string() + " and no ";
  }
  if (is_folder(model)) return model;
  throw Error(ErrorCode::usage, "no model " + model + ": there is no folder " + tried + "./" +
                                    model + " (--models-dir names the folder of models)");
}

std::vector<std::string> demo_model_places() {
  std::vector<std::string> places;
  const std::string folder = executable_folder();
  if (!folder.empty()) {
    places.push_back(folder + "/demo-model");
    places.push_back(
        (fs::path(folder) / "../share/penstock/demo-model").lexically_normal().string());
  }
  places.emplace_back(PENSTOCK_DEMO_MODEL_DIR);
  return places;
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

// SPDX-License-Identifier: Apache-2.0
#include "server/commands/version.h"

#include <nlohmann/json.hpp>

#include "kernels/kernels.h"

namespace penstock {
namespace {

// __VERSION__ is "12.2.0" with GCC; Clang puts its name before and its source revision behind.
std::string compiler_name() {
#ifdef __clang__
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return std::string("GCC ") + __VERSION__;
#endif
}

}  // namespace

std::string version_line() {
  std::string line = "penstock " PENSTOCK_VERSION " (" + compiler_name() + ";";
  const KernelList list = supported_kernels();
  for (int i = 0; i < list.count; ++i) {
    line += (i == 0 ? " " : ", ") + std::string(list.tables[i]->name);
  }
  return line + ")";
}

std::string version_json() {
  nlohmann::ordered_json json;
  json["version"] = PENSTOCK_VERSION;
  json["compiler"] = compiler_name();
  json["isa"] = nlohmann::ordered_json::array();
  const KernelList list = supported_kernels();
  for (int i = 0; i < list.count; ++i) json["isa"].push_back(list.tables[i]->name);
  return json.dump();
}

}  // namespace penstock

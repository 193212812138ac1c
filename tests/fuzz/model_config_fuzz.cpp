// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as config.json: either a checked configuration or one Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/error.h"
#include "engine/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const penstock::ModelConfig config = penstock::parse_model_config(text, "", "config.json");
    if (config.layers < 1 || config.is_kda.size() != static_cast<std::size_t>(config.layers) ||
        config.moe.top_k > config.moe.experts) {
      __builtin_trap();
    }
  } catch (const penstock::Error&) {
  }
  return 0;
}

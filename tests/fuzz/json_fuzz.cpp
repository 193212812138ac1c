// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as JSON: refused with a problem, or read into a value that keeps its text: writing and
// reading again changes nothing, in every style.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/text/json_text.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void fuzz_json(std::string_view text) {
  std::string problem;
  const std::optional<JsonValue> value = read_json(text, {.max_keys = 8}, &problem);
  require(value.has_value() == problem.empty());
  if (!value) return;
  for (const JsonStyle& style : {kAsSpeltJson, kPythonJson, kCanonicalJson}) {
    const std::string written = write_json(*value, style);
    require(valid_utf8_prefix(written) == written.size());
    const std::optional<JsonValue> again = read_json(written, {}, nullptr);
    // Python's Infinity is not JSON.
    require(again.has_value() || written.find("Infinity") != std::string::npos);
    if (again) require(write_json(*again, style) == written);
  }
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::fuzz_json({reinterpret_cast<const char*>(data), size});
  return 0;
}

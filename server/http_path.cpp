// SPDX-License-Identifier: Apache-2.0
#include "server/http_path.h"

#include <charconv>

namespace penstock {
namespace {

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string normalized_path(std::string_view target) {
  std::string path;
  for (const char c : target.substr(0, target.find_first_of("?#"))) {
    if (c != '/' || path.empty() || path.back() != '/') path += c;
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  constexpr std::string_view kVersion = "/v1";
  if (path == kVersion) path = "/";
  if (path.compare(0, kVersion.size() + 1, "/v1/") == 0) path.erase(0, kVersion.size());
  return unescaped(path);
}

}  // namespace penstock

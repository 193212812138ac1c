// SPDX-License-Identifier: Apache-2.0
#include "server/access.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "engine/base/error.h"
#include "server/api_error.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxRequestIdBytes = 128;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  // A compiler that saw through this could leave the loop early.
  volatile const unsigned result = difference;
  return result == 0;
}

// "Bearer KEY", whose scheme has no case.
std::string bearer(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower(header.substr(0, kScheme.size())) != kScheme) return {};
  header.remove_prefix(std::min(header.find_first_not_of(' ', kScheme.size()), header.size()));
  return std::string(header);
}

// Without port and brackets: "[::1]:8080" is "::1".
std::string host_name(std::string_view host) {
  if (!host.empty() && host.front() == '[') {
    const std::size_t end = std::min(host.find(']'), host.size());
    return lower(host.substr(1, end - 1));
  }
  const bool is_plain_ipv6 = host.find(':') != host.rfind(':');
  return lower(is_plain_ipv6 ? host : host.substr(0, host.find(':')));
}

// The host of "http://localhost:3000"; empty for origins without one ("null").
std::string_view origin_host(std::string_view origin) {
  const std::size_t slashes = origin.find("://");
  return slashes == origin.npos ? std::string_view() : origin.substr(slashes + 3);
}

bool is_address(std::string_view host) {
  const auto only = [host](std::string_view characters) {
    return host.find_first_not_of(characters) == host.npos;
  };
  return only("0123456789.") || (host.find(':') != host.npos && only("0123456789abcdef:.%"));
}

bool is_local_name(std::string_view host) {
  constexpr std::string_view kSuffix = ".localhost";
  return host == "localhost" ||
         (host.size() > kSuffix.size() && host.substr(host.size() - kSuffix.size()) == kSuffix);
}

// Pages that only an application of this machine shows: editors, browser extensions.
bool is_local_application(std::string_view origin) {
  constexpr std::string_view kSchemes[] = {
      "chrome-extension://", "moz-extension://", "safari-web-extension://",
      "vscode-webview://",   "tauri://",         "app://"};
  return std::any_of(std::begin(kSchemes), std::end(kSchemes), [origin](std::string_view scheme) {
    return origin.substr(0, scheme.size()) == scheme;
  });
}

ApiError forbidden(const std::string& message) {
  return {message, {.status = 403, .type = "permission_error"}};
}

}  // namespace

bool is_loopback(const std::string& host) {
  const std::string name = host_name(host);
  return is_local_name(name) || name == "::1" || (is_address(name) && name.rfind("127.", 0) == 0);
}

void check_exposure(const ServerOptions& options) {
  if (is_loopback(options.host) || !options.api_keys.empty() || options.allow_no_key) return;
  throw Error(ErrorCode::usage,
              "host " + options.host +
                  " can be reached by others, but no key is set: set api-key-file or api-key, or "
                  "say --insecure-no-auth");
}

void check_key(const ServerOptions& options, const Caller& caller) {
  if (options.api_keys.empty()) return;
  bool known = false;
  for (const std::string& sent : {bearer(caller.authorization), caller.x_api_key, caller.api_key}) {
    for (const std::string& key : options.api_keys) known |= equal_in_constant_time(sent, key);
  }
  if (known) return;
  const bool any =
      !caller.authorization.empty() || !caller.x_api_key.empty() || !caller.api_key.empty();
  throw ApiError(any ? "The API key is not known to this server"
                     : "An API key is needed: Authorization: Bearer KEY",
                 {.status = 401, .code = "invalid_api_key"});
}

bool origin_allowed(const ServerOptions& options, const Caller& caller) {
  const std::string origin = lower(caller.origin);
  const std::string_view host = origin_host(origin);
  if (!host.empty() && host == lower(caller.host)) return true;  // our own page
  return std::any_of(
      options.cors_origins.begin(), options.cors_origins.end(), [&](const std::string& allowed) {
        if (allowed == "localhost") {
          return (!host.empty() && is_loopback(std::string(host))) || is_local_application(origin);
        }
        return allowed == "*" || lower(allowed) == origin;
      });
}

void check_origin(const ServerOptions& options, const Caller& caller) {
  if (!caller.origin.empty() && !origin_allowed(options, caller)) {
    throw forbidden("Web pages of origin " + caller.origin +
                    " may not call this server: see cors-origins");
  }
  // A key is something that a page fooled by its name server does not know.
  if (!options.api_keys.empty() || !is_loopback(options.host) || caller.host.empty()) return;
  const std::string name = host_name(caller.host);
  const bool named = std::any_of(options.cors_origins.begin(), options.cors_origins.end(),
                                 [&](const std::string& allowed) {
                                   return allowed == "*" || host_name(origin_host(allowed)) == name;
                                 });
  if (is_address(name) || is_local_name(name) || named) return;
  throw forbidden("This server is not known as " + name + ": use its address, or see cors-origins");
}

std::optional<std::string> sane_request_id(std::string_view id) {
  const bool sane = !id.empty() && id.size() <= kMaxRequestIdBytes &&
                    std::all_of(id.begin(), id.end(), [](char c) {
                      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ||
                             c == '_' || c == '.' || c == ':';
                    });
  return sane ? std::optional<std::string>(id) : std::nullopt;
}

}  // namespace penstock

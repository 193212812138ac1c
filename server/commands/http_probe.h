// SPDX-License-Identifier: Apache-2.0
//
// One GET over plain HTTP, for a command that asks a server how it is. Plain functions.
#pragma once

#include <chrono>
#include <string>

namespace penstock {

struct HttpUrl {
  std::string host;
  std::string port;
};

// "http://HOST[:PORT]", the scheme may be missing; [::1] is an address in brackets. Throws
// Error(usage) when it is something else, https too.
HttpUrl parse_http_url(const std::string& url);

struct HttpAnswer {
  int status;
  std::string body;  // its first 64 KiB
};

// Throws Error(io) naming host, port and reason, when no answer has come after `timeout`, too.
HttpAnswer http_get(const HttpUrl& server, const std::string& path,
                    std::chrono::milliseconds timeout);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// What the HTTP server is told. Filled by config/. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/conversation.h"

namespace penstock {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                    // 0: any free one
  std::vector<std::string> api_keys;  // none: no key is asked for
  bool allow_no_key = false;          // an address that others can reach needs no key
  // Web pages that may call: "*" for all, "localhost" for those of this machine, or origins as
  // browsers write them. Browsers tell the page's origin; other clients are not concerned.
  std::vector<std::string> cors_origins = {"localhost"};
  std::uint64_t max_body_bytes = 64ULL << 20;
  std::chrono::seconds shutdown_grace{5};        // for the request that runs at the first signal
  std::chrono::milliseconds keep_alive{8000};    // the longest silence of a reply
  ThinkingEffort effort = ThinkingEffort::max;   // of requests that name none
  int worker_threads = 384;                      // connections served at once
  std::chrono::seconds idle_connection{5};       // how long one waits for its next request
  std::chrono::milliseconds poll_interval{200};  // how soon a client that went away is noticed
};

// An address that only this machine reaches.
bool is_loopback(const std::string& host);

}  // namespace penstock

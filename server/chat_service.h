// SPDX-License-Identifier: Apache-2.0
//
// One call from its body to the last byte of its response: parse, render, submit, and then the loop
// that turns the engine's events into frames. Thread-safe.
#pragma once

#include <vector>

#include "server/dialect.h"
#include "server/http_server.h"
#include "server/served_model.h"

namespace penstock {

class ChatService {
 public:
  // `state` must outlive the service, and that the routes.
  ChatService(ServerState& state, const ServerOptions& options);

  // One route per dialect.
  std::vector<HttpRoute> routes();

 private:
  HttpResponse handle(const Dialect& dialect, const HttpRequest& request);
  static std::string fingerprint(const ModelInfo& info);

  ServerState& state_;
  const ServerOptions options_;
};

}  // namespace penstock

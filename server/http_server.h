// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 over cpp-httplib, which only http_server.cpp sees: connections, bodies with a limit,
// keys, origins, routing by literal path, errors as JSON. A handler runs on a thread of its
// connection. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/server_options.h"

namespace penstock {

struct HttpRequest {
  std::string method;  // "GET"; of a HEAD request too
  std::string content_type;
  std::string path;  // as a route's, with what stands behind a route that ends with '/'
  std::string id;    // x-request-id of the response
  std::string body;
  std::chrono::steady_clock::time_point arrived;
};

// The body of a response on its way out.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  virtual bool write(std::string_view bytes) = 0;  // false: the client is gone
  virtual bool client_gone() = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};
  bool close = false;  // the connection ends after it
  // Unless empty: headers are sent at once, then this writes the body until it returns. It may not
  // throw, and returns soon after client_gone().
  std::function<void(HttpStream&)> stream{};
};

struct HttpRoute {
  std::string_view method;  // GET or POST
  std::string_view path;    // "/models": serves /v1/models too; a last '/' stands for any rest
  bool needs_key = true;
  std::function<HttpResponse(const HttpRequest&)> handle;  // may throw Error
  std::function<void()> admit{};  // throws what refuses a request before its body is read
};

class HttpServer {
 public:
  // Binds. Throws Error(io) naming address and reason, Error(usage) when the address needs a key.
  HttpServer(const ServerOptions& options, std::vector<HttpRoute> routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  void start();  // accepts connections, on threads of its own
  // Accepts no more, and waits until the requests that are being served are answered. Connections
  // that wait for a next request stay for as long as they may wait.
  void drain();
  void stop();  // drains, and waits for all connections to end

 private:
  struct Adapter;
  std::unique_ptr<Adapter> adapter_;
};

}  // namespace penstock

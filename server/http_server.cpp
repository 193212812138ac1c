// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <httplib.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/base/error.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/http_path.h"
#include "server/openai_common.h"

namespace penstock {
namespace {

constexpr int kBacklog = 511;  // the library's own is 5
constexpr std::size_t kRequestsPerConnection = 1'000'000;
constexpr std::time_t kReadTimeoutS = 10;   // between two pieces of a request
constexpr std::time_t kWriteTimeoutS = 30;  // a client that does not read for so long is gone
constexpr std::chrono::milliseconds kPollInterval{5};
constexpr const char* kMethods = "GET, POST, DELETE, OPTIONS, HEAD";

class SinkStream final : public HttpStream {
 public:
  explicit SinkStream(httplib::DataSink& sink) : sink_(sink) {}
  bool write(std::string_view bytes) override {
    if (!gone_ && !bytes.empty()) gone_ = !sink_.write(bytes.data(), bytes.size());
    return !gone_;
  }
  bool client_gone() override {
    gone_ = gone_ || !sink_.is_writable();
    return gone_;
  }
  bool gone() const { return gone_; }

 private:
  httplib::DataSink& sink_;
  bool gone_ = false;
};

// Counts a request from its head to the last byte of its response.
class InFlight {
 public:
  explicit InFlight(std::atomic<int>& count) : count_(count) { ++count_; }
  ~InFlight() { --count_; }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

 private:
  std::atomic<int>& count_;
};

// The body of one request: read once, up to a limit.
class Body {
 public:
  Body(const httplib::Request& request, const httplib::ContentReader* reader)
      : reader_(reader),
        length_(std::strtoull(request.get_header_value("Content-Length").c_str(), nullptr, 10)),
        left_(length_ > 0 || request.has_header("Transfer-Encoding")) {}

  std::string read(std::uint64_t limit, const httplib::Response& response) {
    std::string body;
    if (!left_ || reader_ == nullptr) return body;
    if (length_ > limit) throw too_large(limit);
    bool over = false;
    const bool complete = (*reader_)([&](const char* data, std::size_t size) {
      over = body.size() + size > limit;
      if (!over) body.append(data, size);
      return !over;
    });
    reader_ = nullptr;
    if (over) throw too_large(limit);
    if (!complete && response.status == 415) {
      throw ApiError("The content encoding is not supported", {.status = 415});
    }
    if (!complete) throw ApiError("The request body ended early", {});
    left_ = false;
    return body;
  }

  // Reads on for a client that still sends, so that it comes to read its answer.
  void discard(std::uint64_t limit) {
    if (!left_ || reader_ == nullptr) return;
    std::uint64_t bytes = 0;
    left_ = !(*reader_)([&](const char* /*data*/, std::size_t size) {
      bytes += size;
      return bytes <= limit;
    });
    reader_ = nullptr;
  }

  bool left() const { return left_; }  // the connection cannot be used again

 private:
  static ApiError too_large(std::uint64_t limit) {
    return {"The request body is larger than " + std::to_string(limit) + " bytes",
            {.status = 413, .code = "request_too_large"}};
  }

  const httplib::ContentReader* reader_;  // null once used
  const std::uint64_t length_;
  bool left_;
};

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.details().status;
  response.body = error_json(error);
  response.close = error.details().code == shutting_down().details().code;
  if (error.details().retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.details().retry_after_s));
  }
  if (!error.details().allow.empty()) {
    response.headers.emplace_back("Allow", error.details().allow);
  }
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Caller caller_of(const httplib::Request& request) {
  return {request.get_header_value("Authorization"), request.get_header_value("x-api-key"),
          request.get_header_value("api-key"), request.get_header_value("Origin"),
          request.get_header_value("Host")};
}

// Whole milliseconds since then, as OpenAI counts them: up to the headers of the response.
std::string processing_ms(std::chrono::steady_clock::time_point since) {
  using std::chrono::milliseconds;
  const auto taken = std::chrono::steady_clock::now() - since;
  return std::to_string(std::chrono::duration_cast<milliseconds>(taken).count());
}

std::string request_id(const httplib::Request& request) {
  for (const char* name : {"X-Request-Id", "X-Client-Request-Id"}) {
    if (const auto id = sane_request_id(request.get_header_value(name))) return *id;
  }
  return random_id("req_");
}

HttpResponse preflight(const httplib::Request& request) {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  const std::string wanted = request.get_header_value("Access-Control-Request-Headers");
  response.headers = {
      {"Allow", kMethods},
      {"Access-Control-Allow-Methods", kMethods},
      // A literal "*" does not cover Authorization.
      {"Access-Control-Allow-Headers", wanted.empty() ? "authorization, content-type" : wanted},
      {"Access-Control-Max-Age", "86400"}};
  if (request.get_header_value("Access-Control-Request-Private-Network") == "true") {
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return response;
}

}  // namespace

struct HttpServer::Adapter {
  Adapter(const ServerOptions& server_options, std::vector<HttpRoute> http_routes)
      : options(server_options), routes(std::move(http_routes)) {}

  void set_up();
  void bind();
  void serve(const httplib::Request& request, httplib::Response& response,
             const httplib::ContentReader* reader);
  HttpResponse answer(const httplib::Request& request, const httplib::Response& response,
                      const Caller& caller, const std::string& id, Body* body,
                      std::string_view* route_path);
  const HttpRoute& find_route(const std::string& method, const std::string& path) const;
  void send(HttpResponse from, const httplib::Request& request, httplib::Response* to);

  const ServerOptions options;
  const std::vector<HttpRoute> routes;
  httplib::Server server;
  int listener = -1;
  int port = 0;
  std::atomic<int> in_flight{0};
  std::thread thread;
};

void HttpServer::Adapter::set_up() {
  server.new_task_queue = [threads = options.worker_threads] {
    return new httplib::ThreadPool(static_cast<std::size_t>(threads));
  };
  server.set_keep_alive_max_count(kRequestsPerConnection);
  server.set_keep_alive_timeout(options.idle_connection.count());
  server.set_read_timeout(kReadTimeoutS);
  server.set_write_timeout(kWriteTimeoutS);
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(std::numeric_limits<std::size_t>::max());  // Body counts
  // The library's default shares the port with whoever else listens on it.
  server.set_socket_options([this](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    listener = static_cast<int>(socket);
  });
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    // The library would match each path by regular expressions, compress JSON (which holds back
    // the keep-alive) and cut ranges out of answers. The object is its own and not const.
    auto& own = const_cast<httplib::Request&>(request);
    own.path = "/";
    own.headers.erase("Accept-Encoding");
    own.ranges.clear();
    return httplib::Server::HandlerResponse::Unhandled;
  });
  const auto plain = [this](const httplib::Request& request, httplib::Response& response) {
    serve(request, response, nullptr);
  };
  const auto with_body = [this](const httplib::Request& request, httplib::Response& response,
                                const httplib::ContentReader& reader) {
    serve(request, response, &reader);
  };
  server.Get("/", plain);
  server.Options("/", plain);
  server.Post("/", with_body);
  server.Put("/", with_body);
  server.Patch("/", with_body);
  server.Delete("/", with_body);
  // What the library refuses before it comes to a handler.
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (response.has_header("x-request-id")) return;
    response.set_header("x-request-id", request_id(request));
    send(error_response(ApiError("The request is not valid HTTP", {.status = response.status})),
         request, &response);
  });
}

void HttpServer::Adapter::bind() {
  std::string host = options.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  errno = 0;
  port = options.port;
  if (port == 0) {
    port = server.bind_to_any_port(host);
  } else if (!server.bind_to_port(host, port)) {
    port = -1;
  }
  if (port < 0) {
    throw Error(ErrorCode::io, "cannot listen on " + options.host + " port " +
                                   std::to_string(options.port) + ": " +
                                   (errno == 0 ? "no such address" : std::strerror(errno)));
  }
  ::listen(listener, kBacklog);
}

const HttpRoute& HttpServer::Adapter::find_route(const std::string& method,
                                                 const std::string& path) const {
  const auto serves = [&path](const HttpRoute& route) {
    const bool is_prefix = route.path.size() > 1 && route.path.back() == '/';
    return is_prefix ? path.size() > route.path.size() && path.rfind(route.path, 0) == 0
                     : path == route.path;
  };
  std::string allowed;
  for (const HttpRoute& route : routes) {
    if (!serves(route)) continue;
    if (route.method == method) return route;
    allowed += std::string(route.method) + ", ";
  }
  if (allowed.empty()) {
    throw ApiError("Unknown path: " + method + " " + path, {.status = 404, .code = "unknown_url"});
  }
  throw ApiError(method + " is not a method of " + path + ": use " + allowed + "OPTIONS",
                 {.status = 405, .allow = allowed + "OPTIONS"});
}

HttpResponse HttpServer::Adapter::answer(const httplib::Request& request,
                                         const httplib::Response& response, const Caller& caller,
                                         const std::string& id, Body* body,
                                         std::string_view* route_path) {
  check_origin(options, caller);
  if (request.method == "OPTIONS") return preflight(request);
  HttpRequest own;
  own.arrived = std::chrono::steady_clock::now();
  own.method = request.method == "HEAD" ? "GET" : request.method;
  own.path = normalized_path(request.target);
  own.content_type = request.get_header_value("Content-Type");
  own.id = id;
  const HttpRoute& route = find_route(own.method, own.path);
  *route_path = route.path;
  if (route.needs_key) check_key(options, caller);
  if (route.admit) route.admit();
  own.body = body->read(options.max_body_bytes, response);
  return route.handle(own);
}

void HttpServer::Adapter::serve(const httplib::Request& request, httplib::Response& response,
                                const httplib::ContentReader* reader) {
  const InFlight counted(in_flight);
  const auto arrived = std::chrono::steady_clock::now();
  const std::string id = request_id(request);
  const Caller caller = caller_of(request);
  Body body(request, reader);
  std::string_view route = "-";  // what a stranger asked for stays out of the log
  HttpResponse from;
  try {
    from = answer(request, response, caller, id, &body, &route);
  } catch (...) {
    from = error_response(current_api_error());
  }
  body.discard(options.max_body_bytes);
  response.set_header("x-request-id", id);
  response.set_header("openai-processing-ms", processing_ms(arrived));
  if (!caller.origin.empty()) {
    response.set_header("Vary", "Origin");
    if (origin_allowed(options, caller)) {
      response.set_header("Access-Control-Allow-Origin", caller.origin);
      response.set_header("Access-Control-Expose-Headers", "x-request-id, retry-after");
    }
  }
  if (!from.stream) {
    const bool is_poll = request.method != "POST" && from.status < 400;
    spdlog::log(is_poll ? spdlog::level::debug : spdlog::level::info, "{} {} {} {}", id,
                request.method, route, from.status);
  }
  from.close = from.close || body.left();
  send(std::move(from), request, &response);
}

void HttpServer::Adapter::send(HttpResponse from, const httplib::Request& request,
                               httplib::Response* to) {
  to->status = from.status;
  for (const auto& [name, value] : from.headers) to->set_header(name, value);
  if (from.stream) {
    const bool is_http_1_0 = request.version == "HTTP/1.0";
    const auto provider = [stream = std::move(from.stream), close = from.close, is_http_1_0,
                           counted = std::make_shared<InFlight>(in_flight)](
                              std::size_t /*offset*/, httplib::DataSink& sink) {
      SinkStream out(sink);
      // An exception that left here would end the process.
      try {
        stream(out);
      } catch (const std::exception& error) {
        spdlog::error("a response failed: {}", error.what());
        return false;
      }
      if (out.gone()) return false;
      sink.done();
      return !close && !is_http_1_0;
    };
    if (is_http_1_0) {
      to->set_content_provider(from.content_type, provider);
    } else {
      to->set_chunked_content_provider(from.content_type, provider);
    }
    return;
  }
  if (!from.close || from.body.empty()) {
    to->set_content(from.body, from.content_type);
    return;
  }
  // A provider that fails once it has written everything is how the library closes a connection.
  to->set_header("Connection", "close");
  to->set_content_provider(from.body.size(), from.content_type,
                           [body = from.body](std::size_t, std::size_t, httplib::DataSink& sink) {
                             sink.write(body.data(), body.size());
                             return false;
                           });
}

HttpServer::HttpServer(const ServerOptions& options, std::vector<HttpRoute> routes)
    : adapter_(std::make_unique<Adapter>(options, std::move(routes))) {
  check_exposure(options);
  adapter_->set_up();
  adapter_->bind();
}

HttpServer::~HttpServer() {
  stop();
}

int HttpServer::port() const {
  return adapter_->port;
}

void HttpServer::start() {
  adapter_->thread = std::thread([adapter = adapter_.get()] {
    if (!adapter->server.listen_after_bind()) spdlog::error("the HTTP server ended");
  });
  while (!adapter_->server.is_running()) std::this_thread::sleep_for(kPollInterval);
}

void HttpServer::drain() {
  if (!adapter_->thread.joinable()) return;
  adapter_->server.stop();
  while (adapter_->in_flight > 0) std::this_thread::sleep_for(kPollInterval);
}

void HttpServer::stop() {
  drain();
  if (adapter_->thread.joinable()) adapter_->thread.join();
}

}  // namespace penstock

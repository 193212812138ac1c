// SPDX-License-Identifier: Apache-2.0
#include "server/commands/http_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "engine/base/error.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAnswerBytes = 64U << 10U;

bool is_port(const std::string& text) {
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc{} && stop == end && port > 0 && port <= 65535;
}

// A connection to one address, with an end of all patience.
class Connection {
 public:
  Connection(const addrinfo& address, Clock::time_point deadline)
      : socket_(::socket(address.ai_family, address.ai_socktype, address.ai_protocol)),
        deadline_(deadline) {
    if (socket_ < 0 || ::fcntl(socket_, F_SETFL, O_NONBLOCK) != 0) {
      fail(errno);
    } else if (::connect(socket_, address.ai_addr, address.ai_addrlen) != 0) {
      finish_connect(errno);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (socket_ >= 0) ::close(socket_);
  }

  const std::string& problem() const { return problem_; }  // "": none so far

  void write(std::string_view text) {
    while (!text.empty() && problem_.empty() && wait(POLLOUT)) {
      const ssize_t n = ::send(socket_, text.data(), text.size(), 0);
      if (n >= 0) {
        text.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno != EAGAIN && errno != EINTR) {
        fail(errno);
      }
    }
  }

  std::string read_all() {
    std::string text;
    std::array<char, 4096> block;
    while (problem_.empty() && text.size() < kMaxAnswerBytes && wait(POLLIN)) {
      const ssize_t n = ::recv(socket_, block.data(), block.size(), 0);
      if (n == 0) break;
      if (n > 0) {
        text.append(block.data(), static_cast<std::size_t>(n));
      } else if (errno != EAGAIN && errno != EINTR) {
        fail(errno);
      }
    }
    return text;
  }

 private:
  void finish_connect(int system_error) {
    socklen_t bytes = sizeof system_error;
    if (system_error == EINPROGRESS) {
      if (!wait(POLLOUT)) return;
      if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &system_error, &bytes) != 0) {
        system_error = errno;
      }
    }
    if (system_error != 0) fail(system_error);
  }

  void fail(int system_error) { problem_ = std::strerror(system_error); }

  bool wait(short events) {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      pollfd waiting = {.fd = socket_, .events = events, .revents = 0};
      const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
      if (ready > 0) return true;
      if (ready < 0 && errno == EINTR) continue;
      problem_ = ready < 0 ? std::strerror(errno) : "no answer in time";
      return false;
    }
  }

  int socket_;
  Clock::time_point deadline_;
  std::string problem_;
};

// "HTTP/1.1 200 OK" and so on; 0 when it is none.
int status_of(std::string_view answer) {
  int status = 0;
  const auto space = answer.find(' ');
  if (!answer.starts_with("HTTP/1.") || space == std::string_view::npos) return 0;
  std::from_chars(answer.data() + space + 1, answer.data() + answer.size(), status);
  return status;
}

}  // namespace

HttpUrl parse_http_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto fail = [&url] {
    throw Error(ErrorCode::usage, "the URL is \"" + url + "\", expected http://HOST:PORT");
  };
  std::string_view rest = url;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const auto bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const auto colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  HttpUrl parts{.host = std::string(rest.substr(0, colon)), .port = "80"};
  if (colon != std::string_view::npos) parts.port = rest.substr(colon + 1);
  if (bracket != std::string_view::npos) parts.host = parts.host.substr(1, bracket - 1);
  const bool has_path = rest.find('/') != std::string_view::npos;
  if (parts.host.empty() || has_path || !is_port(parts.port)) fail();
  return parts;
}

HttpAnswer http_get(const HttpUrl& server, const std::string& path,
                    std::chrono::milliseconds timeout) {
  const std::string name = server.host + " port " + server.port;
  const Clock::time_point deadline = Clock::now() + timeout;
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(server.host.c_str(), server.port.c_str(), &wanted, &found);
  if (failed != 0) throw Error(ErrorCode::io, name + ": " + ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &::freeaddrinfo);
  std::string problem;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Connection connection(*address, deadline);
    connection.write("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    const std::string answer = connection.read_all();
    problem = connection.problem();
    const int status = status_of(answer);
    if (problem.empty() && status != 0) {
      const auto body = answer.find("\r\n\r\n");
      return {status, body == std::string::npos ? "" : answer.substr(body + 4)};
    }
    if (problem.empty()) problem = "what came is no HTTP answer";
  }
  throw Error(ErrorCode::io, name + ": " + problem);
}

}  // namespace penstock

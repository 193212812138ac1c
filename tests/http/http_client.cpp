// SPDX-License-Identifier: Apache-2.0
#include "tests/http/http_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace penstock::testing {
namespace {

constexpr int kPatienceMs = 10'000;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool has_header(const Headers& headers, const std::string& name) {
  return std::any_of(headers.begin(), headers.end(),
                     [&name](const auto& header) { return lower(header.first) == name; });
}

}  // namespace

std::string Head::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

JsonValue Answer::json() const {
  return parse(body);
}

HttpClient::HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect to port " + std::to_string(port));
  }
}

HttpClient::~HttpClient() {
  ::close(socket_);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // the server may answer and close before it has read everything
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void HttpClient::send_request(const std::string& method, const std::string& path,
                              std::string_view body, const Headers& headers) {
  std::string head = method + " " + path + " HTTP/1.1\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  if (!has_header(headers, "host")) head += "Host: 127.0.0.1\r\n";
  if (!body.empty() || method == "POST") {
    if (!has_header(headers, "content-length")) {
      head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    if (!has_header(headers, "content-type")) head += "Content-Type: application/json\r\n";
  }
  send(head.append("\r\n").append(body));
}

void HttpClient::stop_sending() {
  ::shutdown(socket_, SHUT_WR);
}

bool HttpClient::fill() {
  pollfd waiting = {socket_, POLLIN, 0};
  if (::poll(&waiting, 1, kPatienceMs) == 0) throw std::runtime_error("nothing came within 10 s");
  char bytes[16384];
  const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::string HttpClient::read_line() {
  std::size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) throw std::runtime_error("the connection ended inside a line");
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::string HttpClient::read_bytes(std::size_t count) {
  while (buffer_.size() < count) {
    if (!fill()) throw std::runtime_error("the connection ended inside a body");
  }
  std::string bytes = buffer_.substr(0, count);
  buffer_.erase(0, count);
  return bytes;
}

Head HttpClient::read_head() {
  head_ = {};
  const std::string status = read_line();
  if (status.rfind("HTTP/1.", 0) != 0) throw std::runtime_error("not HTTP: " + status);
  head_.status = std::atoi(status.c_str() + 9);
  for (std::string line = read_line(); !line.empty(); line = read_line()) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) throw std::runtime_error("not a header: " + line);
    head_.headers[lower(line.substr(0, colon))] = line.substr(colon + 2);
  }
  return head_;
}

std::optional<std::string> HttpClient::read_chunk() {
  const std::size_t size = std::strtoull(read_line().c_str(), nullptr, 16);
  std::string chunk = read_bytes(size);
  if (!read_line().empty()) throw std::runtime_error("a chunk is longer than it says");
  return size == 0 ? std::nullopt : std::optional(std::move(chunk));
}

std::string HttpClient::read_rest() {
  std::string body;
  if (head_.header("transfer-encoding") == "chunked") {
    while (const auto chunk = read_chunk()) body += *chunk;
    return body;
  }
  const std::string length = head_.header("content-length");
  if (!length.empty()) return read_bytes(std::strtoull(length.c_str(), nullptr, 10));
  return read_to_end();
}

std::string HttpClient::read_to_end() {
  while (fill()) {
  }
  return std::exchange(buffer_, {});
}

Answer HttpClient::read_answer(bool has_body) {
  Answer answer{read_head(), {}};
  if (has_body) answer.body = read_rest();
  return answer;
}

bool HttpClient::closed_by_server() {
  return buffer_.empty() && !fill();
}

Answer ask(int port, const std::string& method, const std::string& path, std::string_view body,
           const Headers& headers) {
  HttpClient client(port);
  client.send_request(method, path, body, headers);
  return client.read_answer(method != "HEAD");
}

std::vector<std::string> data_frames(const std::string& stream) {
  std::vector<std::string> frames;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    if (end == std::string::npos) throw std::runtime_error("a frame without end");
    const std::string frame = stream.substr(at, end - at);
    at = end + 2;
    if (frame.find('\n') != std::string::npos) throw std::runtime_error("two lines: " + frame);
    if (frame.rfind(':', 0) == 0) continue;
    if (frame.rfind("data: ", 0) != 0) throw std::runtime_error("not a data line: " + frame);
    frames.push_back(frame.substr(6));
  }
  return frames;
}

const JsonValue* at(const JsonValue& value, std::string_view path) {
  const JsonValue* found = &value;
  while (found != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const std::string key(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
    if (found->is(JsonKind::array)) {
      const std::size_t index = std::strtoull(key.c_str(), nullptr, 10);
      found = index < found->items.size() ? &found->items[index] : nullptr;
    } else {
      found = found->find(key);
    }
  }
  return found;
}

std::string text_at(const JsonValue& value, std::string_view path) {
  const JsonValue* found = at(value, path);
  return found == nullptr ? std::string() : found->text;
}

JsonValue parse(const std::string& text) {
  std::string problem;
  auto value = read_json(text, {}, &problem);
  if (!value) throw std::runtime_error("not JSON: " + problem + ": " + text);
  return *std::move(value);
}

}  // namespace penstock::testing

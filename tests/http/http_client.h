// SPDX-License-Identifier: Apache-2.0
//
// A client for tests that sees what is on the wire: what was sent when, chunk by chunk.
// One owner thread. Throws std::runtime_error when nothing comes within ten seconds.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/json_text.h"

namespace penstock::testing {

struct Head {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters

  std::string header(const std::string& name) const;  // "" when absent
};

struct Answer : Head {
  std::string body;

  JsonValue json() const;  // throws when the body is not JSON
};

using Headers = std::vector<std::pair<std::string, std::string>>;

class HttpClient {
 public:
  explicit HttpClient(int port);  // connects to 127.0.0.1
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  // With Host, Content-Length (for a body or a POST) and Content-Type unless given.
  void send_request(const std::string& method, const std::string& path, std::string_view body = {},
                    const Headers& headers = {});
  void stop_sending();  // half-close

  Head read_head();
  std::optional<std::string> read_chunk();  // of a chunked body; nullopt at its end
  std::string read_rest();                  // of the body whose head was read last
  Answer read_answer(bool has_body = true);

  std::string read_to_end();  // all that comes until the server closes the connection
  bool closed_by_server();    // waits for it; false when bytes come instead

 private:
  bool fill();  // false at the end of the connection
  std::string read_line();
  std::string read_bytes(std::size_t count);

  int socket_;
  std::string buffer_;
  Head head_;
};

// One request on a connection of its own.
Answer ask(int port, const std::string& method, const std::string& path, std::string_view body = {},
           const Headers& headers = {});

// The frames of an event stream: the text of data lines, "[DONE]" too. Throws on what is neither a
// data line nor a comment.
std::vector<std::string> data_frames(const std::string& stream);

// A field at a path like "choices.0.delta.content", or null.
const JsonValue* at(const JsonValue& value, std::string_view path);
std::string text_at(const JsonValue& value, std::string_view path);  // "" when absent

JsonValue parse(const std::string& text);  // throws when it is not JSON

}  // namespace penstock::testing

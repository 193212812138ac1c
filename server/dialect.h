// SPDX-License-Identifier: Apache-2.0
//
// An API dialect: how its requests are read and its replies written. Each dialect is one row of the
// table; streamed and unstreamed replies are made of the same deltas.
// ResponseWriter: One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/conversation.h"
#include "server/api_error.h"

namespace penstock {

// A request that was read and found good.
struct ApiCall {
  // A conversation, ordinary text to be continued, or ids.
  std::variant<Conversation, std::string, std::vector<Token>> prompt;
  std::optional<std::int64_t> max_tokens;  // at least 1; nullopt: the room that is left
  std::vector<std::string> stops;          // of the content; without empty ones
  bool stream = false;
  bool include_usage = false;  // streamed: a last frame with the usage
};

// What a request means that leaves things open.
struct CallDefaults {
  ThinkingEffort effort = ThinkingEffort::max;
};

struct ReplyUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;      // of the prompt tokens
  std::int64_t completion_tokens = 0;  // markers and stop ids included
  std::int64_t reasoning_tokens = 0;   // of the completion tokens
};

// Turns the pieces of one reply into the bytes of its response. Each function returns what is to be
// sent now, possibly nothing; start comes first, then deltas, then end or error.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual std::string_view content_type() const = 0;
  virtual std::string start() = 0;
  virtual std::string keep_alive() = 0;  // what the dialect's clients count as life
  virtual std::string delta(const Delta& delta) = 0;
  virtual std::string end(ReplyFinish finish, const ReplyUsage& usage) = 0;
  virtual std::string error(const ApiError& error) = 0;
};

struct ReplyIdentity {
  std::string model;           // the served id
  std::int64_t created_s = 0;  // seconds since 1970
  std::string fingerprint{};   // of program and weights: names what is lossy
};

struct Dialect {
  std::string_view path;  // without /v1
  // Throws ApiError naming the field that is wrong.
  ApiCall (*parse)(const JsonValue& body, const CallDefaults& defaults);
  std::unique_ptr<ResponseWriter> (*make_writer)(const ApiCall& call,
                                                 const ReplyIdentity& identity);
};

std::span<const Dialect> dialects();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The reply to one call while it is made: events of the engine in, frames of the dialect out, a
// sign of life when nothing else comes. Dropping it cancels. One owner thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/dialect.h"
#include "server/http_server.h"
#include "server/reply_assembler.h"
#include "server/served_model.h"

namespace penstock {

class ReplyStream {
 public:
  struct Parts {
    std::string request_id;
    std::string_view route;
    std::chrono::steady_clock::time_point arrived;
    std::shared_ptr<ServedModel> model;
    std::unique_ptr<ReplyAssembler> assembler;
    std::unique_ptr<ResponseWriter> writer;
    std::int64_t prompt_tokens;  // as usage counts them
    std::chrono::milliseconds keep_alive;
    std::chrono::milliseconds poll_interval;
  };
  // Submits the request; throws what Engine::submit throws.
  ReplyStream(ServerState& state, Parts parts, GenerationRequest request);

  std::string content_type() const { return std::string(parts_.writer->content_type()); }

  // Writes the whole response. Returns early when the client is gone; never throws.
  void run(HttpStream& out);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ended : std::uint8_t { not_yet, done, failed, client_gone };

  void step(HttpStream& out);
  void take(const GenerationEvent& event, HttpStream& out);
  void add_token(Token id, HttpStream& out);
  void finish(ReplyCut cut, HttpStream& out);
  void fail(const ApiError& error, HttpStream& out);
  void send(std::string_view bytes, HttpStream& out);
  void check_client(HttpStream& out);
  ReplyUsage usage() const;
  void log() const;

  ServerState& state_;
  const ServerState::ActiveReply active_;
  const Parts parts_;
  Generation generation_;
  bool running_ = false;  // the engine has taken it up
  Ended ended_ = Ended::not_yet;
  std::string outcome_ = "client gone";  // for the log
  std::int64_t cached_tokens_ = 0;       // of all prompt ids
  GenerationStats stats_;
  Clock::time_point last_write_;
  Clock::time_point last_check_;
  Clock::time_point first_token_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/reply_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "server/api_error.h"

namespace penstock {

ReplyStream::ReplyStream(ServerState& state, Parts parts, GenerationRequest request)
    : state_(state),
      active_(state),
      parts_(std::move(parts)),
      generation_(parts_.model->engine().submit(std::move(request))) {}

void ReplyStream::run(HttpStream& out) {
  last_write_ = last_check_ = Clock::now();
  try {
    send(parts_.writer->start(), out);
    while (ended_ == Ended::not_yet) step(out);
  } catch (...) {
    fail(current_api_error(), out);
  }
  log();
}

void ReplyStream::step(HttpStream& out) {
  // At shutdown the running reply may go on for a while, those behind it do not begin.
  if (state_.stopping() || (state_.draining() && !running_)) return fail(shutting_down(), out);
  const auto event = generation_.next(std::min(parts_.poll_interval, parts_.keep_alive));
  if (event) take(*event, out);
  if (ended_ != Ended::not_yet) return;
  check_client(out);
  if (Clock::now() - last_write_ >= parts_.keep_alive) send(parts_.writer->keep_alive(), out);
}

void ReplyStream::take(const GenerationEvent& event, HttpStream& out) {
  if (const auto* started = std::get_if<StartedEvent>(&event)) {
    running_ = true;
    cached_tokens_ = started->cached_tokens;
  }
  if (const auto* token = std::get_if<TokenEvent>(&event)) return add_token(token->token, out);
  if (const auto* done = std::get_if<DoneEvent>(&event)) {
    stats_ = done->stats;
    finish(done->reason == FinishReason::stop ? ReplyCut::stopped : ReplyCut::limit, out);
  }
}

void ReplyStream::add_token(Token id, HttpStream& out) {
  if (parts_.assembler->tokens() == 0) first_token_ = Clock::now();
  std::string bytes;
  for (const Delta& delta : parts_.assembler->feed(id)) bytes += parts_.writer->delta(delta);
  send(bytes, out);
  if (parts_.assembler->complete()) finish(ReplyCut::stopped, out);
}

void ReplyStream::finish(ReplyCut cut, HttpStream& out) {
  std::vector<Delta> deltas;
  const ReplyFinish reason = parts_.assembler->finish(cut, &deltas);
  std::string bytes;
  for (const Delta& delta : deltas) bytes += parts_.writer->delta(delta);
  bytes += parts_.writer->end(reason, usage());
  outcome_ = reason == ReplyFinish::length ? "length" : "stop";
  send(bytes, out);
  if (ended_ == Ended::not_yet) ended_ = Ended::done;
}

void ReplyStream::fail(const ApiError& error, HttpStream& out) {
  outcome_ = error.details().code.empty() ? error.details().type : error.details().code;
  send(parts_.writer->error(error), out);
  if (ended_ == Ended::not_yet) ended_ = Ended::failed;
}

void ReplyStream::send(std::string_view bytes, HttpStream& out) {
  if (bytes.empty()) return;
  if (!out.write(bytes)) ended_ = Ended::client_gone;
  last_write_ = Clock::now();
}

// Asking the socket costs two system calls, and prefill events come by the hundred.
void ReplyStream::check_client(HttpStream& out) {
  const Clock::time_point now = Clock::now();
  if (now - last_check_ < parts_.poll_interval) return;
  last_check_ = now;
  if (out.client_gone()) ended_ = Ended::client_gone;
}

ReplyUsage ReplyStream::usage() const {
  return {.prompt_tokens = parts_.prompt_tokens,
          .cached_tokens = std::min(cached_tokens_, parts_.prompt_tokens),
          .completion_tokens = parts_.assembler->tokens(),
          .reasoning_tokens = parts_.assembler->reasoning_tokens()};
}

void ReplyStream::log() const {
  const auto seconds = [](Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  };
  const ReplyUsage used = usage();
  const std::int64_t tokens = used.completion_tokens;
  const Clock::time_point first = tokens > 0 ? first_token_ : Clock::now();
  const double decode_s = seconds(Clock::now() - first);
  const double rate = tokens > 1 && decode_s > 0 ? static_cast<double>(tokens - 1) / decode_s : 0;
  const auto asked = static_cast<double>(stats_.expert_reads + stats_.expert_hits);
  spdlog::info(
      "{} POST {} 200 {}: {} prompt tokens ({} cached), {} generated; first after {:.2f} s, "
      "{:.1f} tokens/s; {:.2f} GB read, {:.0f} % of experts in memory",
      parts_.request_id, parts_.route, ended_ == Ended::client_gone ? "client gone" : outcome_,
      used.prompt_tokens, used.cached_tokens, tokens, seconds(first - parts_.arrived), rate,
      static_cast<double>(stats_.drive_bytes) * 1e-9,
      asked > 0 ? 100.0 * static_cast<double>(stats_.expert_hits) / asked : 0.0);
}

}  // namespace penstock

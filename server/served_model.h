// SPDX-License-Identifier: Apache-2.0
//
// A model ready to answer, and the state of the server that every request looks at.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine.h"
#include "engine/text/chat_format.h"
#include "engine/text/tokenizer.h"

namespace penstock {

// Thread-safe.
class ServedModel {
 public:
  // Loads the weights; throws what Engine throws. `format` refers to `tokenizer`, which has as many
  // ids as the model.
  ServedModel(std::unique_ptr<const Tokenizer> tokenizer, std::unique_ptr<const ChatFormat> format,
              const EngineOptions& options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatFormat& format() const { return *format_; }
  Engine& engine() { return engine_; }
  const ModelInfo& info() const { return engine_.model(); }

 private:
  const std::unique_ptr<const Tokenizer> tokenizer_;
  const std::unique_ptr<const ChatFormat> format_;
  Engine engine_;
};

// Thread-safe.
class ServerState {
 public:
  explicit ServerState(std::string model_id);

  const std::string& model_id() const { return model_id_; }
  std::int64_t started_s() const { return started_s_; }  // seconds since 1970

  void set_model(std::shared_ptr<ServedModel> model);
  std::shared_ptr<ServedModel> model() const;  // null while it loads

  // Shutdown: draining, no new work begins; stopping, what runs ends at its next poll.
  void drain() { draining_ = true; }
  void stop() { draining_ = stopping_ = true; }
  bool draining() const { return draining_; }
  bool stopping() const { return stopping_; }

  // Counts the replies that are being made.
  class ActiveReply {
   public:
    explicit ActiveReply(ServerState& state) : state_(state) { ++state_.active_; }
    ~ActiveReply() { --state_.active_; }
    ActiveReply(const ActiveReply&) = delete;
    ActiveReply& operator=(const ActiveReply&) = delete;

   private:
    ServerState& state_;
  };
  int active_replies() const { return active_; }

 private:
  const std::string model_id_;
  const std::int64_t started_s_;
  mutable std::mutex mutex_;
  std::shared_ptr<ServedModel> model_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> active_{0};
};

}  // namespace penstock

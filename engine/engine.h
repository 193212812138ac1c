// SPDX-License-Identifier: Apache-2.0
//
// The engine: one thread that owns a model and serves a bounded queue of requests, one at a time,
// greedily (the lowest id wins a tie). Callers hold a Generation; dropping it cancels.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/token.h"
#include "engine/model/load_model.h"
#include "engine/stats.h"

namespace penstock {

struct EngineOptions {
  ModelOptions model;             // model.memory.chunk_tokens: prompt tokens per sweep
  std::int32_t max_waiting = 16;  // requests behind the running one
  bool follow_memory = true;      // the budget shrinks and grows with what the machine has left
  // Called by the engine thread when a generation has ended, however it ended; may be empty.
  std::function<void(const GenerationProfile&)> on_profile{};
};

struct GenerationRequest {
  std::vector<Token> prompt{};    // at least one id, all in [0, vocab)
  std::int64_t max_tokens = 0;    // at least 1; clamped to the room left in the context
  bool ignore_stop = false;       // go on past stop ids
  std::vector<Token> stop_ids{};  // besides the model's own
  // Leading blocks of the prompt that other requests may share, as lengths (0: none): behind the
  // declared tools, and behind the last leading system message. tools_end <= leading_end.
  std::int64_t tools_end = 0;
  std::int64_t leading_end = 0;
  bool prompt_logits = false;  // give PromptLogits events
  bool layer_outputs = false;  // give a LayerOutputs event
};

enum class FinishReason : std::uint8_t { stop, length };

struct QueuedEvent {
  std::int32_t ahead;  // requests before this one
};
struct StartedEvent {
  std::int64_t cached_tokens;  // of the prompt, as in the statistics
};
struct PrefillEvent {
  std::int64_t done_tokens;  // committed
  std::int64_t total_tokens;
  std::int32_t layer;  // of the running sweep
  std::int32_t layers;
};
struct PromptLogitsEvent {
  std::int64_t position;
  std::vector<float> logits;  // [tokens][vocab] from that position on
};
struct LayerOutputsEvent {
  std::vector<float> outputs;  // [layers][hidden] at the last prompt token
};
struct TokenEvent {
  Token token;  // a stop id is given too, as the last one
};
struct DoneEvent {
  FinishReason reason;
  GenerationStats stats;
};
using GenerationEvent = std::variant<QueuedEvent, StartedEvent, PrefillEvent, PromptLogitsEvent,
                                     LayerOutputsEvent, TokenEvent, DoneEvent>;

struct GenerationChannel;  // the queue with two ends between engine and caller

// One request, from its caller's side. Move-only; one thread at a time. The destructor cancels.
class Generation {
 public:
  Generation(Generation&&) noexcept;
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  Generation& operator=(Generation&&) noexcept;
  ~Generation();

  // The next event, or nullopt after `timeout`. After DoneEvent nothing more comes. Rethrows the
  // Error that ended the generation.
  std::optional<GenerationEvent> next(std::chrono::milliseconds timeout);

 private:
  friend class Engine;
  explicit Generation(std::shared_ptr<GenerationChannel> channel);
  std::shared_ptr<GenerationChannel> channel_;
};

class Engine {
 public:
  // Loads the model; throws what load_model throws.
  explicit Engine(const EngineOptions& options);
  ~Engine();  // cancels what runs or waits; their next() throws Error(shutdown)
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelInfo& model() const;

  // Throws Error(bad_request) when the request is wrong (ids out of range, longer than the
  // context), Error(queue_full) when max_waiting requests wait already, Error(shutdown) after the
  // end began.
  Generation submit(GenerationRequest request);

  bool idle() const;  // nothing runs or waits

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace penstock

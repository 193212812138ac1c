// SPDX-License-Identifier: Apache-2.0
//
// One request from its prompt to its last token, on the engine thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/generation.h"
#include "engine/model/model.h"
#include "engine/prefix_cache.h"
#include "engine/stats.h"

namespace penstock {

class Run {
 public:
  // `between_steps` is called when no step of a sweep runs; `each_token`: profile every token.
  Run(Model& model, PrefixCache& cache, GenerationChannel& channel,
      std::function<void()> between_steps, bool each_token);

  // Sends the request's events, DoneEvent last. Throws what ended it instead: Error(cancelled) when
  // the caller is gone, Error(io) and others of the model. What was committed by then is kept.
  void run();

  const GenerationProfile& profile() const { return profile_; }  // so far

 private:
  void start();
  void prefill();
  void decode();
  std::unique_ptr<Sweep> sweep(Slice slice, bool layer_outputs);
  std::vector<std::int64_t> lengths_to_keep(std::int64_t begin, std::int64_t end);
  void keep_reached(Sweep& done, std::span<const std::int64_t> lengths);
  void keep_sequence();
  bool is_stop(Token id) const;
  std::int32_t chunk();
  void finish(FinishReason reason);
  void end_phase(PhaseProfile* phase, std::int64_t tokens);

  Model& model_;
  PrefixCache& cache_;
  GenerationChannel& channel_;
  const GenerationRequest& request_;
  const std::function<void()> between_steps_;
  const bool each_token_;
  const ModelStats before_;
  ModelStats phase_before_;
  std::chrono::steady_clock::time_point phase_begin_;
  std::unique_ptr<SequenceState> sequence_;
  std::vector<Token> ids_;          // prompt, then what was generated
  std::vector<float> last_logits_;  // [vocab], after the last token of the prompt or sequence
  GenerationProfile profile_;
  GenerationStats& stats_ = profile_.stats;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// A language model as the engine sees it: token ids in, logits out, one layer at a time.
//
// A sweep takes new tokens of any number of sequences through all layers. Nothing of a sequence
// changes before commit(): a sweep that is dropped, cancelled or failed leaves every sequence at
// its last committed token. Bits do not depend on how tokens are grouped into sweeps. One owner
// thread: everything here belongs to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/base/stop_flag.h"
#include "engine/base/token.h"

namespace penstock {

class KeptState;

// What one sequence remembers. Made by Model::new_sequence.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual std::int64_t length() const = 0;  // committed tokens
};

// The state after some tokens of a sequence, for use as a start. Immutable.
class KeptState {
 public:
  virtual ~KeptState() = default;
  virtual std::int64_t length() const = 0;
  // Bytes of its parts that are not in `counted` yet; they join it. States share latent blocks.
  virtual std::uint64_t memory_bytes(std::unordered_set<const void*>* counted) const = 0;
  // Logits after its last token [vocab], when the sweep that kept it computed them; else empty.
  virtual std::span<const float> logits() const = 0;
};

// New tokens of one sequence.
struct Slice {
  SequenceState* sequence;            // at most one slice per sequence in a sweep
  std::span<const Token> tokens;      // at least one
  std::int32_t logits_from;           // logits of tokens [logits_from, size): size for none
  std::vector<std::int64_t> keep_at;  // lengths whose state is kept: in (length, length + size],
                                      // ascending
};

class Sweep {
 public:
  virtual ~Sweep() = default;

  // Computes one layer, in the end the output head. Returns false when nothing is left to do.
  // Throws Error(io), Error(model), Error(memory); Error(cancelled) soon after `stop` is set. After
  // a throw the sweep can only be dropped.
  virtual bool step() = 0;
  virtual std::int32_t steps_done() const = 0;
  virtual std::int32_t steps_total() const = 0;

  // Makes the new tokens part of their sequences. Only after step() returned false.
  virtual void commit() = 0;

  // After the last step: logits of the slice [tokens - logits_from][vocab].
  virtual std::span<const float> logits(std::size_t slice) const = 0;
  // After the last step: each layer's output at the last token of the slice, [layers][hidden]. For
  // K3 that is the layer's prefix, before the final aggregation. Only when asked for at begin().
  virtual std::span<const float> layer_outputs(std::size_t slice) const = 0;
  // After commit(): the states kept by the slice, in the order of keep_at.
  virtual std::vector<std::shared_ptr<const KeptState>> take_kept(std::size_t slice) = 0;
};

struct SweepOptions {
  const StopFlag* stop = nullptr;
  bool layer_outputs = false;
};

// Work done since load. Seconds are of the engine thread.
struct ModelStats {
  std::uint64_t expert_reads = 0;
  std::uint64_t expert_hits = 0;
  std::uint64_t expert_bytes = 0;  // payload
  std::uint64_t spine_bytes = 0;   // payload: streamed segments and embedding rows
  std::uint64_t drive_bytes = 0;   // asked of the drive, widening included
  std::uint64_t ahead_reads = 0;   // experts that were read because a layer might want them ...
  std::uint64_t ahead_hits = 0;    // ... and did
  double drive_busy_s = 0;         // something was being read
  double step_s = 0;               // in Sweep::step(), of which
  double spine_wait_s = 0;         // waited for a segment of the spine
  double expert_wait_s = 0;        // waited for an expert
  double expert_compute_s = 0;
  double kda_s = 0;
  double mla_s = 0;
  double head_s = 0;
};
ModelStats operator-(const ModelStats& after, const ModelStats& before);

// What is in memory now.
struct ModelMemory {
  std::uint64_t budget_bytes = 0;
  std::uint64_t spine_bytes = 0;   // payload of all segments
  std::uint64_t pinned_bytes = 0;  // of those that are pinned and there
  std::int64_t expert_slots = 0;
};

// Of the checkpoint, checked.
struct ModelInfo {
  std::string architecture;  // "kimi-k3", "kimi-linear"
  std::int32_t layers;
  std::int32_t hidden;
  std::int32_t vocab;
  std::int64_t max_context;
  std::vector<Token> stop_ids;     // end of text, as config and generation_config say
  std::int32_t chunk_tokens;       // tokens per sweep that the memory plan grants
  std::uint64_t kept_state_bytes;  // of one kept state, without its latents
  std::uint64_t latent_bytes_per_token;
  std::uint64_t budget_bytes;      // of memory that the model was loaded with
  std::string spine;               // format of the spine: "bf16", "bf12", "int8" (lossy)
  std::vector<std::string> notes;  // lines for the log: how it runs, what would help
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual ModelStats stats() const = 0;
  virtual ModelMemory memory() const = 0;

  // Between the steps of sweeps: pins and expert slots follow the budget, down to the floor. Bits
  // do not depend on it.
  virtual void set_budget(std::uint64_t bytes) = 0;
  virtual std::uint64_t kept_budget() const = 0;  // bytes for kept states, by the memory plan
  // Between sweeps: reads what should be pinned, without waiting. Returns whether there is more to
  // do soon.
  virtual bool upkeep() = 0;

  virtual std::unique_ptr<SequenceState> new_sequence() = 0;
  virtual std::unique_ptr<SequenceState> new_sequence(const KeptState& start) = 0;

  // Turns a sequence into a state kept at its committed length, without logits. Copies nothing.
  virtual std::shared_ptr<const KeptState> keep(std::unique_ptr<SequenceState> sequence) = 0;

  // `tokens` of the slices must outlive the sweep; ids must be in [0, vocab), total tokens at most
  // info().chunk_tokens. Throws Error(bad_request) otherwise.
  virtual std::unique_ptr<Sweep> begin(std::vector<Slice> slices, const SweepOptions& options) = 0;
};

}  // namespace penstock

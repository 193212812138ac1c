// SPDX-License-Identifier: Apache-2.0
#include "engine/run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/error.h"
#include "engine/model/ops.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Logits of a whole prompt leave sweep by sweep. They take memory three times: in the sweep, on
// their way to the caller, and with the caller.
constexpr std::uint64_t kPromptLogitsCopies = 3;
constexpr std::uint64_t kPromptLogitsBytes = kPromptLogitsCopies * (256ULL << 20U);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Run::Run(Model& model, PrefixCache& cache, GenerationChannel& channel,
         std::function<void()> between_steps, bool each_token)
    : model_(model),
      cache_(cache),
      channel_(channel),
      request_(channel.request),
      between_steps_(std::move(between_steps)),
      each_token_(each_token),
      before_(model.stats()),
      phase_before_(before_),
      phase_begin_(Clock::now()),
      ids_(request_.prompt) {
  stats_.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size());
}

void Run::run() {
  start();
  channel_.push(StartedEvent{stats_.cached_tokens});
  try {
    prefill();
    end_phase(&profile_.prefill, stats_.prompt_tokens - stats_.cached_tokens);
    stats_.prefill_s = profile_.prefill.wall_s;
    decode();
  } catch (...) {
    profile_.memory = model_.memory();
    keep_sequence();
    throw;
  }
  keep_sequence();
}

// Begins with the longest kept state whose ids are a prefix of the prompt.
void Run::start() {
  const bool wants_all = request_.prompt_logits || request_.layer_outputs;
  const auto kept = wants_all ? nullptr : cache_.find(request_.prompt);
  if (!kept) {
    sequence_ = model_.new_sequence();
    return;
  }
  sequence_ = model_.new_sequence(*kept);
  stats_.cached_tokens = kept->length();
  if (kept->length() == stats_.prompt_tokens) {
    last_logits_.assign(kept->logits().begin(), kept->logits().end());
  }
}

// Tokens per sweep. The logits of a whole prompt have the room of kept states.
std::int32_t Run::chunk() {
  const ModelInfo& info = model_.info();
  if (!request_.prompt_logits) return info.chunk_tokens;
  const std::uint64_t row_bytes =
      kPromptLogitsCopies * static_cast<std::uint64_t>(info.vocab) * sizeof(float);
  const std::uint64_t rows = std::min(kPromptLogitsBytes, model_.kept_budget()) / row_bytes;
  const auto tokens = static_cast<std::int32_t>(
      std::clamp<std::uint64_t>(rows, 1, static_cast<std::uint64_t>(info.chunk_tokens)));
  cache_.make_room(static_cast<std::uint64_t>(tokens) * row_bytes, true);
  return tokens;
}

// Runs one sweep to its end and commits it.
std::unique_ptr<Sweep> Run::sweep(Slice slice, bool layer_outputs) {
  const bool prefilling = sequence_->length() < stats_.prompt_tokens;
  std::vector<Slice> slices;
  slices.push_back(std::move(slice));
  auto sweep =
      model_.begin(std::move(slices), {.stop = &channel_.stop, .layer_outputs = layer_outputs});
  do {
    if (prefilling) {
      channel_.push(PrefillEvent{sequence_->length(), stats_.prompt_tokens, sweep->steps_done(),
                                 sweep->steps_total()});
    }
    if (channel_.stop.stop_requested()) throw Error(ErrorCode::cancelled, "cancelled");
    between_steps_();
  } while (sweep->step());
  sweep->commit();
  return sweep;
}

void Run::prefill() {
  const std::span<const Token> prompt(request_.prompt);
  const std::int64_t total = stats_.prompt_tokens;
  while (sequence_->length() < total) {
    const std::int64_t begin = sequence_->length();
    const std::int64_t end = std::min(total, begin + chunk());
    const auto tokens = static_cast<std::int32_t>(end - begin);
    const bool is_last = end == total;
    const bool wants_layers = is_last && request_.layer_outputs;
    const std::vector<std::int64_t> lengths = lengths_to_keep(begin, end);
    const auto done = sweep({.sequence = sequence_.get(),
                             .tokens = prompt.subspan(static_cast<std::size_t>(begin),
                                                      static_cast<std::size_t>(tokens)),
                             .logits_from = request_.prompt_logits ? 0
                                            : is_last              ? tokens - 1
                                                                   : tokens,
                             .keep_at = lengths},
                            wants_layers);
    keep_reached(*done, lengths);
    const std::span<const float> logits = done->logits(0);
    if (is_last) {
      const auto last = logits.last(static_cast<std::size_t>(model_.info().vocab));
      last_logits_.assign(last.begin(), last.end());
    }
    if (request_.prompt_logits) {
      channel_.push(PromptLogitsEvent{begin, std::vector<float>(logits.begin(), logits.end())});
    }
    if (wants_layers) {
      const std::span<const float> outputs = done->layer_outputs(0);
      channel_.push(LayerOutputsEvent{std::vector<float>(outputs.begin(), outputs.end())});
    }
  }
}

// The lengths in (begin, end] whose states the cache has room for and does not hold: behind the
// tools, behind the leading messages, the whole prompt.
std::vector<std::int64_t> Run::lengths_to_keep(std::int64_t begin, std::int64_t end) {
  if (request_.prompt_logits) return {};  // they take the room
  const ModelInfo& info = model_.info();
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length :
       {request_.tools_end, request_.leading_end, stats_.prompt_tokens}) {
    const bool is_new = lengths.empty() || lengths.back() < length;
    if (length <= begin || length > end || !is_new) continue;
    const auto ids = std::span(ids_).first(static_cast<std::size_t>(length));
    if (cache_.contains(ids, length == stats_.prompt_tokens)) continue;
    const std::uint64_t bytes = (lengths.size() + 1) * info.kept_state_bytes +
                                static_cast<std::uint64_t>(length) * info.latent_bytes_per_token;
    if (!cache_.make_room(bytes, request_.tools_end > 0)) break;
    lengths.push_back(length);
  }
  return lengths;
}

void Run::keep_reached(Sweep& done, std::span<const std::int64_t> lengths) {
  const auto kept = done.take_kept(0);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const KeptKind kind = lengths[i] == stats_.prompt_tokens ? KeptKind::prompt : KeptKind::block;
    cache_.insert(kind, std::span(ids_).first(static_cast<std::size_t>(lengths[i])), kept[i],
                  request_.tools_end > 0);
  }
}

// Keeps what was committed: the prompt and the reply, or as far as it came.
void Run::keep_sequence() {
  const std::int64_t length = sequence_->length();
  const auto ids = std::span(ids_).first(static_cast<std::size_t>(length));
  if (length == 0 || cache_.contains(ids, false)) return;
  cache_.insert(KeptKind::reply, ids, model_.keep(std::move(sequence_)), request_.tools_end > 0);
}

bool Run::is_stop(Token id) const {
  if (request_.ignore_stop) return false;
  const auto contains = [id](const std::vector<Token>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return contains(model_.info().stop_ids) || contains(request_.stop_ids);
}

void Run::decode() {
  const std::int64_t room = model_.info().max_context - stats_.prompt_tokens;
  const std::int64_t limit = std::min(request_.max_tokens, room);
  while (true) {
    const Token id = argmax(last_logits_.data(), model_.info().vocab);
    ids_.push_back(id);
    ++stats_.generated_tokens;
    channel_.push(TokenEvent{id});
    const bool stopped = is_stop(id);
    if (stopped || stats_.generated_tokens >= limit) {
      return finish(stopped ? FinishReason::stop : FinishReason::length);
    }
    const Clock::time_point begin = Clock::now();
    const ModelStats before = model_.stats();
    const auto done = sweep(
        {.sequence = sequence_.get(), .tokens = {&id, 1}, .logits_from = 0, .keep_at = {}}, false);
    if (each_token_) {
      profile_.generated.push_back({1, seconds_since(begin), model_.stats() - before});
    }
    const std::span<const float> logits = done->logits(0);
    last_logits_.assign(logits.begin(), logits.end());
  }
}

// Closes a phase that began where the one before ended.
void Run::end_phase(PhaseProfile* phase, std::int64_t tokens) {
  const ModelStats now = model_.stats();
  *phase = {tokens, seconds_since(phase_begin_), now - phase_before_};
  phase_before_ = now;
  phase_begin_ = Clock::now();
}

void Run::finish(FinishReason reason) {
  // The first id came with the prompt.
  end_phase(&profile_.decode, stats_.generated_tokens - 1);
  stats_.decode_s = profile_.decode.wall_s;
  profile_.memory = model_.memory();
  const ModelStats work = model_.stats() - before_;
  stats_.expert_reads = work.expert_reads;
  stats_.expert_hits = work.expert_hits;
  stats_.expert_bytes = work.expert_bytes;
  stats_.spine_bytes = work.spine_bytes;
  stats_.drive_bytes = work.drive_bytes;
  channel_.push(DoneEvent{reason, stats_});
}

}  // namespace penstock

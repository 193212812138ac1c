// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/generation.h"
#include "engine/model/ops.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Logits of a whole prompt leave sweep by sweep, so that they never take more memory than this.
constexpr std::int64_t kPromptLogitsBytes = 256LL << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::exception_ptr shutdown_error() {
  return std::make_exception_ptr(Error(ErrorCode::shutdown, "the engine is going down"));
}

// Runs one request on the engine thread.
class Run {
 public:
  Run(Model& model, GenerationChannel& channel)
      : model_(model), channel_(channel), request_(channel.request), before_(model.stats()) {}

  void run();

 private:
  void prefill();
  std::unique_ptr<Sweep> sweep(std::span<const Token> tokens, std::int32_t logits_from,
                               bool layer_outputs);
  void decode();
  bool is_stop(Token id) const;
  std::int32_t chunk() const;
  void finish(FinishReason reason);

  Model& model_;
  GenerationChannel& channel_;
  const GenerationRequest& request_;
  const ModelStats before_;
  std::unique_ptr<SequenceState> sequence_;
  std::vector<float> last_logits_;  // [vocab], after the last committed token
  GenerationStats stats_;
};

void Run::run() {
  stats_.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size());
  sequence_ = model_.new_sequence();
  const Clock::time_point start = Clock::now();
  prefill();
  stats_.prefill_s = seconds_since(start);
  const Clock::time_point decode_start = Clock::now();
  decode();
  stats_.decode_s = seconds_since(decode_start);
}

std::int32_t Run::chunk() const {
  const ModelInfo& info = model_.info();
  if (!request_.prompt_logits) return info.chunk_tokens;
  const std::int64_t row_bytes =
      std::int64_t{info.vocab} * static_cast<std::int64_t>(sizeof(float));
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(kPromptLogitsBytes / row_bytes, 1, info.chunk_tokens));
}

// Runs one sweep to its end and commits it.
std::unique_ptr<Sweep> Run::sweep(std::span<const Token> tokens, std::int32_t logits_from,
                                  bool layer_outputs) {
  auto sweep = model_.begin(
      {{.sequence = sequence_.get(), .tokens = tokens, .logits_from = logits_from, .keep_at = {}}},
      {.stop = &channel_.stop, .layer_outputs = layer_outputs});
  const bool prefilling = sequence_->length() < stats_.prompt_tokens;
  do {
    if (prefilling) {
      channel_.push(PrefillEvent{sequence_->length(), stats_.prompt_tokens, sweep->steps_done(),
                                 sweep->steps_total()});
    }
    if (channel_.stop.stop_requested()) throw Error(ErrorCode::cancelled, "cancelled");
  } while (sweep->step());
  sweep->commit();
  return sweep;
}

void Run::prefill() {
  const std::span<const Token> prompt(request_.prompt);
  const auto vocab = static_cast<std::size_t>(model_.info().vocab);
  for (std::size_t begin = 0; begin < prompt.size();) {
    const auto part =
        prompt.subspan(begin, std::min(prompt.size() - begin, static_cast<std::size_t>(chunk())));
    const bool is_last = begin + part.size() == prompt.size();
    const auto tokens = static_cast<std::int32_t>(part.size());
    const std::int32_t from = request_.prompt_logits ? 0 : is_last ? tokens - 1 : tokens;
    const auto done = sweep(part, from, is_last && request_.layer_outputs);
    const std::span<const float> logits = done->logits(0);
    if (is_last)
      last_logits_.assign(logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end());
    if (request_.prompt_logits) {
      channel_.push(PromptLogitsEvent{static_cast<std::int64_t>(begin),
                                      std::vector<float>(logits.begin(), logits.end())});
    }
    if (is_last && request_.layer_outputs) {
      const std::span<const float> outputs = done->layer_outputs(0);
      channel_.push(LayerOutputsEvent{std::vector<float>(outputs.begin(), outputs.end())});
    }
    begin += part.size();
  }
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
  const Clock::time_point start = Clock::now();
  while (true) {
    const Token id = argmax(last_logits_.data(), model_.info().vocab);
    ++stats_.generated_tokens;
    channel_.push(TokenEvent{id});
    const bool stopped = is_stop(id);
    if (stopped || stats_.generated_tokens >= limit) {
      stats_.decode_s = seconds_since(start);
      return finish(stopped ? FinishReason::stop : FinishReason::length);
    }
    const auto done = sweep({&id, 1}, 0, false);
    const std::span<const float> logits = done->logits(0);
    last_logits_.assign(logits.begin(), logits.end());
  }
}

void Run::finish(FinishReason reason) {
  const ModelStats after = model_.stats();
  stats_.expert_reads = after.expert_reads - before_.expert_reads;
  stats_.expert_hits = after.expert_hits - before_.expert_hits;
  stats_.expert_bytes = after.expert_bytes - before_.expert_bytes;
  stats_.spine_bytes = after.spine_bytes - before_.spine_bytes;
  stats_.drive_bytes = after.drive_bytes - before_.drive_bytes;
  channel_.push(DoneEvent{reason, stats_});
}

}  // namespace

struct Engine::Shared {
  explicit Shared(const EngineOptions& options)
      : max_waiting(static_cast<std::size_t>(options.max_waiting)),
        model(load_model(options.model)) {}

  void serve();
  std::shared_ptr<GenerationChannel> take();
  void run_one(GenerationChannel& generation);
  void fail_waiting();
  void tell_positions();

  const std::size_t max_waiting;
  const std::unique_ptr<Model> model;  // of the engine thread, but for info()

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::shared_ptr<GenerationChannel>> waiting;
  std::shared_ptr<GenerationChannel> running;
  bool ending = false;

  std::thread thread;
};

// The next request whose caller still waits; null when the engine ends.
std::shared_ptr<GenerationChannel> Engine::Shared::take() {
  std::unique_lock lock(mutex);
  running.reset();
  wake.wait(lock, [&] { return ending || !waiting.empty(); });
  if (ending) return nullptr;
  running = std::move(waiting.front());
  waiting.pop_front();
  tell_positions();
  return running;
}

// Tells those that wait how many are before them. The mutex is held.
void Engine::Shared::tell_positions() {
  std::int32_t ahead = running ? 1 : 0;
  for (const auto& generation : waiting) generation->push(QueuedEvent{ahead++});
}

void Engine::Shared::run_one(GenerationChannel& generation) {
  try {
    if (generation.stop.stop_requested()) throw Error(ErrorCode::cancelled, "cancelled");
    Run(*model, generation).run();
  } catch (const std::bad_alloc&) {
    generation.fail(std::make_exception_ptr(
        Error(ErrorCode::memory, "out of memory while computing: lower --ram or --context")));
  } catch (...) {
    const std::lock_guard lock(mutex);
    generation.fail(ending ? shutdown_error() : std::current_exception());
  }
}

void Engine::Shared::serve() {
  while (const auto generation = take()) run_one(*generation);
  fail_waiting();
}

void Engine::Shared::fail_waiting() {
  const std::lock_guard lock(mutex);
  const auto error =
      std::make_exception_ptr(Error(ErrorCode::shutdown, "the engine is going down"));
  for (const auto& generation : waiting) generation->fail(error);
  waiting.clear();
}

Engine::Engine(const EngineOptions& options) : shared_(std::make_unique<Shared>(options)) {
  shared_->thread = std::thread([shared = shared_.get()] { shared->serve(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
    if (shared_->running) shared_->running->stop.request_stop();
  }
  shared_->wake.notify_one();
  shared_->thread.join();
}

const ModelInfo& Engine::model() const {
  return shared_->model->info();
}

Generation Engine::submit(GenerationRequest request) {
  const ModelInfo& info = model();
  const auto fail = [](const std::string& problem) {
    throw Error(ErrorCode::bad_request, problem);
  };
  if (request.prompt.empty()) fail("the prompt is empty: at least one token is needed");
  if (request.max_tokens < 1)
    fail("max_tokens is " + std::to_string(request.max_tokens) + ", expected at least 1");
  if (static_cast<std::int64_t>(request.prompt.size()) >= info.max_context) {
    fail("this model's maximum context length is " + std::to_string(info.max_context) +
         " tokens, but the prompt has " + std::to_string(request.prompt.size()) +
         ": reduce the length of the messages");
  }
  for (const Token id : request.prompt) {
    if (id < 0 || id >= info.vocab) {
      fail("token id " + std::to_string(id) + " is not in the vocabulary: expected 0 to " +
           std::to_string(info.vocab - 1));
    }
  }
  auto generation = std::make_shared<GenerationChannel>(std::move(request));
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->ending) throw Error(ErrorCode::shutdown, "the engine is going down");
    std::erase_if(shared_->waiting,
                  [](const auto& waiting) { return waiting->stop.stop_requested(); });
    if (shared_->waiting.size() >= shared_->max_waiting) {
      throw Error(ErrorCode::queue_full, std::to_string(shared_->waiting.size()) +
                                             " requests are waiting already: try again later");
    }
    shared_->waiting.push_back(generation);
    generation->push(QueuedEvent{static_cast<std::int32_t>(shared_->waiting.size() - 1) +
                                 (shared_->running ? 1 : 0)});
  }
  shared_->wake.notify_one();
  return Generation(std::move(generation));
}

bool Engine::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return !shared_->running && shared_->waiting.empty();
}

}  // namespace penstock

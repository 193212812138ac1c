// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/system_memory.h"
#include "engine/generation.h"
#include "engine/memory_watcher.h"
#include "engine/prefix_cache.h"
#include "engine/run.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kUpkeepPause{5};
constexpr std::chrono::milliseconds kIdlePause{1000};

// The most that the budget may grow to: what the user named, or the share of the machine that is
// taken by default, were all of its memory free.
std::uint64_t memory_ceiling(const EngineOptions& options) {
  if (options.model.memory.budget_bytes > 0) return options.model.memory.budget_bytes;
  SystemMemory memory = system_memory();
  memory.available_bytes = memory.total_bytes;
  return default_memory_budget(memory);
}

std::exception_ptr shutdown_error() {
  return std::make_exception_ptr(Error(ErrorCode::shutdown, "the engine is going down"));
}

}  // namespace

struct Engine::Shared {
  explicit Shared(const EngineOptions& options)
      : max_waiting(static_cast<std::size_t>(options.max_waiting)),
        on_profile(options.on_profile),
        model(load_model(options.model)),
        cache(model->kept_budget()) {
    budget = model->info().budget_bytes;
    if (options.follow_memory) watcher.emplace(budget, memory_ceiling(options));
  }

  void serve();
  std::shared_ptr<GenerationChannel> take();
  void run_one(GenerationChannel& generation);
  bool look_after_memory();
  void follow_memory();
  void fail_waiting();
  void tell_positions();

  const std::size_t max_waiting;
  const std::function<void(const GenerationProfile&)> on_profile;
  const std::unique_ptr<Model> model;  // of the engine thread, but for info()
  PrefixCache cache;                   // of the engine thread
  std::uint64_t budget = 0;            // as the model was told last
  std::optional<MemoryWatcher> watcher;

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
  while (!ending && waiting.empty()) {
    lock.unlock();
    const bool more = look_after_memory();
    lock.lock();
    // With upkeep or a watcher there is something to look after from time to time.
    const auto pause = more ? kUpkeepPause : kIdlePause;
    wake.wait_for(lock, pause, [&] { return ending || !waiting.empty(); });
  }
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
  std::optional<Run> run;
  try {
    if (generation.stop.stop_requested()) throw Error(ErrorCode::cancelled, "cancelled");
    run.emplace(
        *model, cache, generation, [this] { follow_memory(); }, on_profile != nullptr);
    run->run();
  } catch (const std::bad_alloc&) {
    generation.fail(std::make_exception_ptr(
        Error(ErrorCode::memory, "out of memory while computing: lower --ram or --context")));
  } catch (...) {
    const std::lock_guard lock(mutex);
    generation.fail(ending ? shutdown_error() : std::current_exception());
  }
  if (on_profile && run) on_profile(run->profile());
}

// What is done while nobody asks for anything. Returns whether there is more of it soon.
bool Engine::Shared::look_after_memory() {
  try {
    follow_memory();
    return model->upkeep();
  } catch (const std::exception&) {
    return false;  // the request that needs the memory meets the same trouble and reports it
  }
}

// Lets the model follow what the machine has left.
void Engine::Shared::follow_memory() {
  if (!watcher) return;
  const std::uint64_t allowed = watcher->allowed();
  if (allowed == budget) return;
  budget = allowed;
  model->set_budget(allowed);
  cache.set_budget(model->kept_budget());
}

void Engine::Shared::serve() {
  std::fesetenv(FE_DFL_ENV);  // as every compute thread has it
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

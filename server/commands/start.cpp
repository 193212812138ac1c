// SPDX-License-Identifier: Apache-2.0
#include "server/commands/start.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "server/commands/signals.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};  // the longest that a signal waits

void set_up_logging(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("penstock");
  logger->set_pattern("%n: %^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace

EngineOptions start(const Config& config) {
  if (config.engine.model.dir.empty()) {
    throw Error(ErrorCode::usage, "no model named: --model DIR is missing");
  }
  set_up_logging(config.log_level);
  EngineOptions options = config.engine;
  options.model.stop = &stop_on_signals();
  return options;
}

DoneEvent generate(Engine& engine, GenerationRequest request, const StopFlag& stop,
                   const std::function<void(const GenerationEvent&)>& on_event) {
  Generation generation = engine.submit(std::move(request));
  while (!stop.stop_requested()) {
    const std::optional<GenerationEvent> event = generation.next(kPollInterval);
    if (!event) continue;
    on_event(*event);
    if (const auto* done = std::get_if<DoneEvent>(&*event)) return *done;
  }
  throw Error(ErrorCode::cancelled, "interrupted");
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/commands/start.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "server/commands/profile.h"
#include "server/commands/signals.h"
#include "server/commands/terminal.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kPollInterval{100};  // the longest that a signal waits

std::string describe(const PrefillEvent& prefill) {
  return "reading the prompt: " + std::to_string(prefill.done_tokens) + " of " +
         std::to_string(prefill.total_tokens) + " tokens, layer " + std::to_string(prefill.layer) +
         " of " + std::to_string(prefill.layers);
}

}  // namespace

void set_up_logging(const Config& config, const char* level) {
  auto logger = spdlog::stderr_color_mt("penstock");
  logger->set_pattern("%n: %^%l%$: %v");
  logger->set_level(spdlog::level::from_str(config.log_level == "auto" ? level : config.log_level));
  spdlog::set_default_logger(std::move(logger));
}

EngineOptions start(const Config& config) {
  set_up_logging(config, "warn");
  EngineOptions options = config.engine;
  options.model.dir = model_folder(config);
  options.on_profile = profile_writer(config);
  options.model.stop = &stop_on_signals();
  return options;
}

DoneEvent generate(Engine& engine, GenerationRequest request, const Stopped& stopped,
                   const std::function<void(const GenerationEvent&)>& on_event) {
  StatusLine status;
  Generation generation = engine.submit(std::move(request));
  while (!stopped()) {
    const std::optional<GenerationEvent> event = generation.next(kPollInterval);
    if (!event) continue;
    if (const auto* prefill = std::get_if<PrefillEvent>(&*event)) {
      if (status.due()) status.show(describe(*prefill));
    } else {
      status.clear();
    }
    on_event(*event);
    if (const auto* done = std::get_if<DoneEvent>(&*event)) return *done;
  }
  throw Error(ErrorCode::cancelled, "interrupted");
}

}  // namespace penstock

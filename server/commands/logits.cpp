// SPDX-License-Identifier: Apache-2.0
//
// `penstock logits`: what the model makes of every token of a prompt, for comparison with others.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "config/config.h"
#include "engine/engine.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/start.h"
#include "server/commands/token_ids.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock logits --model /models/kimi-k3 --ids 1,2,3 --out logits.f32\n"
    "  penstock logits --model /models/kimi-k3 --ids - --out logits.f32 --layers layers.f32 < ids\n"
    "\n"
    "Files hold float32 values, little-endian: logits as [tokens][vocab], layer outputs as\n"
    "[layers][hidden] at the last token. They appear when they are complete.";

class LogitsCommand : public Command {
 public:
  explicit LogitsCommand(CLI::App* app) : Command(app), settings_(*app) {
    app->add_option("--ids", ids_, "Prompt as token ids, e.g. 1,2,3; - reads them from stdin")
        ->type_name("LIST")
        ->required();
    app->add_option("--out", logits_path_, "File for the logits after every token")
        ->type_name("FILE")
        ->required();
    app->add_option("--layers", layers_path_, "File for each layer's output at the last token")
        ->type_name("FILE");
    app->footer(kExamples);
  }

  int run() override {
    GenerationRequest request;
    request.prompt = read_token_ids(ids_);
    request.max_tokens = 1;
    request.prompt_logits = true;
    request.layer_outputs = !layers_path_.empty();
    const EngineOptions options = start(settings_.resolve());
    // Opened first: a wrong path should not cost a load of the model.
    FloatFile logits(logits_path_);
    std::optional<FloatFile> layers;
    if (request.layer_outputs) layers.emplace(layers_path_);
    Engine engine(options);
    const auto stopped = [&options] { return options.model.stop->stop_requested(); };
    generate(engine, std::move(request), stopped, [&](const GenerationEvent& event) {
      if (const auto* rows = std::get_if<PromptLogitsEvent>(&event)) logits.write(rows->logits);
      if (const auto* outputs = std::get_if<LayerOutputsEvent>(&event)) {
        layers->write(outputs->outputs);
      }
    });
    logits.commit();
    if (layers) layers->commit();
    return 0;
  }

 private:
  std::string ids_;
  std::string logits_path_;
  std::string layers_path_;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_logits_command(CLI::App& app) {
  return std::make_unique<LogitsCommand>(
      app.add_subcommand("logits", "Write the logits after every token of a prompt to a file"));
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// `penstock plan`: what a model would take, without loading it.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "engine/model/load_model.h"
#include "engine/weights/memory_plan.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/start.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock plan --model /models/kimi-k3              with the memory of this machine\n"
    "  penstock plan --model /models/kimi-k3 --ram 128G   with another budget\n"
    "  penstock plan --model kimi-k3                      without the weights: kimi-k3, "
    "kimi-linear\n"
    "\n"
    "Reads configuration and headers only. Exit status 0 when the plan could be made, whether\n"
    "the model fits or not: the last line says which (\"fits\" with --json).";

std::string describe_model(const ModelPlan& plan) {
  const std::int64_t experts = std::int64_t{plan.moe_layers} * plan.experts;
  return plan.architecture + ": " + std::to_string(plan.layers) + " layers, " +
         std::to_string(plan.moe_layers) + " of them with " + std::to_string(plan.experts) +
         " routed experts, " + std::to_string(plan.top_k) + " per token\n" +
         "files: " + format_bytes(plan.file_bytes) + "\n" +
         "read from the drive when needed: " + std::to_string(experts) + " experts of " +
         format_bytes(plan.expert_bytes) + ", " + format_bytes(plan.all_expert_bytes) +
         " in all; embedding by row, " + format_bytes(plan.embedding_bytes) + "\n";
}

std::string describe_source(const std::string& model) {
  return "planned without weights, from the published configuration: there is no folder " + model +
         "\n";
}

std::string describe_verdict(const MemoryPlan& plan) {
  if (!plan.fits) return "does not fit: " + describe_shortage(plan) + "\n";
  return "fits: needs at least " + format_bytes(plan.floor_bytes) + ", the budget is " +
         format_bytes(plan.budget_bytes) + "\n";
}

nlohmann::ordered_json plan_json(const ModelPlan& plan) {
  nlohmann::ordered_json json;
  json["architecture"] = plan.architecture;
  json["layers"] = plan.layers;
  json["moe_layers"] = plan.moe_layers;
  json["experts"] = plan.experts;
  json["top_k"] = plan.top_k;
  json["file_bytes"] = plan.file_bytes;
  json["expert_bytes"] = plan.expert_bytes;
  json["all_expert_bytes"] = plan.all_expert_bytes;
  json["embedding_bytes"] = plan.embedding_bytes;
  nlohmann::ordered_json memory;
  memory["budget_bytes"] = plan.memory.budget_bytes;
  memory["floor_bytes"] = plan.memory.floor_bytes;
  memory["spine_bytes"] = plan.memory.spine_bytes;
  memory["vector_bytes"] = plan.memory.vector_bytes;
  memory["state_bytes"] = plan.memory.state_bytes;
  memory["latent_bytes"] = plan.memory.latent_bytes;
  memory["scratch_bytes"] = plan.memory.scratch_bytes;
  memory["process_bytes"] = plan.memory.process_bytes;
  memory["kept_bytes"] = plan.memory.kept_bytes;
  memory["expert_slots"] = plan.memory.expert_slots;
  memory["expert_bytes"] = plan.memory.expert_bytes;
  memory["chunk_tokens"] = plan.memory.chunk_tokens;
  json["memory"] = memory;
  json["fits"] = plan.memory.fits;
  return json;
}

class PlanCommand : public Command {
 public:
  explicit PlanCommand(CLI::App* app) : Command(app), settings_(*app) {
    app->add_flag("--json", json_, "Print the plan as one JSON object");
    app->footer(kExamples);
  }

  int run() override {
    const Config config = settings_.resolve();
    set_up_logging(config, "warn");
    ModelOptions options = config.engine.model;
    const PlannedFolder folder = planned_folder(config);
    options.dir = folder.path;
    options.without_weights = !folder.has_weights;
    const ModelPlan plan = plan_model(options);
    if (json_) {
      nlohmann::ordered_json json = plan_json(plan);
      json["without_weights"] = options.without_weights;
      write_stdout(json.dump() + "\n");
    } else {
      if (options.without_weights) write_stdout(describe_source(config.model));
      std::string memory = describe_plan(plan.memory);
      if (!memory.ends_with('\n')) memory += '\n';
      write_stdout(describe_model(plan) + memory + describe_verdict(plan.memory));
    }
    return 0;
  }

 private:
  bool json_ = false;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_plan_command(CLI::App& app) {
  return std::make_unique<PlanCommand>(
      app.add_subcommand("plan", "Show what a model would keep in memory and read from the drive"));
}

}  // namespace penstock

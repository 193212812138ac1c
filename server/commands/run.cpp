// SPDX-License-Identifier: Apache-2.0
//
// `penstock run`: a prompt in, greedy tokens out.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "engine/engine.h"
#include "engine/weights/memory_plan.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/start.h"
#include "server/commands/token_ids.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock run --model /models/kimi-k3 --ids 163584,1008 --max-tokens 32\n"
    "  penstock run --model /models/kimi-k3 --ids - --json < ids.txt\n"
    "  penstock run --model /models/kimi-linear --ids 1,2,3 --ram 24G --ignore-stop\n"
    "\n"
    "Prints the generated ids as they come, and a line of statistics on standard error;\n"
    "with --json one object {\"ids\", \"finish_reason\", \"stats\"} at the end. A stop id that "
    "ended\n"
    "the reply is the last one.";

const char* finish_reason_name(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : "length";
}

nlohmann::ordered_json stats_json(const GenerationStats& stats) {
  nlohmann::ordered_json json;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["prefill_s"] = stats.prefill_s;
  json["decode_s"] = stats.decode_s;
  json["expert_reads"] = stats.expert_reads;
  json["expert_hits"] = stats.expert_hits;
  json["expert_bytes"] = stats.expert_bytes;
  json["spine_bytes"] = stats.spine_bytes;
  json["drive_bytes"] = stats.drive_bytes;
  return json;
}

void print_stats(const GenerationStats& stats, FinishReason reason) {
  std::fprintf(stderr,
               "%lld prompt tokens in %.2f s, %lld generated in %.2f s (%s); "
               "%llu experts read, %llu in memory; %s from the drive\n",
               static_cast<long long>(stats.prompt_tokens), stats.prefill_s,
               static_cast<long long>(stats.generated_tokens), stats.decode_s,
               finish_reason_name(reason), static_cast<unsigned long long>(stats.expert_reads),
               static_cast<unsigned long long>(stats.expert_hits),
               format_bytes(stats.drive_bytes).c_str());
}

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App* app) : Command(app), settings_(*app) {
    app->add_option("--ids", ids_, "Prompt as token ids, e.g. 1,2,3; - reads them from stdin")
        ->type_name("LIST");
    app->add_option("--max-tokens", max_tokens_, "Most tokens to generate (default: 128)")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
    app->add_flag("--ignore-stop", ignore_stop_, "Go on past the model's end of text");
    app->add_flag("--json", json_, "Print one JSON object at the end");
    app->footer(kExamples);
  }

  int run() override {
    GenerationRequest request;
    request.prompt = read_token_ids(ids_);
    request.max_tokens = max_tokens_;
    request.ignore_stop = ignore_stop_;
    const EngineOptions options = start(settings_.resolve());
    Engine engine(options);
    const DoneEvent done = generate(engine, std::move(request), *options.model.stop,
                                    [this](const GenerationEvent& event) { on_event(event); });
    report(done);
    return 0;
  }

 private:
  void on_event(const GenerationEvent& event) {
    const auto* token = std::get_if<TokenEvent>(&event);
    if (token == nullptr) return;
    if (!json_) write_stdout((generated_.empty() ? "" : ",") + std::to_string(token->token));
    generated_.push_back(token->token);
  }

  void report(const DoneEvent& done) const {
    if (!json_) {
      write_stdout("\n");
      print_stats(done.stats, done.reason);
      return;
    }
    nlohmann::ordered_json json;
    json["ids"] = generated_;
    json["finish_reason"] = finish_reason_name(done.reason);
    json["stats"] = stats_json(done.stats);
    write_stdout(json.dump() + "\n");
  }

  std::string ids_;
  std::int64_t max_tokens_ = 128;
  bool ignore_stop_ = false;
  bool json_ = false;
  ConfigOptions settings_;
  std::vector<Token> generated_;
};

}  // namespace

std::unique_ptr<Command> add_run_command(CLI::App& app) {
  return std::make_unique<RunCommand>(
      app.add_subcommand("run", "Generate greedily from a prompt of token ids"));
}

}  // namespace penstock

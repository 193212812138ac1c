// SPDX-License-Identifier: Apache-2.0
//
// `penstock run`: one prompt in, one answer out. The prompt is a chat message, text to go on with,
// or token ids.
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
#include "engine/base/error.h"
#include "engine/engine.h"
#include "engine/text/utf8.h"
#include "server/commands/answer.h"
#include "server/commands/chat_options.h"
#include "server/commands/command.h"
#include "server/commands/input.h"
#include "server/commands/model_text.h"
#include "server/commands/output.h"
#include "server/commands/reply_printer.h"
#include "server/commands/run_stats.h"
#include "server/commands/start.h"
#include "server/commands/terminal.h"
#include "server/commands/token_ids.h"

namespace penstock {
namespace {

constexpr std::int64_t kContinuationTokens = 128;  // --max-tokens of a text that has no end

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock run \"What is the capital of France?\"        asks the demo model\n"
    "  penstock run --model kimi-k3 --system \"Be brief.\" - < question.txt\n"
    "  penstock run --no-thinking --json \"What is 2+2?\"     one JSON object\n"
    "  penstock run --raw \"Once upon a time\"                goes on with the text\n"
    "  penstock run --model /models/kimi-k3 --ids 163584,1008 --max-tokens 32\n"
    "\n"
    "The answer goes to standard output as it comes, a line of statistics to standard error.\n"
    "On a terminal the thinking is shown too, dimmed. Text from standard input is taken without\n"
    "its last newline. Ctrl-C ends the run with status 130.\n"
    "\n"
    "--json prints one object at the end: {\"content\", \"reasoning_content\" and \"tool_calls\"\n"
    "(when there are any), \"ids\", \"finish_reason\", \"stats\"}; with --ids {\"ids\",\n"
    "\"finish_reason\", \"stats\"}. A stop id that ended the answer is the last of the ids.";

const char* name_of(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : "length";
}

const char* name_of(ReplyFinish finish) {
  if (finish == ReplyFinish::tool_calls) return "tool_calls";
  return finish == ReplyFinish::stop ? "stop" : "length";
}

nlohmann::ordered_json tool_calls_json(const std::vector<ToolCall>& calls) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ToolCall& call : calls) {
    nlohmann::ordered_json function;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    nlohmann::ordered_json item;
    item["id"] = call.id;
    item["type"] = "function";
    item["function"] = std::move(function);
    json.push_back(std::move(item));
  }
  return json;
}

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App* app) : Command(app), chat_(*app), settings_(*app) {
    app->add_option("PROMPT", prompt_, "A message to the model; - reads it from stdin")
        ->type_name("");
    app->add_flag("--raw", raw_, "The prompt is text to go on with, not a message");
    app->add_option("--ids", ids_, "Prompt as token ids, e.g. 1,2,3; - reads them from stdin")
        ->type_name("LIST");
    app->add_option("--max-tokens", max_tokens_,
                    "Most tokens to generate (default: all there is room for; --raw, --ids: 128)")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""));
    app->add_flag("--ignore-stop", ignore_stop_,
                  "With --raw and --ids: go on past the model's end of text");
    app->add_flag("--json", json_, "Print one JSON object at the end");
    app->footer(kExamples);
  }

  int run() override {
    const bool has_prompt = app()->get_option("PROMPT")->count() > 0;
    const bool has_ids = app()->get_option("--ids")->count() > 0;
    check_options(has_prompt, has_ids);
    if (has_ids) {
      run_ids();
    } else {
      std::string prompt = prompt_;
      if (prompt_ == "-") {
        prompt = read_stdin("-");
        if (prompt.ends_with('\n')) prompt.pop_back();
      }
      if (prompt.empty()) throw Error(ErrorCode::usage, "the prompt is empty");
      raw_ ? run_raw(prompt) : run_chat(prompt);
    }
    return 0;
  }

 private:
  void check_options(bool has_prompt, bool has_ids) const {
    const auto fail = [](const std::string& problem) { throw Error(ErrorCode::usage, problem); };
    if (!has_prompt && !has_ids) fail("no prompt: give it as text, as - to read it, or as --ids");
    if (has_prompt && has_ids) fail("the prompt is either text or --ids, not both");
    if (has_ids && raw_) fail("--raw is for text, not for --ids");
    const std::string of_chat = chat_.given();
    if ((has_ids || raw_) && !of_chat.empty()) {
      fail(of_chat + " is for messages, not for " + (raw_ ? "--raw" : "--ids"));
    }
    if (!has_ids && !raw_ && ignore_stop_) fail("--ignore-stop is for --raw and --ids");
  }

  void run_chat(const std::string& prompt) {
    const EngineOptions options = start(settings_.resolve());
    const ModelText text = load_model_text(options.model.dir);
    Conversation conversation = chat_.conversation();
    conversation.messages.push_back(text_message(Role::user, prompt));
    Engine engine(options);
    ReplyPrinter printer;
    const Answer result = answer(engine, text, conversation, max_tokens_or(kAllTokens),
                                 stopped_by(options), [&](const Delta& delta) {
                                   if (!json_) printer.print(delta);
                                 });
    if (!json_) printer.finish();
    if (result.interrupted) throw Error(ErrorCode::cancelled, "interrupted");
    nlohmann::ordered_json json;
    json["content"] = result.reply.content;
    if (!result.reply.reasoning.empty()) json["reasoning_content"] = result.reply.reasoning;
    if (!result.reply.tool_calls.empty()) {
      json["tool_calls"] = tool_calls_json(result.reply.tool_calls);
    }
    report(std::move(json), result.ids, name_of(result.finish), result.stats);
  }

  void run_raw(const std::string& prompt) {
    const EngineOptions options = start(settings_.resolve());
    const ModelText text = load_model_text(options.model.dir);
    GenerationRequest request;
    request.prompt = text.tokenizer->encode_ordinary(prompt);
    request.stop_ids = text.format->stop_ids();
    std::vector<Token> ids;
    std::string content;
    Utf8Stream stream;
    const auto show = [&](const std::string& piece) {
      content += piece;
      if (!json_) write_stdout(stdout_is_terminal() ? without_controls(piece) : piece);
    };
    Token last = -1;  // held back: a stop id is known as such only when it is the last one
    const auto flush_last = [&] {
      if (last >= 0) show(stream.feed(text.tokenizer->bytes(last)));
    };
    const DoneEvent done = run_tokens(options, std::move(request), [&](Token id) {
      flush_last();
      ids.push_back(id);
      last = id;
    });
    if (done.reason != FinishReason::stop) flush_last();
    show(stream.flush());
    if (!json_) write_stdout("\n");
    nlohmann::ordered_json json;
    json["content"] = content;
    report(std::move(json), ids, name_of(done.reason), done.stats);
  }

  void run_ids() {
    GenerationRequest request;
    request.prompt = read_token_ids(ids_);
    std::vector<Token> ids;
    const DoneEvent done =
        run_tokens(start(settings_.resolve()), std::move(request), [this, &ids](Token id) {
          if (!json_) write_stdout((ids.empty() ? "" : ",") + std::to_string(id));
          ids.push_back(id);
        });
    if (!json_) write_stdout("\n");
    report(nlohmann::ordered_json::object(), ids, name_of(done.reason), done.stats);
  }

  template <typename OnToken>
  DoneEvent run_tokens(const EngineOptions& options, GenerationRequest request,
                       const OnToken& on_token) const {
    request.max_tokens = max_tokens_or(kContinuationTokens);
    request.ignore_stop = ignore_stop_;
    Engine engine(options);
    return generate(engine, std::move(request), stopped_by(options),
                    [&on_token](const GenerationEvent& event) {
                      if (const auto* token = std::get_if<TokenEvent>(&event)) {
                        on_token(token->token);
                      }
                    });
  }

  // `json` has what is special to the kind of prompt.
  void report(nlohmann::ordered_json json, const std::vector<Token>& ids, const char* finish,
              const GenerationStats& stats) const {
    if (!json_) {
      std::fprintf(stderr, "%s (%s)\n", describe_stats(stats).c_str(), finish);
      return;
    }
    json["ids"] = ids;
    json["finish_reason"] = finish;
    json["stats"] = stats_json(stats);
    // Text of an API is whole UTF-8 already; this is for what a model spells byte by byte.
    write_stdout(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                 "\n");
  }

  std::int64_t max_tokens_or(std::int64_t otherwise) const {
    return max_tokens_ > 0 ? max_tokens_ : otherwise;
  }
  static Stopped stopped_by(const EngineOptions& options) {
    return [stop = options.model.stop] { return stop->stop_requested(); };
  }

  std::string prompt_;
  bool raw_ = false;
  std::string ids_;
  std::int64_t max_tokens_ = 0;  // 0: not given
  bool ignore_stop_ = false;
  bool json_ = false;
  ChatOptions chat_;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_run_command(CLI::App& app) {
  return std::make_unique<RunCommand>(
      app.add_subcommand("run", "Answer one prompt: a message, a text to go on with, or ids"));
}

}  // namespace penstock

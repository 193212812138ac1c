// SPDX-License-Identifier: Apache-2.0
//
// `penstock tokenize`: text or a conversation to the ids that a model sees. No weights are needed.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "engine/base/error.h"
#include "engine/text/json_text.h"
#include "engine/text/utf8.h"
#include "server/commands/command.h"
#include "server/commands/input.h"
#include "server/commands/model_text.h"
#include "server/commands/output.h"
#include "server/openai_chat.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock tokenize --model kimi-k3 \"Hello, world\"      prints 19180,11,2695\n"
    "  penstock tokenize --json - < text.txt\n"
    "  penstock tokenize --specials \"<|open|>think<|sep|>\"   markers are markers\n"
    "  penstock tokenize --json --chat body.json             a request to the server, as a prompt\n"
    "\n"
    "Without --specials all text is ordinary: a marker in it is spelt out. The ids can be given\n"
    "to run --ids. --json prints {\"ids\", \"pieces\", \"prompt_tokens\"}: a piece is the text of "
    "one\n"
    "id, bytes that are no whole UTF-8 shown as U+FFFD; prompt_tokens is what the usage of the\n"
    "server says. Only config.json, tokenizer_config.json and tiktoken.model are read.";

struct Prompt {
  std::vector<Token> ids;
  std::int64_t prompt_tokens;  // as the usage of the server counts them
};

class TokenizeCommand : public Command {
 public:
  explicit TokenizeCommand(CLI::App* app) : Command(app), settings_(*app, kModelSettings) {
    app->add_option("TEXT", text_, "The text; - reads it from stdin")->type_name("");
    app->add_option("--chat", body_, "Body of a request to /v1/chat/completions; - for stdin")
        ->type_name("FILE");
    app->add_flag("--specials", specials_, "Names of special tokens in the text are those tokens");
    app->add_flag("--json", json_, "Print one JSON object");
    app->footer(kExamples);
  }

  int run() override {
    const bool has_text = app()->get_option("TEXT")->count() > 0;
    const bool has_body = app()->get_option("--chat")->count() > 0;
    if (has_text == has_body) {
      throw Error(ErrorCode::usage, has_text ? "either a TEXT or --chat, not both"
                                             : "no TEXT: give it, or - to read it, or --chat FILE");
    }
    if (has_body && specials_) {
      throw Error(ErrorCode::usage, "--specials is for text, not for --chat");
    }
    const Config config = settings_.resolve();
    const ModelText model = load_model_text(model_folder(config));
    print(*model.tokenizer, has_body ? render(model, config.server) : encode(*model.tokenizer));
    return 0;
  }

 private:
  Prompt encode(const Tokenizer& tokenizer) const {
    const std::string text = text_ == "-" ? read_stdin("-") : text_;
    std::vector<Token> ids =
        specials_ ? tokenizer.encode_with_specials(text) : tokenizer.encode_ordinary(text);
    const auto count = static_cast<std::int64_t>(ids.size());
    return {std::move(ids), count};
  }

  Prompt render(const ModelText& model, const ServerOptions& server) const {
    std::string problem;
    const std::optional<JsonValue> body = read_json(read_text(body_), {}, &problem);
    if (!body) throw Error(ErrorCode::bad_request, body_ + ": not valid JSON: " + problem);
    const ApiCall call = parse_chat_call(*body, {.effort = server.effort});
    RenderedPrompt prompt = model.format->render(std::get<Conversation>(call.prompt));
    return {std::move(prompt.ids), prompt.prompt_tokens};
  }

  void print(const Tokenizer& tokenizer, const Prompt& prompt) const {
    if (!json_) {
      std::string line;
      for (const Token id : prompt.ids) line += (line.empty() ? "" : ",") + std::to_string(id);
      write_stdout(line + "\n");
      return;
    }
    nlohmann::ordered_json json;
    json["ids"] = prompt.ids;
    json["pieces"] = nlohmann::ordered_json::array();
    for (const Token id : prompt.ids) {
      json["pieces"].push_back(replace_invalid_utf8(tokenizer.bytes(id)));
    }
    json["prompt_tokens"] = prompt.prompt_tokens;
    write_stdout(json.dump() + "\n");
  }

  std::string text_;
  std::string body_;
  bool specials_ = false;
  bool json_ = false;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_tokenize_command(CLI::App& app) {
  return std::make_unique<TokenizeCommand>(
      app.add_subcommand("tokenize", "Show the token ids of a text or of a chat request"));
}

}  // namespace penstock

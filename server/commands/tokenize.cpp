// SPDX-License-Identifier: Apache-2.0
//
// `penstock tokenize`: text or a conversation to the ids that a model sees. No weights are needed.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "engine/base/error.h"
#include "engine/text/utf8.h"
#include "server/commands/command.h"
#include "server/commands/input.h"
#include "server/commands/model_text.h"
#include "server/commands/output.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock tokenize --model kimi-k3 \"Hello, world\"      19180,11,2695\n"
    "  penstock tokenize --json - < text.txt                {\"ids\", \"pieces\", "
    "\"prompt_tokens\"}\n"
    "  penstock tokenize --specials \"<|open|>think<|sep|>\"   markers are markers\n"
    "\n"
    "Without --specials all text is ordinary: a marker in it is spelt out. The ids can be given\n"
    "to run --ids. Only config.json, tokenizer_config.json and tiktoken.model of the model are\n"
    "read. A piece is the text of one id; bytes that are no whole UTF-8 are shown as U+FFFD.";

struct Prompt {
  std::vector<Token> ids;
  std::int64_t prompt_tokens;  // as the usage of the server counts them
};

class TokenizeCommand : public Command {
 public:
  explicit TokenizeCommand(CLI::App* app) : Command(app), settings_(*app, kModelSettings) {
    app->add_option("TEXT", text_, "The text; - reads it from stdin")->type_name("")->required();
    app->add_flag("--specials", specials_, "Names of special tokens in the text are those tokens");
    app->add_flag("--json", json_, "Print one JSON object");
    app->footer(kExamples);
  }

  int run() override {
    const ModelText model = load_model_text(model_folder(settings_.resolve()));
    print(*model.tokenizer, encode(*model.tokenizer));
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
  bool specials_ = false;
  bool json_ = false;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_tokenize_command(CLI::App& app) {
  return std::make_unique<TokenizeCommand>(
      app.add_subcommand("tokenize", "Show the token ids of a text"));
}

}  // namespace penstock

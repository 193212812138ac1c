// SPDX-License-Identifier: Apache-2.0
//
// `penstock chat`: a conversation on the terminal.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "config/config.h"
#include "engine/base/error.h"
#include "engine/engine.h"
#include "server/commands/answer.h"
#include "server/commands/chat_options.h"
#include "server/commands/command.h"
#include "server/commands/input.h"
#include "server/commands/model_text.h"
#include "server/commands/output.h"
#include "server/commands/reply_printer.h"
#include "server/commands/run_stats.h"
#include "server/commands/signals.h"
#include "server/commands/start.h"
#include "server/commands/terminal.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock chat                                      with the demo model\n"
    "  penstock chat --model kimi-k3 --system \"Answer in French.\" --effort low\n"
    "  printf 'Hi!\\nWhat is 2+2?\\n' | penstock chat       each line is a message\n"
    "\n"
    "A line is a message. Ctrl-C stops an answer; what had come of it stays in the\n"
    "conversation. Lines with a meaning of their own:\n"
    "  /reset   forget the conversation (the system message stays)\n"
    "  /stats   what the last answer took, and how long the conversation is\n"
    "  /exit    leave; so does Ctrl-D";

constexpr const char* kHelp =
    "/reset forgets the conversation, /stats says what the last answer took, /exit leaves; "
    "Ctrl-C stops an answer";

class Chat {
 public:
  Chat(Engine& engine, const ModelText& text, Conversation beginning, std::int64_t max_tokens,
       const StopFlag& stop)
      : engine_(engine),
        text_(text),
        beginning_(std::move(beginning)),
        conversation_(beginning_),
        max_tokens_(max_tokens),
        stop_(stop) {}

  // Reads and answers lines until the end. Throws Error(cancelled) after SIGTERM.
  void run() {
    say(engine_.model().architecture + ": " + kHelp);
    LineReader lines;
    std::string line;
    for (;;) {
      const int before = interrupts();
      if (interactive_) write_stdout("> ");
      const LineReader::End end =
          lines.next(&line, [&] { return interrupts() != before || stop_.stop_requested(); });
      if (stop_.stop_requested()) throw Error(ErrorCode::cancelled, "interrupted");
      if (end == LineReader::End::interrupted) {
        say("\n/exit or Ctrl-D leaves");
        continue;
      }
      if (end == LineReader::End::closed) break;
      if (line == "/exit") return;
      if (!line.empty() && !command(line)) send(line);
    }
    if (interactive_) write_stdout("\n");
  }

 private:
  // True when the line was one of ours. A slash with more words behind it is a message.
  bool command(const std::string& line) {
    if (line == "/reset") {
      conversation_ = beginning_;
      say("forgotten");
    } else if (line == "/stats") {
      std::fprintf(stderr, "%s; %zu messages\n", describe_stats(last_).c_str(),
                   conversation_.messages.size());
    } else if (line.starts_with('/') && line.find(' ') == std::string::npos &&
               line.find('/', 1) == std::string::npos) {
      std::fprintf(stderr, "there is no %s: %s\n", line.c_str(), kHelp);
    } else {
      return false;
    }
    return true;
  }

  void send(const std::string& line) {
    conversation_.messages.push_back(text_message(Role::user, line));
    const int before = interrupts();
    ReplyPrinter printer;
    try {
      const Answer result = answer(
          engine_, text_, conversation_, max_tokens_,
          [&] { return interrupts() != before || stop_.stop_requested(); },
          [&printer](const Delta& delta) { printer.print(delta); });
      printer.finish();
      keep(result);
    } catch (const Error& error) {
      printer.finish();
      if (error.code() == ErrorCode::cancelled) throw;
      // Too long, a failed read: the conversation goes on as if this had not been said.
      conversation_.messages.pop_back();
      std::fprintf(stderr, "penstock: %s\n", error.what());
    }
  }

  void keep(const Answer& result) {
    Message message = text_message(Role::assistant, result.reply.content);
    message.reasoning = result.reply.reasoning;
    message.tool_calls = result.reply.tool_calls;
    conversation_.messages.push_back(std::move(message));
    if (result.interrupted) {
      say("(stopped)");
      return;
    }
    last_ = result.stats;
    if (result.finish == ReplyFinish::length) say("(cut: no tokens left)");
  }

  // Remarks for who sits there; a pipe gets answers only.
  void say(const std::string& text) const {
    if (interactive_) write_stdout(text + "\n");
  }

  Engine& engine_;
  const ModelText& text_;
  Conversation beginning_;
  Conversation conversation_;
  std::int64_t max_tokens_;
  const StopFlag& stop_;
  GenerationStats last_;
  bool interactive_ = stdin_is_terminal() && stdout_is_terminal();
};

class ChatCommand : public Command {
 public:
  explicit ChatCommand(CLI::App* app) : Command(app), chat_(*app), settings_(*app) {
    app->add_option("--max-tokens", max_tokens_,
                    "Most tokens of an answer (default: all there is room for)")
        ->type_name("N")
        ->check(CLI::Range(std::int64_t{1}, kAllTokens).description(""));
    app->footer(kExamples);
  }

  int run() override {
    const EngineOptions options = start(settings_.resolve());
    const ModelText text = load_model_text(options.model.dir);
    Engine engine(options);
    count_interrupts();
    Chat(engine, text, chat_.conversation(), max_tokens_, *options.model.stop).run();
    return 0;
  }

 private:
  std::int64_t max_tokens_ = kAllTokens;
  ChatOptions chat_;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_chat_command(CLI::App& app) {
  return std::make_unique<ChatCommand>(
      app.add_subcommand("chat", "Talk with a model on the terminal"));
}

}  // namespace penstock

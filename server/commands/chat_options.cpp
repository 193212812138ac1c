// SPDX-License-Identifier: Apache-2.0
#include "server/commands/chat_options.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace penstock {
namespace {

ThinkingEffort effort_of(const std::string& name) {
  if (name == "low") return ThinkingEffort::low;
  return name == "high" ? ThinkingEffort::high : ThinkingEffort::max;
}

}  // namespace

ChatOptions::ChatOptions(CLI::App& command)
    : options_{command.add_option("--system", system_)
                   ->description("System message: who the model is, how to answer")
                   ->type_name("TEXT"),
               command.add_option("--effort", effort_)
                   ->description("How much to think: low, high or max (default: max)")
                   ->type_name("LEVEL")
                   ->check(CLI::IsMember({"low", "high", "max"}).description("")),
               command.add_flag("--no-thinking", no_thinking_, "Answer without thinking first")} {}

Conversation ChatOptions::conversation() const {
  Conversation conversation;
  conversation.thinking = !no_thinking_;
  conversation.effort = effort_of(effort_);
  if (!system_.empty()) conversation.messages.push_back(text_message(Role::system, system_));
  return conversation;
}

std::string ChatOptions::given() const {
  for (const CLI::Option* option : options_) {
    if (option->count() > 0) return option->get_name();
  }
  return "";
}

Message text_message(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({.text = std::move(text)});
  return message;
}

}  // namespace penstock

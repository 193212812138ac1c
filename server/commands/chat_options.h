// SPDX-License-Identifier: Apache-2.0
//
// The options with which a command begins a conversation. Main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/conversation.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace penstock {

class ChatOptions {
 public:
  // Adds --system, --no-thinking and --effort to `command`, which outlives this object.
  explicit ChatOptions(CLI::App& command);

  // Once `command` was parsed: a conversation with the system text, if there is one.
  Conversation conversation() const;

  // The first of these options that was given, "" for none: "--system".
  std::string given() const;

 private:
  std::string system_;
  std::string effort_ = "max";
  bool no_thinking_ = false;
  std::vector<const CLI::Option*> options_;
};

// --max-tokens of a conversation that says nothing: what the context holds.
inline constexpr std::int64_t kAllTokens = std::int64_t{1} << 40;

// A message of one text.
Message text_message(Role role, std::string text);

}  // namespace penstock

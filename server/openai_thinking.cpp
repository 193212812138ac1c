// SPDX-License-Identifier: Apache-2.0
#include "server/openai_thinking.h"

#include <optional>
#include <string>

namespace penstock {
namespace {

// What an effort field says. Some fields may switch thinking off; the level is for when another
// field keeps it on.
struct Effort {
  bool off;
  ThinkingEffort level;
};

std::optional<Effort> read_effort(const RequestFields& fields, std::string_view key,
                                  bool may_be_off, ThinkingEffort server_default) {
  const std::optional<std::string> name = fields.find_string(key);
  if (!name) return std::nullopt;
  if (*name == "low") return Effort{false, ThinkingEffort::low};
  if (*name == "medium") return Effort{false, server_default};
  if (*name == "high") return Effort{false, ThinkingEffort::high};
  if (*name == "max" || *name == "xhigh" || *name == "ultra") {
    return Effort{false, ThinkingEffort::max};
  }
  if (may_be_off && (*name == "none" || *name == "minimal" || *name == "off")) {
    return Effort{true, ThinkingEffort::low};
  }
  fields.fail_value(key, may_be_off ? "none, minimal, low, medium, high, xhigh or max"
                                    : "low, medium, high, xhigh or max");
}

std::optional<bool> read_type(const RequestFields& thinking) {
  const std::optional<std::string> type = thinking.find_string("type");
  if (!type) return std::nullopt;
  if (*type == "enabled" || *type == "adaptive") return true;
  if (*type == "disabled") return false;
  thinking.fail_value("type", "enabled, adaptive or disabled");
}

}  // namespace

// Every field is read, so that a wrong one is told whether it counts or not.
void read_thinking(const RequestFields& request, ThinkingEffort server_default,
                   Conversation* conversation) {
  std::optional<bool> on;
  std::optional<Effort> effort;
  bool off_by_effort = false;
  const auto take_switch = [&on](std::optional<bool> value) {
    if (!on) on = value;
  };
  const auto take_effort = [&effort](std::optional<Effort> value) {
    if (!effort) effort = value;
  };
  if (const auto kwargs = request.find_object("chat_template_kwargs")) {
    take_switch(kwargs->find_bool("thinking"));
    take_switch(kwargs->find_bool("enable_thinking"));
    take_effort(read_effort(*kwargs, "thinking_effort", false, server_default));
  }
  if (const auto thinking = request.find_object("thinking")) {
    take_switch(read_type(*thinking));
    take_effort(read_effort(*thinking, "effort", false, server_default));
  }
  take_switch(request.find_bool("enable_thinking"));
  const auto take_switching_effort = [&](const RequestFields& fields, std::string_view key) {
    const std::optional<Effort> value = read_effort(fields, key, true, server_default);
    off_by_effort = off_by_effort || (value && value->off);
    take_effort(value);
  };
  take_switching_effort(request, "reasoning_effort");
  if (const auto reasoning = request.find_object("reasoning")) {
    take_switching_effort(*reasoning, "effort");
  }
  conversation->thinking = on.value_or(!off_by_effort);
  conversation->effort = effort ? effort->level : server_default;
}

}  // namespace penstock

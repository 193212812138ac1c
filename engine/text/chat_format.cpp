// SPDX-License-Identifier: Apache-2.0
#include "engine/text/chat_format.h"

#include <array>
#include <random>

#include "engine/base/error.h"
#include "engine/text/kimi_template.h"
#include "engine/text/xtml.h"

namespace penstock {
namespace {

struct FormatRow {
  std::string_view architecture;
  std::unique_ptr<const ChatFormat> (*make)(const Tokenizer& tokenizer);
};

constexpr std::array<FormatRow, 2> kFormats{{
    {"kimi-k3", make_xtml_format},
    {"kimi-linear", make_kimi_format},
}};

struct DeltaAppender {
  Reply* reply;

  void operator()(const ReasoningDelta& delta) const { reply->reasoning += delta.text; }
  void operator()(const ContentDelta& delta) const { reply->content += delta.text; }
  void operator()(const ToolCallDelta& delta) const {
    reply->tool_calls.push_back({delta.id, delta.name, {}});
  }
  void operator()(const ToolArgumentsDelta& delta) const {
    reply->tool_calls[static_cast<std::size_t>(delta.index)].arguments += delta.text;
  }
};

}  // namespace

void append_delta(const Delta& delta, Reply* reply) {
  std::visit(DeltaAppender{reply}, delta);
}

std::unique_ptr<const ChatFormat> make_chat_format(std::string_view architecture,
                                                   const Tokenizer& tokenizer) {
  for (const FormatRow& row : kFormats) {
    if (row.architecture == architecture) return row.make(tokenizer);
  }
  throw Error(ErrorCode::model, "no chat format for architecture " + std::string(architecture));
}

Token marker_id(const Tokenizer& tokenizer, std::string_view name) {
  if (const std::optional<Token> id = tokenizer.special(name)) return *id;
  throw Error(ErrorCode::model, "tokenizer_config.json has no special token " + std::string(name) +
                                    ", which the model's chat format needs");
}

std::string new_tool_call_id() {
  constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<std::size_t> pick(0, kAlphabet.size() - 1);
  std::string id = "call_";
  for (int i = 0; i < 24; ++i) id += kAlphabet[pick(random)];
  return id;
}

}  // namespace penstock

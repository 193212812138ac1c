// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the body of a request, read by every dialect and rendered: nothing but an Error that
// is told as a 400 leaves, and messages are whole UTF-8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "engine/base/error.h"
#include "engine/text/chat_format.h"
#include "engine/text/utf8.h"
#include "server/dialect.h"

namespace penstock {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

const ChatFormat& format() {
  static const Tokenizer kTokenizer = Tokenizer::load(PENSTOCK_DEMO_MODEL);
  static const auto kFormat = make_chat_format("kimi-k3", kTokenizer);
  return *kFormat;
}

void check(const Dialect& dialect, const JsonValue& body) {
  try {
    const ApiCall call = dialect.parse(body, {});
    if (call.max_tokens) require(*call.max_tokens > 0);
    for (const std::string& stop : call.stops) require(!stop.empty());
    const auto* conversation = std::get_if<Conversation>(&call.prompt);
    if (conversation == nullptr) return;
    const RenderedPrompt prompt = format().render(*conversation);
    const auto ids = static_cast<std::int64_t>(prompt.ids.size());
    require(0 <= prompt.tools_end && prompt.tools_end <= prompt.leading_end);
    require(prompt.leading_end <= ids && prompt.prompt_tokens <= ids);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::bad_request);
    const std::string_view message = error.what();
    require(!message.empty() && valid_utf8_prefix(message) == message.size());
  }
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = penstock::read_json(text, {}, nullptr);
  if (!body) return 0;
  for (const penstock::Dialect& dialect : penstock::dialects()) penstock::check(dialect, *body);
  return 0;
}

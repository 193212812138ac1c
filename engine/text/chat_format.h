// SPDX-License-Identifier: Apache-2.0
//
// How a model writes conversations down as ids, and how its replies are read. Formats are found by
// the model's architecture; markers are found in the tokenizer by name and recognised by id, so
// that no text of a user, a tool or the model can become structure.
// ChatFormat: Immutable after construction. ReplyParser: One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"
#include "engine/text/conversation.h"
#include "engine/text/tokenizer.h"

namespace penstock {

struct RenderedPrompt {
  std::vector<Token> ids;
  std::int64_t prompt_tokens = 0;   // as usage counts them: at most ids.size()
  Channel open = Channel::content;  // for the reply parser

  // Lengths of leading blocks of ids that other chats may share: after the declared tools (0: none)
  // and after the last leading system message, tools and effort included (0: none). The third state
  // worth keeping is that of the whole prompt.
  std::int64_t tools_end = 0;
  std::int64_t leading_end = 0;  // >= tools_end
};

enum class ReplyCut : std::uint8_t {
  stopped,  // by a stop id or a stop string
  limit,    // max_tokens, the end of the context
};

// Reads one reply, id by id. What comes out does not depend on when feed is called; streamed and
// unstreamed answers are both made of these deltas.
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  // Appends to `out` what the id adds. Stop ids may be fed or left out.
  virtual void feed(Token id, std::vector<Delta>* out) = 0;
  // The end; call it once. Appends what was held back. After a limit, open calls stay unclosed.
  virtual ReplyFinish finish(ReplyCut cut, std::vector<Delta>* out) = 0;
  // The reply said that it is complete: nothing more comes out, generating may stop.
  virtual bool over() const = 0;
  virtual std::int64_t reasoning_tokens() const = 0;  // ids fed so far that were reasoning
};

struct ReplyOptions {
  Channel open = Channel::content;  // of the prompt
  bool drop_calls = false;          // tool_choice none: what is called all the same is left out
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // Throws Error(bad_request), naming the message, for what cannot be written down: a call without
  // a name, arguments that are JSON but no object, a tool result whose call cannot be found;
  // Kimi-Linear: images, tools inside messages.
  virtual RenderedPrompt render(const Conversation& conversation) const = 0;
  virtual std::unique_ptr<ReplyParser> make_reply_parser(const ReplyOptions& options) const = 0;
  virtual std::vector<Token> stop_ids() const = 0;  // end a reply, besides those of the model
};

// The format of ModelInfo::architecture, for a tokenizer that must outlive it. Throws Error(model)
// when there is no such format or the tokenizer lacks one of its markers.
std::unique_ptr<const ChatFormat> make_chat_format(std::string_view architecture,
                                                   const Tokenizer& tokenizer);

// For formats: the id of a marker. Throws Error(model) when the tokenizer has none of that name.
Token marker_id(const Tokenizer& tokenizer, std::string_view name);

// "call_" and 24 random letters and digits.
std::string new_tool_call_id();

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// K3's chat format (spec: chat-format.md part A). A prompt is a list of segments, each tokenised on
// its own: markup with specials, text as ordinary text.
// Plain functions, any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat_format.h"

namespace penstock {

struct Segment {
  std::string text;  // not empty
  bool markup;
};

struct XtmlPrompt {
  std::vector<Segment> segments;
  // Counts of leading segments, as the fields of RenderedPrompt.
  std::size_t tools_end = 0;
  std::size_t leading_end = 0;
  std::size_t counted_end = 0;  // usage counts the segments before: not the channel left open
  Channel open = Channel::content;
};

// Throws Error(bad_request) as ChatFormat::render.
XtmlPrompt xtml_prompt(const Conversation& conversation);

// What the response-format message says; empty for text. Kimi-Linear says it too.
std::string response_format_text(const Conversation& conversation);

// Whether nothing is left of the text after Python's strip().
bool is_blank(std::string_view text);

std::unique_ptr<const ChatFormat> make_xtml_format(const Tokenizer& tokenizer);

struct XtmlMarkers {
  Token open, close, sep, end_of_msg, eos;
};
std::unique_ptr<ReplyParser> make_xtml_reply_parser(const Tokenizer& tokenizer,
                                                    const XtmlMarkers& markers,
                                                    const ReplyOptions& options);

}  // namespace penstock

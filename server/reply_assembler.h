// SPDX-License-Identifier: Apache-2.0
//
// From the ids of a reply to the pieces that a client gets: the format's parser, then stop strings,
// which match content only. One owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/chat_format.h"
#include "engine/text/stop_matcher.h"

namespace penstock {

class ReplyAssembler {
 public:
  struct Options {
    std::vector<std::string> stops;
    bool drop_reasoning = false;  // the request switched thinking off
  };
  ReplyAssembler(std::unique_ptr<ReplyParser> parser, const Options& options);

  // What may go out after one more id.
  std::vector<Delta> feed(Token id);
  // The reply needs no more ids: a stop string came, or the reply said that it is over and the stop
  // id that should follow did not.
  bool complete() const;
  // The end, called once: appends what was held back.
  ReplyFinish finish(ReplyCut cut, std::vector<Delta>* out);

  std::int64_t tokens() const { return tokens_; }  // fed
  std::int64_t reasoning_tokens() const { return parser_->reasoning_tokens(); }

 private:
  std::vector<Delta> pass(std::vector<Delta> deltas);

  const std::unique_ptr<ReplyParser> parser_;
  const bool drop_reasoning_;
  StopMatcher matcher_;
  std::int64_t tokens_ = 0;
  std::int64_t tokens_after_end_ = 0;
};

// Reads a reply that is only text: every id by its bytes, markers by their names, up to a stop id.
std::unique_ptr<ReplyParser> make_text_parser(const Tokenizer& tokenizer,
                                              std::vector<Token> stop_ids);

}  // namespace penstock

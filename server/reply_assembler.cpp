// SPDX-License-Identifier: Apache-2.0
#include "server/reply_assembler.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "engine/text/utf8.h"

namespace penstock {
namespace {

// A reply that is over is followed by its stop id; a model that goes on instead is cut off.
constexpr std::int64_t kTokensAfterEnd = 4;

class TextParser final : public ReplyParser {
 public:
  TextParser(const Tokenizer& tokenizer, std::vector<Token> stop_ids)
      : tokenizer_(tokenizer), stop_ids_(std::move(stop_ids)) {}

  void feed(Token id, std::vector<Delta>* out) override {
    if (over_) return;
    over_ = std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
    add(over_ ? utf8_.flush() : utf8_.feed(tokenizer_.bytes(id)), out);
  }
  ReplyFinish finish(ReplyCut cut, std::vector<Delta>* out) override {
    add(utf8_.flush(), out);
    return over_ || cut == ReplyCut::stopped ? ReplyFinish::stop : ReplyFinish::length;
  }
  bool over() const override { return over_; }
  std::int64_t reasoning_tokens() const override { return 0; }

 private:
  static void add(std::string text, std::vector<Delta>* out) {
    if (!text.empty()) out->emplace_back(ContentDelta{std::move(text)});
  }

  const Tokenizer& tokenizer_;
  const std::vector<Token> stop_ids_;
  Utf8Stream utf8_;
  bool over_ = false;
};

}  // namespace

ReplyAssembler::ReplyAssembler(std::unique_ptr<ReplyParser> parser, const Options& options)
    : parser_(std::move(parser)),
      drop_reasoning_(options.drop_reasoning),
      matcher_(options.stops) {}

std::vector<Delta> ReplyAssembler::feed(Token id) {
  ++tokens_;
  if (parser_->over()) ++tokens_after_end_;
  std::vector<Delta> deltas;
  parser_->feed(id, &deltas);
  return pass(std::move(deltas));
}

bool ReplyAssembler::complete() const {
  return matcher_.matched() || tokens_after_end_ >= kTokensAfterEnd;
}

ReplyFinish ReplyAssembler::finish(ReplyCut cut, std::vector<Delta>* out) {
  std::vector<Delta> deltas;
  ReplyFinish finish = parser_->finish(matcher_.matched() ? ReplyCut::stopped : cut, &deltas);
  *out = pass(std::move(deltas));
  if (matcher_.matched() && finish == ReplyFinish::length) finish = ReplyFinish::stop;
  if (std::string held = matcher_.finish(); !held.empty()) {
    out->emplace_back(ContentDelta{std::move(held)});
  }
  return finish;
}

// Content goes through the stop matcher; after a stop string nothing more comes out.
std::vector<Delta> ReplyAssembler::pass(std::vector<Delta> deltas) {
  std::vector<Delta> passed;
  for (Delta& delta : deltas) {
    if (matcher_.matched()) break;
    if (auto* content = std::get_if<ContentDelta>(&delta)) {
      content->text = matcher_.feed(content->text);
      if (content->text.empty()) continue;
    }
    if (drop_reasoning_ && std::holds_alternative<ReasoningDelta>(delta)) continue;
    passed.push_back(std::move(delta));
  }
  return passed;
}

std::unique_ptr<ReplyParser> make_text_parser(const Tokenizer& tokenizer,
                                              std::vector<Token> stop_ids) {
  return std::make_unique<TextParser>(tokenizer, std::move(stop_ids));
}

}  // namespace penstock

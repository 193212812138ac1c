// SPDX-License-Identifier: Apache-2.0
#include "server/commands/answer.h"

#include <memory>
#include <utility>
#include <variant>

#include "engine/base/error.h"

namespace penstock {
namespace {

// Puts the answer together while it comes.
class AnswerReader {
 public:
  AnswerReader(std::unique_ptr<ReplyParser> parser,
               const std::function<void(const Delta&)>& on_delta)
      : parser_(std::move(parser)), on_delta_(on_delta) {}

  void read(Token id) {
    answer_.ids.push_back(id);
    parser_->feed(id, &deltas_);
    hand_out();
  }
  bool over() const { return parser_->over(); }

  Answer finish(ReplyCut cut) {
    answer_.finish = parser_->finish(cut, &deltas_);
    hand_out();
    return std::move(answer_);
  }

 private:
  void hand_out() {
    for (const Delta& delta : deltas_) {
      append_delta(delta, &answer_.reply);
      on_delta_(delta);
    }
    deltas_.clear();
  }

  std::unique_ptr<ReplyParser> parser_;
  const std::function<void(const Delta&)>& on_delta_;
  std::vector<Delta> deltas_;
  Answer answer_{};
};

}  // namespace

Answer answer(Engine& engine, const ModelText& text, const Conversation& conversation,
              std::int64_t max_tokens, const Stopped& stopped,
              const std::function<void(const Delta&)>& on_delta) {
  RenderedPrompt prompt = text.format->render(conversation);
  AnswerReader reader(text.format->make_reply_parser({.open = prompt.open}), on_delta);
  GenerationRequest request;
  request.prompt = std::move(prompt.ids);
  request.max_tokens = max_tokens;
  request.stop_ids = text.format->stop_ids();
  request.tools_end = prompt.tools_end;
  request.leading_end = prompt.leading_end;
  try {
    const DoneEvent done =
        generate(engine, std::move(request), stopped, [&reader](const GenerationEvent& event) {
          if (const auto* token = std::get_if<TokenEvent>(&event)) reader.read(token->token);
        });
    const bool cut = done.reason == FinishReason::length && !reader.over();
    Answer result = reader.finish(cut ? ReplyCut::limit : ReplyCut::stopped);
    result.stats = done.stats;
    return result;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
  }
  Answer result = reader.finish(ReplyCut::limit);
  result.interrupted = true;
  return result;
}

}  // namespace penstock

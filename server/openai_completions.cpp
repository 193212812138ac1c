// SPDX-License-Identifier: Apache-2.0
#include "server/openai_completions.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/openai_common.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

std::vector<Token> read_ids(const std::vector<JsonValue>& list, const std::string& path) {
  std::vector<Token> ids;
  ids.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string item = RequestFields::item_path(path, i);
    if (!list[i].is(JsonKind::number)) fail_type(item, list[i], "a token id");
    const std::optional<std::int64_t> id = integer_of(list[i]);
    if (!id || *id < 0 || *id > std::numeric_limits<Token>::max()) {
      throw wrong_field(item, "is " + shown(list[i]) + ", expected a token id", "invalid_value");
    }
    ids.push_back(static_cast<Token>(*id));
  }
  return ids;
}

// A string, ids, or a list of one of these.
void read_prompt(const RequestFields& request, ApiCall* call) {
  const JsonValue* prompt = &request.get("prompt");
  std::string path = "prompt";
  const auto is_list_of = [&prompt](JsonKind kind) {
    return prompt->is(JsonKind::array) && !prompt->items.empty() && prompt->items[0].is(kind);
  };
  if (is_list_of(JsonKind::string) || is_list_of(JsonKind::array)) {
    if (prompt->items.size() > 1) {
      throw wrong_field(path,
                        "has " + std::to_string(prompt->items.size()) + " prompts, expected one",
                        "unsupported_value");
    }
    path = RequestFields::item_path(path, 0);
    prompt = &prompt->items[0];
  }
  const bool is_text = prompt->is(JsonKind::string);
  if (!is_text && !prompt->is(JsonKind::array)) {
    fail_type(path, *prompt, "a string or a list of token ids");
  }
  if (prompt->text.empty() && prompt->items.empty()) {
    throw wrong_field(path, "is empty", "invalid_value");
  }
  if (is_text) {
    call->prompt = prompt->text;
  } else {
    call->prompt = read_ids(prompt->items, path);
  }
}

void refuse_unsupported(const RequestFields& request) {
  if (request.find_bool("echo").value_or(false)) request.fail_value("echo", "false");
  const std::optional<std::string> suffix = request.find_string("suffix");
  if (suffix && !suffix->empty()) {
    throw wrong_field("suffix", "is not supported: text is continued at its end only",
                      "unsupported_parameter");
  }
  if (request.find_integer("best_of").value_or(1) != 1) {
    request.fail_value("best_of", "1: one reply per request");
  }
}

class CompletionWriter : public ResponseWriter {
 public:
  explicit CompletionWriter(const ReplyIdentity& identity)
      : head_{{"id", random_id("cmpl-")},
              {"object", "text_completion"},
              {"created", identity.created_s},
              {"model", identity.model},
              {"system_fingerprint", identity.fingerprint}} {}
  std::string start() override { return {}; }

 protected:
  ordered_json body(std::string text, ordered_json reason) const {
    ordered_json json = head_;
    ordered_json choice = {{"index", 0}, {"text", std::move(text)}, {"logprobs", nullptr}};
    choice["finish_reason"] = std::move(reason);
    json["choices"].push_back(std::move(choice));
    return json;
  }
  static std::string text_of(const Delta& delta) {
    const auto* content = std::get_if<ContentDelta>(&delta);
    return content == nullptr ? std::string() : content->text;
  }
  const ordered_json& head() const { return head_; }

 private:
  const ordered_json head_;
};

class CompletionBodyWriter final : public CompletionWriter {
 public:
  using CompletionWriter::CompletionWriter;
  std::string_view content_type() const override { return kJson; }
  std::string keep_alive() override { return " "; }
  std::string delta(const Delta& delta) override {
    text_ += text_of(delta);
    return {};
  }
  std::string end(ReplyFinish finish, const ReplyUsage& usage) override {
    ordered_json json = body(text_, finish_reason(finish));
    json["usage"] = usage_json(usage);
    return json_text(json);
  }
  std::string error(const ApiError& error) override { return error_json(error); }

 private:
  std::string text_;
};

class CompletionStreamWriter final : public CompletionWriter {
 public:
  CompletionStreamWriter(const ReplyIdentity& identity, bool include_usage)
      : CompletionWriter(identity), include_usage_(include_usage) {}
  std::string_view content_type() const override { return kEventStream; }
  std::string keep_alive() override { return std::string(kSseComment); }
  std::string delta(const Delta& delta) override {
    return sse_frame(body(text_of(delta), nullptr));
  }
  std::string end(ReplyFinish finish, const ReplyUsage& usage) override {
    return sse_end(body("", finish_reason(finish)), head(), include_usage_, usage);
  }
  std::string error(const ApiError& error) override { return sse_error(error); }

 private:
  const bool include_usage_;
};

}  // namespace

ApiCall parse_completion_call(const JsonValue& body, const CallDefaults& /*defaults*/) {
  const RequestFields request(body, "");
  ApiCall call;
  read_common_fields(request, &call);
  refuse_unsupported(request);
  read_prompt(request, &call);
  return call;
}

std::unique_ptr<ResponseWriter> make_completion_writer(const ApiCall& call,
                                                       const ReplyIdentity& identity) {
  if (call.stream) return std::make_unique<CompletionStreamWriter>(identity, call.include_usage);
  return std::make_unique<CompletionBodyWriter>(identity);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/chat_service.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "server/api_error.h"
#include "server/reply_stream.h"

namespace penstock {
namespace {

JsonValue read_body(const HttpRequest& request) {
  std::string problem;
  std::optional<JsonValue> body = read_json(request.body, {}, &problem);
  if (body) return *std::move(body);
  // Clients forget the type (curl says form); what is not JSON by its own words is told so.
  const std::string& type = request.content_type;
  const bool is_other = !type.empty() && type.find("json") == type.npos &&
                        type.find("x-www-form-urlencoded") == type.npos;
  if (is_other) {
    throw ApiError("Content-Type is " + type + ", expected application/json", {.status = 415});
  }
  throw ApiError("The request body is not valid JSON: " + problem, {});
}

// What goes to the engine, and how the reply is read.
struct Prepared {
  GenerationRequest request;
  std::int64_t prompt_tokens = 0;
  std::unique_ptr<ReplyParser> parser;
  bool drop_reasoning = false;
};

Prepared prepare(const ServedModel& model, const Conversation& conversation) {
  RenderedPrompt prompt = model.format().render(conversation);
  Prepared prepared;
  prepared.prompt_tokens = prompt.prompt_tokens;
  prepared.parser = model.format().make_reply_parser(
      {.open = prompt.open, .drop_calls = conversation.tool_choice == ToolChoice::none});
  prepared.drop_reasoning = !conversation.thinking;
  prepared.request.prompt = std::move(prompt.ids);
  prepared.request.stop_ids = model.format().stop_ids();
  prepared.request.tools_end = prompt.tools_end;
  prepared.request.leading_end = prompt.leading_end;
  return prepared;
}

Prepared prepare(const ServedModel& model, std::vector<Token> ids) {
  Prepared prepared;
  prepared.prompt_tokens = static_cast<std::int64_t>(ids.size());
  // Plain text ends with [EOS], which config.json does not name.
  prepared.request.stop_ids = model.format().stop_ids();
  std::vector<Token> ends = prepared.request.stop_ids;
  ends.insert(ends.end(), model.info().stop_ids.begin(), model.info().stop_ids.end());
  prepared.parser = make_text_parser(model.tokenizer(), std::move(ends));
  prepared.request.prompt = std::move(ids);
  return prepared;
}

Prepared prepare(const ServedModel& model, const std::string& text) {
  return prepare(model, model.tokenizer().encode_ordinary(text));
}

void check_length(const ServedModel& model, const GenerationRequest& request) {
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t limit = model.info().max_context;
  if (tokens < limit) return;
  // Agents look for these words, and make their history shorter.
  throw ApiError("This model's maximum context length is " + std::to_string(limit) +
                     " tokens, but the prompt has " + std::to_string(tokens) +
                     " tokens. Please reduce the length of the messages",
                 {.code = "context_length_exceeded", .param = "messages"});
}

}  // namespace

ChatService::ChatService(ServerState& state, const ServerOptions& options)
    : state_(state), options_(options) {}

std::vector<HttpRoute> ChatService::routes() {
  std::vector<HttpRoute> routes;
  for (const Dialect& dialect : dialects()) {
    routes.push_back(
        {.method = "POST",
         .path = dialect.path,
         .needs_key = true,
         .handle = [this,
                    &dialect](const HttpRequest& request) { return handle(dialect, request); },
         .admit =
             [this] {
               if (state_.draining()) throw shutting_down();
               if (!state_.model()) throw model_loading();
             }});
  }
  return routes;
}

// Which program and weights answered, where the weights are not the model's own.
std::string ChatService::fingerprint(const ModelInfo& info) {
  const std::string program = "penstock-" PENSTOCK_VERSION;
  return info.spine == "int8" ? program + "-int8-spine" : program;
}

HttpResponse ChatService::handle(const Dialect& dialect, const HttpRequest& request) {
  const std::shared_ptr<ServedModel> model = state_.model();
  if (!model) throw model_loading();
  const ApiCall call = dialect.parse(read_body(request), {.effort = options_.effort});
  Prepared prepared =
      std::visit([&model](const auto& prompt) { return prepare(*model, prompt); }, call.prompt);
  check_length(*model, prepared.request);
  // The engine clamps to the room that is left.
  prepared.request.max_tokens = call.max_tokens.value_or(std::numeric_limits<std::int64_t>::max());
  auto assembler = std::make_unique<ReplyAssembler>(
      std::move(prepared.parser),
      ReplyAssembler::Options{.stops = call.stops, .drop_reasoning = prepared.drop_reasoning});
  const ReplyIdentity identity{.model = state_.model_id(),
                               .created_s = std::chrono::duration_cast<std::chrono::seconds>(
                                                std::chrono::system_clock::now().time_since_epoch())
                                                .count(),
                               .fingerprint = fingerprint(model->info())};
  auto stream = std::make_shared<ReplyStream>(
      state_,
      ReplyStream::Parts{.request_id = request.id,
                         .route = dialect.path,
                         .arrived = request.arrived,
                         .model = model,
                         .assembler = std::move(assembler),
                         .writer = dialect.make_writer(call, identity),
                         .prompt_tokens = prepared.prompt_tokens,
                         .keep_alive = options_.keep_alive,
                         .poll_interval = options_.poll_interval},
      std::move(prepared.request));
  HttpResponse response;
  response.content_type = stream->content_type();
  // Proxies must not hold frames back.
  response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  response.stream = [stream](HttpStream& out) { stream->run(out); };
  return response;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "server/admin_routes.h"

#include <nlohmann/json.hpp>
#include <string>

#include "server/api_error.h"
#include "server/openai_common.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

ordered_json model_json(const ServerState& state) {
  ordered_json model = {{"id", state.model_id()},
                        {"object", "model"},
                        {"created", state.started_s()},
                        {"owned_by", "penstock"}};
  if (const auto loaded = state.model()) {
    model["context_length"] = loaded->info().max_context;
    model["spine"] = loaded->info().spine;  // "int8" is lossy
  }
  return model;
}

HttpResponse models(const ServerState& state) {
  ordered_json list = {{"object", "list"}};
  list["data"].push_back(model_json(state));
  return {.body = json_text(list)};
}

HttpResponse one_model(const ServerState& state, const HttpRequest& request) {
  const std::string id = request.path.substr(std::string_view("/models/").size());
  if (id != state.model_id()) {
    throw ApiError("The model " + id + " does not exist: this server has " + state.model_id(),
                   {.status = 404, .code = "model_not_found", .param = "model"});
  }
  return {.body = json_text(model_json(state))};
}

HttpResponse health(const ServerState& state) {
  if (state.draining()) throw shutting_down();
  if (!state.model()) throw model_loading();
  return {.body = R"({"status":"ok"})"};
}

HttpResponse front_page(const ServerState& state) {
  return {.content_type = "text/plain; charset=utf-8",
          .body = "Penstock " PENSTOCK_VERSION " serves " + state.model_id() +
                  ". Point an OpenAI client at /v1.\n"};
}

HttpResponse no_embeddings() {
  throw ApiError("Embeddings are not built in",
                 {.status = 501, .type = "not_supported_error", .code = "not_supported"});
}

}  // namespace

std::vector<HttpRoute> admin_routes(const ServerState& state) {
  const auto page = [&state](HttpResponse (*make)(const ServerState&)) {
    return [&state, make](const HttpRequest&) { return make(state); };
  };
  return {
      {"GET", "/", false, page(front_page)},
      {"GET", "/health", false, page(health)},
      {"GET", "/models", true, page(models)},
      {"GET", "/models/", true,
       [&state](const HttpRequest& request) { return one_model(state, request); }},
      {"POST", "/embeddings", true, [](const HttpRequest&) { return no_embeddings(); }},
  };
}

}  // namespace penstock

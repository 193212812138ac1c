// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include <spdlog/spdlog.h>

#include <new>

#include "engine/text/json_text.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

constexpr int kRetryAfterS = 30;  // what SDKs obey: more than 60 is ignored

ApiError server_error(const std::string& message) {
  return {message, {.status = 500, .type = "server_error"}};
}

ApiError of_engine(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::bad_request: return {error.what(), {}};
    case ErrorCode::queue_full:
      return {
          error.what(),
          {.status = 429, .type = "requests", .code = "queue_full", .retry_after_s = kRetryAfterS}};
    case ErrorCode::cancelled:
    case ErrorCode::shutdown: return shutting_down();
    case ErrorCode::model:
    case ErrorCode::io:
    case ErrorCode::memory: break;
  }
  return server_error(error.what());
}

void append_member(std::string_view key, std::string_view value, std::string* out) {
  *out += ",\"";
  *out += key;
  *out += "\":";
  if (value.empty()) {
    *out += "null";
  } else {
    append_json_string(value, out);
  }
}

}  // namespace

ApiError wrong_field(std::string_view param, const std::string& problem, std::string_view code) {
  return {std::string(param) + " " + problem,
          {.code = std::string(code), .param = std::string(param)}};
}

ApiError model_loading() {
  return {"Loading model",
          {.status = 503,
           .type = "unavailable_error",
           .code = "model_loading",
           .retry_after_s = kRetryAfterS}};
}

ApiError shutting_down() {
  return {"The server is shutting down",
          {.status = 503,
           .type = "unavailable_error",
           .code = "shutting_down",
           .retry_after_s = kRetryAfterS}};
}

ApiError current_api_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io || error.code() == ErrorCode::model) {
      spdlog::error("{}", error.what());
    }
    return of_engine(error);
  } catch (const std::bad_alloc&) {
    return server_error("out of memory");
  } catch (const std::exception& error) {
    spdlog::error("unexpected: {}", error.what());
    return server_error("internal error");
  }
}

std::string error_json(const ApiError& error) {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(replace_invalid_utf8(error.what()), &out);
  append_member("type", error.details().type, &out);
  append_member("param", error.details().param, &out);
  append_member("code", error.details().code, &out);
  return out + "}}";
}

}  // namespace penstock

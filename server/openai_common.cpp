// SPDX-License-Identifier: Apache-2.0
#include "server/openai_common.h"

#include <nlohmann/json.hpp>
#include <random>

namespace penstock {
namespace {

constexpr std::size_t kMaxStops = 16;

std::vector<std::string> read_stops(const RequestFields& fields) {
  std::vector<std::string> stops;
  const JsonValue* stop = fields.find("stop");
  if (stop == nullptr) return stops;
  const auto add = [&stops](const JsonValue& text, const std::string& path) {
    if (!text.is(JsonKind::string)) fail_type(path, text, "a string");
    if (!text.text.empty()) stops.push_back(text.text);
  };
  if (stop->is(JsonKind::string)) {
    add(*stop, "stop");
    return stops;
  }
  if (!stop->is(JsonKind::array)) fail_type("stop", *stop, "a string or a list of strings");
  if (stop->items.size() > kMaxStops) {
    throw wrong_field("stop",
                      "has " + std::to_string(stop->items.size()) + " strings, expected at most " +
                          std::to_string(kMaxStops),
                      "unsupported_value");
  }
  for (std::size_t i = 0; i < stop->items.size(); ++i) {
    add(stop->items[i], RequestFields::item_path("stop", i));
  }
  return stops;
}

constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// -1 is what clients of llama.cpp send for "no limit".
std::optional<std::int64_t> read_limit(const RequestFields& fields, std::string_view key) {
  const std::optional<std::int64_t> limit = fields.find_integer(key);
  if (!limit || *limit == -1) return std::nullopt;
  if (*limit < 1) fields.fail_value(key, "at least 1");
  return limit;
}

}  // namespace

void read_common_fields(const RequestFields& fields, ApiCall* call) {
  const std::optional<std::int64_t> choices = fields.find_integer("n");
  if (choices && *choices != 1) fields.fail_value("n", "1: one reply per request");
  const std::optional<std::int64_t> newer = read_limit(fields, "max_completion_tokens");
  const std::optional<std::int64_t> older = read_limit(fields, "max_tokens");
  call->max_tokens = newer ? newer : older;
  call->stops = read_stops(fields);
  call->stream = fields.find_bool("stream").value_or(false);
  if (const auto options = fields.find_object("stream_options")) {
    call->include_usage = options->find_bool("include_usage").value_or(false);
  }
}

nlohmann::ordered_json usage_json(const ReplyUsage& usage) {
  nlohmann::ordered_json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  json["completion_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  json["cached_tokens"] = usage.cached_tokens;
  return json;
}

std::string_view finish_reason(ReplyFinish finish) {
  switch (finish) {
    case ReplyFinish::stop: return "stop";
    case ReplyFinish::length: return "length";
    case ReplyFinish::tool_calls: break;
  }
  return "tool_calls";
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string sse_frame(const nlohmann::ordered_json& data) {
  return "data: " + json_text(data) + "\n\n";
}

std::string sse_end(nlohmann::ordered_json last, nlohmann::ordered_json closing, bool include_usage,
                    const ReplyUsage& usage) {
  last["choices"][0]["usage"] = usage_json(usage);
  std::string out = sse_frame(last);
  if (include_usage) {
    closing["choices"] = nlohmann::ordered_json::array();
    closing["usage"] = usage_json(usage);
    out += sse_frame(closing);
  }
  return out.append(kSseDone);
}

std::string sse_error(const ApiError& error) {
  return "data: " + error_json(error) + "\n\n" + std::string(kSseDone);
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id(prefix);
  for (int word = 0; word < 3; ++word) {
    std::uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4U) id += kDigits[bits & 0xFU];
  }
  return id;
}

}  // namespace penstock

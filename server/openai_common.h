// SPDX-License-Identifier: Apache-2.0
//
// What OpenAI's two completion dialects share: fields of requests, frames of responses.
// Plain functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/dialect.h"
#include "server/request_fields.h"

namespace penstock {

inline constexpr std::string_view kEventStream = "text/event-stream";
inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kSseComment = ": ping\n\n";

// n, max_completion_tokens, max_tokens, stop, stream, stream_options. Throws ApiError.
void read_common_fields(const RequestFields& fields, ApiCall* call);

nlohmann::ordered_json usage_json(const ReplyUsage& usage);
std::string_view finish_reason(ReplyFinish finish);

// The last frames of a stream: with finish_reason `last` and the usage in its place of Kimi's; with
// `closing` (a chunk without choices) and OpenAI's usage when it was asked for; the end.
std::string sse_end(nlohmann::ordered_json last, nlohmann::ordered_json closing, bool include_usage,
                    const ReplyUsage& usage);
std::string sse_error(const ApiError& error);  // an error, then the end

// "data: ...\n\n", in one line.
std::string sse_frame(const nlohmann::ordered_json& data);
std::string json_text(const nlohmann::ordered_json& value);

// `prefix` and 24 random hex digits.
std::string random_id(std::string_view prefix);

}  // namespace penstock

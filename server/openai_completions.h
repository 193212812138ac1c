// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/completions: text or ids to be continued. Plain functions.
#pragma once

#include <memory>

#include "engine/text/json_text.h"
#include "server/dialect.h"

namespace penstock {

// The call's prompt is text or ids. Throws ApiError naming the field that is wrong.
ApiCall parse_completion_call(const JsonValue& body, const CallDefaults& defaults);

std::unique_ptr<ResponseWriter> make_completion_writer(const ApiCall& call,
                                                       const ReplyIdentity& identity);

}  // namespace penstock

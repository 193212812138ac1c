// SPDX-License-Identifier: Apache-2.0
//
// OpenAI's /v1/chat/completions with Kimi's additions (vendor contract). Plain functions.
#pragma once

#include <memory>

#include "engine/text/json_text.h"
#include "server/dialect.h"

namespace penstock {

// The call's prompt is a Conversation. Fields that greedy decoding has no use for, and unknown
// ones, are ignored. Throws ApiError naming the field that is wrong.
ApiCall parse_chat_call(const JsonValue& body, const CallDefaults& defaults);

std::unique_ptr<ResponseWriter> make_chat_writer(const ApiCall& call,
                                                 const ReplyIdentity& identity);

}  // namespace penstock

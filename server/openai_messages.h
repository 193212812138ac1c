// SPDX-License-Identifier: Apache-2.0
//
// The messages of a chat request, read into a Conversation's. What the vendor's contract refuses
// (sections 4 and 7) is refused here. Plain functions.
#pragma once

#include <vector>

#include "engine/text/conversation.h"
#include "server/request_fields.h"

namespace penstock {

// `tools` are the request's own: names may not be declared again in messages. Throws ApiError.
std::vector<Message> read_messages(const RequestFields& request,
                                   const std::vector<JsonValue>& tools);

// The request's tools, those of unknown types left out. Throws ApiError.
std::vector<JsonValue> read_request_tools(const RequestFields& request);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Whether and how much a chat request wants the model to think: the names that clients use, in the
// vendor's order of precedence (contract section 1). Plain functions.
#pragma once

#include "engine/text/conversation.h"
#include "server/request_fields.h"

namespace penstock {

// Sets thinking and effort. Throws ApiError naming the field that is wrong.
void read_thinking(const RequestFields& request, ThinkingEffort server_default,
                   Conversation* conversation);

}  // namespace penstock

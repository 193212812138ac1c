// SPDX-License-Identifier: Apache-2.0
//
// Routes beside the dialects: what is served, and whether it is ready. Plain functions.
#pragma once

#include <vector>

#include "server/http_server.h"
#include "server/served_model.h"

namespace penstock {

// `state` must outlive the routes.
std::vector<HttpRoute> admin_routes(const ServerState& state);

}  // namespace penstock

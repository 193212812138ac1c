// SPDX-License-Identifier: Apache-2.0
//
// Who may call: keys, the origins of web pages, the host names that a page could have been fooled
// with (DNS rebinding). Plain functions and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/server_options.h"

namespace penstock {

// What of a request's headers says who calls; empty: absent.
struct Caller {
  std::string authorization;
  std::string x_api_key;
  std::string api_key;
  std::string origin;
  std::string host;
};

// Throws ApiError 401 unless a key of the options was sent in one of the three headers. Takes the
// same time for every wrong key of a length.
void check_key(const ServerOptions& options, const Caller& caller);

// Throws ApiError 403 when a web page calls that may not, or the request was sent to a name that
// leads here only because somebody else's name server says so.
void check_origin(const ServerOptions& options, const Caller& caller);

// Whether a page of this origin may read responses.
bool origin_allowed(const ServerOptions& options, const Caller& caller);

// Throws Error(usage) when others reach the address and no key is asked for.
void check_exposure(const ServerOptions& options);

// A client's request id if it is short and plain.
std::optional<std::string> sane_request_id(std::string_view id);

}  // namespace penstock

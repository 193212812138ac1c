// SPDX-License-Identifier: Apache-2.0
//
// Errors as the clients of the HTTP API see them: a status, and OpenAI's error object.
// Plain functions and values.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace penstock {

// An error that knows how it is told. Empty `param` and `code` are null in JSON.
class ApiError : public Error {
 public:
  struct Details {
    int status = 400;
    std::string type = "invalid_request_error";
    std::string code{};
    std::string param{};  // the field, as messages[2].content
    int retry_after_s = 0;
    std::string allow{};  // methods, for a 405
  };
  ApiError(const std::string& message, Details details)
      : Error(ErrorCode::bad_request, message), details_(std::move(details)) {}
  const Details& details() const noexcept { return details_; }

 private:
  Details details_;
};

// The request's field `param` is wrong: 400.
ApiError wrong_field(std::string_view param, const std::string& problem, std::string_view code);

ApiError model_loading();  // 503
ApiError shutting_down();  // 503

// What is being handled, as an ApiError: the engine's errors by their code, all else 500 without
// details. Call it inside a catch block.
ApiError current_api_error();

// {"error":{"message":..., "type":..., "param":..., "code":...}}
std::string error_json(const ApiError& error);

}  // namespace penstock

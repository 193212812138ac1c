// SPDX-License-Identifier: Apache-2.0
//
// Runs what must fail and hands back the Error, for tests of its code and message.
#pragma once

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace penstock {

template <typename Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorCode::usage, "no Error was thrown");
}

}  // namespace penstock

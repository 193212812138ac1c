// SPDX-License-Identifier: Apache-2.0
//
// Fixture of the tests that run over every back end of the read queue:
// INSTANTIATE_TEST_SUITE_P(, Suite, kBackends, backend_name_of).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "engine/io/read_queue.h"

namespace penstock {

class BackendTest : public testing::TestWithParam<ReadBackendChoice> {
 protected:
  void SetUp() override {
    if (GetParam() != ReadBackendChoice::uring) return;
    try {
      ReadQueue queue({.depth = 1, .backend = GetParam()});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // The options, with the back end under test.
  static ReadQueueOptions with_backend(ReadQueueOptions options = {}) {
    options.backend = GetParam();
    return options;
  }
};

inline const auto kBackends = testing::Values(ReadBackendChoice::uring, ReadBackendChoice::pread);

inline std::string backend_name_of(const testing::TestParamInfo<ReadBackendChoice>& info) {
  return info.param == ReadBackendChoice::uring ? "uring" : "pread";
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Adds the seconds of a scope to a sum.
#pragma once

#include <chrono>

namespace penstock {

class Timed {
 public:
  explicit Timed(double* sum) : sum_(sum) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { *sum_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double* sum_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace penstock

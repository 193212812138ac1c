// SPDX-License-Identifier: Apache-2.0
//
// SIGINT and SIGTERM for a program whose main thread does nothing but wait for them.
#pragma once

#include <pthread.h>

#include <csignal>

namespace penstock {

class SignalWaiter {
 public:
  // Call on the main thread before others are started: they inherit that the signals are blocked.
  SignalWaiter();

  bool wait();           // main thread: true when a signal came, false after wake()
  void wake() noexcept;  // any thread

 private:
  sigset_t signals_;
  const pthread_t main_;
};

}  // namespace penstock

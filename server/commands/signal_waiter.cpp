// SPDX-License-Identifier: Apache-2.0
#include "server/commands/signal_waiter.h"

#include "engine/base/error.h"

namespace penstock {

SignalWaiter::SignalWaiter() : main_(pthread_self()) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals_, signal);
  if (pthread_sigmask(SIG_BLOCK, &signals_, nullptr) != 0) {
    throw Error(ErrorCode::io, "cannot block signals");
  }
  std::signal(SIGPIPE, SIG_IGN);
}

bool SignalWaiter::wait() {
  int signal = 0;
  sigwait(&signals_, &signal);
  return signal != SIGUSR2;
}

void SignalWaiter::wake() noexcept {
  pthread_kill(main_, SIGUSR2);
}

}  // namespace penstock

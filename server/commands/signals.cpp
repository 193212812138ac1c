// SPDX-License-Identifier: Apache-2.0
#include "server/commands/signals.h"

#include <csignal>

namespace penstock {
namespace {

// A handler may only touch lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free);
StopFlag g_stop;

void request_stop(int /*signal*/) {
  g_stop.request_stop();
}

}  // namespace

const StopFlag& stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = &request_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return g_stop;
}

}  // namespace penstock

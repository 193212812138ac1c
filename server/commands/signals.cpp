// SPDX-License-Identifier: Apache-2.0
#include "server/commands/signals.h"

#include <atomic>
#include <csignal>

namespace penstock {
namespace {

// A handler may only touch lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
StopFlag g_stop;
std::atomic<int> g_interrupts{0};

void request_stop(int /*signal*/) {
  g_stop.request_stop();
}

void count_interrupt(int /*signal*/) {
  g_interrupts.fetch_add(1, std::memory_order_relaxed);
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

void count_interrupts() {
  struct sigaction action = {};
  action.sa_handler = &count_interrupt;
  action.sa_flags = SA_RESTART;  // output goes on
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

int interrupts() noexcept {
  return g_interrupts.load(std::memory_order_relaxed);
}

}  // namespace penstock

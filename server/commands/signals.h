// SPDX-License-Identifier: Apache-2.0
//
// SIGINT and SIGTERM stop the work of a command; a closed pipe is an error of write_stdout.
// Main thread.
#pragma once

#include "engine/base/stop_flag.h"

namespace penstock {

inline constexpr int kExitInterrupted = 130;  // as shells say it: 128 + SIGINT

// The flag is set by the first signal; a second one ends the process. Call once.
const StopFlag& stop_on_signals();

// From now on SIGINT is counted and nothing else: for a program that outlives it. SIGTERM still
// sets the flag. Call after stop_on_signals().
void count_interrupts();
int interrupts() noexcept;  // SIGINTs since then

}  // namespace penstock

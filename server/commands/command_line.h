// SPDX-License-Identifier: Apache-2.0
//
// The command line of `penstock`. Main thread.
#pragma once

namespace penstock {

// Parses the arguments of main() and runs the command they name; returns the exit status.
// Throws Error; Error(usage) ends with the --help to look at.
int run_command_line(int argc, const char* const* argv);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <new>

#include "engine/base/error.h"
#include "server/commands/command_line.h"
#include "server/commands/signals.h"

int main(int argc, char** argv) {
  try {
    return penstock::run_command_line(argc, argv);
  } catch (const penstock::Error& error) {
    std::fprintf(stderr, "penstock: %s\n", error.what());
    return error.code() == penstock::ErrorCode::cancelled ? penstock::kExitInterrupted : 1;
  } catch (const std::bad_alloc&) {
    std::fputs("penstock: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "penstock: %s\n", error.what());
  }
  return 1;
}

// SPDX-License-Identifier: Apache-2.0
//
// ram_read [GB]: prints the rate in GB/s at which all cores read memory. More memory than any cache
// holds: 1 GB unless told otherwise.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>

#include "engine/base/error.h"
#include "engine/base/ram_rate.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxGigabytes = 1024;

std::size_t gigabytes(int argc, char** argv) {
  if (argc < 2) return 1;
  std::size_t value = 0;
  const char* const end = argv[1] + std::strlen(argv[1]);
  const auto [stop, error] = std::from_chars(argv[1], end, value);
  if (argc > 2 || error != std::errc{} || stop != end || value < 1 || value > kMaxGigabytes) {
    throw Error(ErrorCode::usage, "usage: ram_read [GB]");
  }
  return value;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    std::printf("%.2f\n",
                penstock::ram_read_gb_per_s(penstock::gigabytes(argc, argv) * 1'000'000'000));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ram_read: %s\n", error.what());
    return 1;
  }
}

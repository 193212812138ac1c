// SPDX-License-Identifier: Apache-2.0
//
// ram_read [GB]: reads memory from end to end with all cores, in plain loops, and prints the median
// rate of the passes in GB/s. More memory than any cache holds: 1 GB unless told otherwise.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kMaxGigabytes = 1024;
constexpr int kPasses = 9;
constexpr std::size_t kLanes = 8;  // sums that do not wait for one another

// Never inlined away: the sum is looked at.
std::uint64_t sum(const std::uint64_t* values, std::size_t count) {
  std::uint64_t sums[kLanes] = {};
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] += values[i + j];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t lane : sums) all += lane;
  return all;
}

// Each thread has a share of the memory.
class Reader {
 public:
  explicit Reader(std::size_t bytes) : memory_(bytes, "memory to read"), sums_(threads()) {
    std::memset(memory_.data(), 1, bytes);
  }

  double seconds_of_pass() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> helpers;
    for (std::size_t t = 1; t < threads(); ++t) helpers.emplace_back([this, t] { read(t); });
    read(0);
    helpers.clear();  // joins
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::uint64_t check() const { return sums_[0]; }

 private:
  static std::size_t threads() { return static_cast<std::size_t>(available_cores()); }
  void read(std::size_t thread) {
    const std::size_t share = memory_.size() / sizeof(std::uint64_t) / threads();
    sums_[thread] = sum(memory_.as<const std::uint64_t>() + thread * share, share);
  }

  Buffer memory_;
  std::vector<std::uint64_t> sums_;
};

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

void run(std::size_t bytes) {
  Reader reader(bytes);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) seconds.push_back(reader.seconds_of_pass());
  std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
  if (reader.check() == 0) throw std::logic_error("memory of ones reads as zero");
  std::printf("%.2f\n", static_cast<double>(bytes) / seconds[kPasses / 2] / 1e9);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    penstock::run(penstock::gigabytes(argc, argv) * 1'000'000'000);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ram_read: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "engine/base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/buffer_warmer.h"
#include "engine/base/error.h"
#include "tests/support/expect_error.h"

namespace penstock {
namespace {

std::uintptr_t address(const Buffer& buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer.data());
}

TEST(Buffer, IsZeroedAndPageAligned) {
  for (const std::size_t bytes : {1UL, 4095UL, 4096UL, 100001UL, kHugePageBytes - 1}) {
    const Buffer buffer(bytes, "test");
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(address(buffer) % kPageBytes, 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(Buffer, IsAlignedToHugePagesFromTheirSizeOn) {
  for (int i = 0; i < 8; ++i) {
    const Buffer odd(kPageBytes * 3, "shifts what follows");
    const Buffer buffer(kHugePageBytes + static_cast<std::size_t>(i) * 5000, "test");
    EXPECT_EQ(address(buffer) % kHugePageBytes, 0U);
    buffer.data()[0] = std::byte{1};
    buffer.data()[buffer.size() - 1] = std::byte{2};
  }
}

TEST(Buffer, MovesItsMemory) {
  Buffer a(5000, "test");
  a.as<std::uint32_t>()[7] = 77;
  std::byte* const memory = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  EXPECT_EQ(b.size(), 5000U);
  Buffer c(kHugePageBytes, "given back by the assignment");
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(c.as<std::uint32_t>()[7], 77U);
}

TEST(Buffer, HoldsNothingWhenEmpty) {
  const Buffer none(0, "nothing");
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.size(), 0U);
}

TEST(Buffer, NamesPurposeAndSizeWhenRefused) {
  for (const std::size_t bytes : {std::size_t{1} << 50U, std::numeric_limits<std::size_t>::max()}) {
    const Error error = error_of([&] { Buffer(bytes, "expert slots"); });
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_NE(std::string(error.what()).find("expert slots"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(BufferWarmer, MakesBuffersInOrder) {
  BufferWarmer warmer;
  std::future<Buffer> small = warmer.prepare(5000, "test");
  EXPECT_TRUE(is_ready(small));
  std::future<Buffer> first = warmer.prepare(kWarmAtOnceBytes, "test");
  std::future<Buffer> second = warmer.prepare(kWarmAtOnceBytes + 1, "test");
  EXPECT_EQ(second.get().size(), kWarmAtOnceBytes + 1);
  EXPECT_TRUE(is_ready(first));
  const Buffer buffer = first.get();
  EXPECT_EQ(buffer.size(), kWarmAtOnceBytes);
  for (std::size_t i = 0; i < buffer.size(); i += 4096) ASSERT_EQ(buffer.data()[i], std::byte{0});
}

TEST(BufferWarmer, ReportsWhatTheSystemRefuses) {
  BufferWarmer warmer;
  std::future<Buffer> huge = warmer.prepare(std::size_t{1} << 62U, "a test");
  try {
    huge.get();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_TRUE(std::string(error.what()).starts_with("a test: ")) << error.what();
  }
}

TEST(BufferWarmer, EndsInTheMiddleOfItsWork) {
  BufferWarmer warmer;
  std::vector<std::future<Buffer>> left;
  for (int i = 0; i < 8; ++i) left.push_back(warmer.prepare(4 * kWarmAtOnceBytes, "test"));
}

}  // namespace
}  // namespace penstock

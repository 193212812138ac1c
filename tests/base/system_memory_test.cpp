// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30U;

void write_limit(const TempDir& mount, const std::string& group, const std::string& file,
                 const std::string& limit) {
  std::filesystem::create_directories(mount.path(group));
  mount.write(group + "/" + file, limit + "\n");
}

TEST(SystemMemory, IsPlausible) {
  const SystemMemory memory = system_memory();
  EXPECT_GT(memory.total_bytes, 64ULL << 20U);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
  EXPECT_LT(default_memory_budget(memory), memory.total_bytes);
}

TEST(DefaultMemoryBudget, TakesTheTightest) {
  const auto budget = [](std::uint64_t total, std::uint64_t available,
                         std::optional<std::uint64_t> limit) {
    return default_memory_budget({total, available, limit});
  };
  EXPECT_EQ(budget(64 * kGiB, 60 * kGiB, std::nullopt), 48 * kGiB);
  EXPECT_EQ(budget(64 * kGiB, 60 * kGiB, 16 * kGiB), 12 * kGiB);
  EXPECT_EQ(budget(64 * kGiB, 9 * kGiB, 16 * kGiB), 8 * kGiB);
  EXPECT_EQ(budget(64 * kGiB, kGiB / 2, std::nullopt), 0U);
  EXPECT_EQ(budget(64 * kGiB, 60 * kGiB, 0), 0U);
}

TEST(CgroupLimit, TakesTheTightestOfVersion2FromTheGroupUp) {
  const TempDir mount;
  write_limit(mount, "a/b/c", "memory.max", "max");
  write_limit(mount, "a/b", "memory.max", "4000000000");
  write_limit(mount, "a", "memory.max", "8000000000");
  EXPECT_EQ(cgroup_limit("0::/a/b/c\n", mount.path()), 4000000000U);
  EXPECT_EQ(cgroup_limit("0::/a", mount.path()), 8000000000U);
  write_limit(mount, "a/b/c", "memory.max", "1000");
  EXPECT_EQ(cgroup_limit("0::/a/b/c\n", mount.path()), 1000U);
}

TEST(CgroupLimit, ReadsTheMountsRoot) {
  const TempDir mount;
  write_limit(mount, ".", "memory.max", "5000");
  EXPECT_EQ(cgroup_limit("0::/", mount.path()), 5000U);
  EXPECT_EQ(cgroup_limit("0::/docker/not-below-this-mount", mount.path()), 5000U);
}

TEST(CgroupLimit, ReadsVersion1) {
  const TempDir mount;
  write_limit(mount, "memory/box", "memory.limit_in_bytes", "7000");
  write_limit(mount, "memory", "memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(cgroup_limit("11:cpuset:/x\n4:hugetlb,memory:/box\n0::/\n", mount.path()), 7000U);
  EXPECT_EQ(cgroup_limit("4:memory:/\n", mount.path()), std::nullopt);
}

TEST(CgroupHeadroom, IsWhatTheTightestGroupLeaves) {
  const TempDir mount;
  write_limit(mount, "a/b", "memory.max", "8000");
  write_limit(mount, "a/b", "memory.high", "7000");
  write_limit(mount, "a/b", "memory.current", "5000");
  write_limit(mount, "a/b", "memory.stat", "anon 3000\nfile 2000\ninactive_file 1500\nslab 1");
  EXPECT_EQ(cgroup_headroom("0::/a/b\n", mount.path()), 3500U);
  write_limit(mount, "a", "memory.max", "9000");
  write_limit(mount, "a", "memory.current", "8900");
  EXPECT_EQ(cgroup_headroom("0::/a/b\n", mount.path()), 100U);
  write_limit(mount, "a", "memory.current", "9900");
  EXPECT_EQ(cgroup_headroom("0::/a/b\n", mount.path()), 0U);
  EXPECT_EQ(cgroup_headroom("0::/", mount.path()), std::nullopt);
}

TEST(CgroupHeadroom, ReadsVersion1) {
  const TempDir mount;
  write_limit(mount, "memory/box", "memory.limit_in_bytes", "7000");
  write_limit(mount, "memory/box", "memory.usage_in_bytes", "6000");
  write_limit(mount, "memory/box", "memory.stat", "inactive_file 1\ntotal_inactive_file 500");
  EXPECT_EQ(cgroup_headroom("4:hugetlb,memory:/box\n", mount.path()), 1500U);
}

TEST(StalledShare, ReadsTheTenSecondAverage) {
  EXPECT_DOUBLE_EQ(
      stalled_share("some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00"), 0.1234);
  EXPECT_DOUBLE_EQ(stalled_share("some avg10=0.00 avg60=1.00"), 0);
  EXPECT_DOUBLE_EQ(stalled_share(""), 0);
  EXPECT_DOUBLE_EQ(stalled_share("some avg10=x"), 0);
}

TEST(LockObstacle, NamesTheLimit) {
  EXPECT_EQ(lock_obstacle(0), "");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_cur == RLIM_INFINITY) GTEST_SKIP() << "memory locks are not limited here";
  const std::string obstacle = lock_obstacle(UINT64_MAX);
  if (obstacle.empty()) GTEST_SKIP() << "this process may pass the limit";
  EXPECT_NE(obstacle.find("RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur)), std::string::npos)
      << obstacle;
}

TEST(MemoryUse, SaysWhatThisProcessHolds) {
  const MemoryUse use = memory_use();
  EXPECT_GT(use.held_bytes, 1'000'000U);
  EXPECT_LT(use.held_bytes, system_memory().total_bytes);
  EXPECT_GT(use.available_bytes, 0U);
}

TEST(CgroupLimit, IsAbsentWithoutLimits) {
  const TempDir mount;
  for (const char* membership : {"", "\n", "0::/a\n", "nonsense", "1:2", ":", "::"}) {
    EXPECT_EQ(cgroup_limit(membership, mount.path()), std::nullopt) << membership;
  }
}

TEST(ParseByteSize, ReadsUnits) {
  EXPECT_EQ(parse_byte_size("0"), 0U);
  EXPECT_EQ(parse_byte_size("4096"), 4096U);
  EXPECT_EQ(parse_byte_size("4096B"), 4096U);
  EXPECT_EQ(parse_byte_size("3k"), 3072U);
  EXPECT_EQ(parse_byte_size("800M"), 800ULL << 20U);
  EXPECT_EQ(parse_byte_size("12G"), 12 * kGiB);
  EXPECT_EQ(parse_byte_size("12gb"), 12 * kGiB);
  EXPECT_EQ(parse_byte_size("12GiB"), 12 * kGiB);
  EXPECT_EQ(parse_byte_size("2T"), 2048 * kGiB);
}

TEST(ParseByteSize, ReadsFractions) {
  EXPECT_EQ(parse_byte_size("1.5GiB"), 3 * kGiB / 2);
  EXPECT_EQ(parse_byte_size("0.25K"), 256U);
  EXPECT_EQ(parse_byte_size("1.000001K"), 1024U);
  EXPECT_EQ(parse_byte_size("0.999999T"), 1099510528264U);
}

TEST(ParseByteSize, RefusesWhatIsMalformed) {
  for (const char* text :
       {"",    "G",    "-1",  "+1",         "1.5",   "1.5B",  "1.",    "1.G",
        ".5G", "1,5G", "1 G", " 1G",        "1G ",   "1Gx",   "1GiBs", "1Gi",
        "1iB", "0x10", "1e9", "1.1234567G", "1.-5G", "1..5G", "1E",    "\xc3\xa4"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(ParseByteSize, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_byte_size("16777215T"), 16777215ULL << 40U);
  EXPECT_EQ(parse_byte_size("16777216T"), std::nullopt);
  EXPECT_EQ(parse_byte_size("99999999999999999999"), std::nullopt);
  EXPECT_EQ(parse_byte_size("18446744073709551615K"), std::nullopt);
}

}  // namespace
}  // namespace penstock

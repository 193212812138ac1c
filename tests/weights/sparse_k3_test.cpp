// SPDX-License-Identifier: Apache-2.0
//
// The whole Kimi K3 as sparse files: every offset the program computes against the layout of the
// published shards (tests/golden/kimi-k3/).
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/model/load_model.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/spine_segments.h"
#include "engine/weights/tensor_index.h"
#include "tests/bench/sparse_checkpoint.h"
#include "tests/support/published_k3.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kLayers = 93;
constexpr std::int32_t kExperts = 896;

// Sanitizers keep freed memory and shadow what is used.
constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

std::uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<std::uint64_t>(usage.ru_maxrss);
#else
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

// Why the sparse model cannot be made here; empty when it can.
std::string obstacle(const TempDir& dir) {
  const std::string path = dir.write("probe", "x");
  std::error_code error;
  fs::resize_file(path, 20'000'000'000, error);
  if (error) return "files of 20 GB are refused: " + error.message();
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || status.st_blocks > 2048) {
    return "the file system has no sparse files";
  }
  fs::remove(path);
  if (fs::space(dir.path()).available < 300'000'000) return "less than 300 MB of disk are free";
  return "";
}

// In a process of its own: what writing takes must not hide what opening takes.
bool write_elsewhere(const std::string& dir) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      write_sparse_k3(dir, {});
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void check_segments(const TensorIndex& index) {
  std::vector<SpineUnit> units;
  std::uint64_t payload = 0;
  for (const auto& [name, info] : index.tensors()) {
    if (info.shape.size() != 2 || !name.starts_with("language_model.")) continue;
    units.push_back({name, cut_by_rows(index, name, static_cast<std::int32_t>(info.shape[0]),
                                       static_cast<std::int32_t>(info.shape[1]), UINT64_MAX)});
    payload += info.bytes;
  }
  std::uint64_t planned = 0;
  for (const SpineSegment& segment : plan_segments({&index}, units)) {
    planned += segment.payload_bytes;
  }
  EXPECT_EQ(planned, payload);
  EXPECT_GT(planned, 113'000'000'000U);
}

// The plan without weights is the one with them.
void check_plan(const std::string& dir) {
  ModelOptions options;
  options.dir = dir;
  options.memory.budget_bytes = 300'000'000'000;
  const ModelPlan with = plan_model(options);
  options.dir = PENSTOCK_SOURCE_DIR "/config/models/kimi-k3";
  options.without_weights = true;
  const ModelPlan without = plan_model(options);
  EXPECT_EQ(describe_plan(without.memory), describe_plan(with.memory));
  EXPECT_EQ(without.memory.floor_bytes, with.memory.floor_bytes);
  EXPECT_EQ(without.file_bytes, with.file_bytes);
  EXPECT_EQ(without.expert_bytes, with.expert_bytes);
  EXPECT_EQ(without.all_expert_bytes, with.all_expert_bytes);
  EXPECT_EQ(without.embedding_bytes, with.embedding_bytes);
}

// One test, as writing the files takes most of the time.
TEST(SparseK3, LiesWhereItIsPublished) {
  const TempDir dir;
  const std::string why_not = obstacle(dir);
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  ASSERT_TRUE(write_elsewhere(dir.path()));

  const std::uint64_t memory_before = peak_memory_bytes();
  const auto start = std::chrono::steady_clock::now();
  const TensorIndex index =
      TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); });
  std::vector<bool> is_moe(kLayers, true);
  is_moe[0] = false;
  const ExpertStore store(index, {kLayers, kExperts, 3584, 3072}, is_moe);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::uint64_t memory = peak_memory_bytes() - memory_before;
  std::cout << "opened in " << seconds.count() << " s, peak memory "
            << static_cast<double>(memory) / 1e6 << " MB more\n";

  if (!kSanitized) {
    EXPECT_LT(memory, 200'000'000U);
  }
  expect_published_k3(index, store);
  check_segments(index);
  check_plan(dir.path());
}

}  // namespace
}  // namespace penstock

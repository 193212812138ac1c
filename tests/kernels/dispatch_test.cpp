// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "kernels/cpu.h"
#include "kernels/kernels.h"

namespace penstock {
namespace {

TEST(Dispatch, ListsScalarLast) {
  const KernelList list = supported_kernels();
  ASSERT_GE(list.count, 1);
  EXPECT_STREQ(list.tables[list.count - 1]->name, "scalar");
  std::set<std::string> names;
  for (int i = 0; i < list.count; ++i) names.insert(list.tables[i]->name);
  EXPECT_EQ(names.size(), static_cast<std::size_t>(list.count));
}

TEST(Dispatch, FindsEachTableByName) {
  const KernelList list = supported_kernels();
  for (int i = 0; i < list.count; ++i) {
    EXPECT_EQ(find_kernels(list.tables[i]->name), list.tables[i]);
  }
}

TEST(Dispatch, ChoosesTheBestWithoutName) {
  EXPECT_EQ(find_kernels(nullptr), supported_kernels().tables[0]);
  EXPECT_EQ(find_kernels(""), supported_kernels().tables[0]);
}

TEST(Dispatch, KnowsNoOtherName) {
  EXPECT_EQ(find_kernels("avx-512"), nullptr);
  EXPECT_EQ(find_kernels("SCALAR"), nullptr);
  EXPECT_EQ(find_kernels("scalar "), nullptr);
}

TEST(Dispatch, OffersAvx512ExactlyWhereItRuns) {
  EXPECT_EQ(find_kernels("avx512") != nullptr, detect_cpu().avx512);
#if defined(__x86_64__)
  EXPECT_EQ(detect_cpu().avx512,
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("fma"));
#endif
}

TEST(Dispatch, FillsEverySlot) {
  const KernelList list = supported_kernels();
  for (int i = 0; i < list.count; ++i) {
    const Kernels& k = *list.tables[i];
    SCOPED_TRACE(k.name);
    for (int format = 0; format < kWeightFormats; ++format) {
      EXPECT_TRUE(k.matmul[format].prepared_bytes && k.matmul[format].prepare &&
                  k.matmul[format].run && k.matmul_t[format]);
    }
    EXPECT_TRUE(k.dot && k.exp && k.tanh && k.sigmoid && k.softplus && k.sigmoid_mul &&
                k.silu_mul && k.situ_mul && k.axpy && k.kda && k.attend);
  }
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The bits of every slot over fixed operands, as constants: debug and release builds, GCC and
// Clang, every fp32 table must give these. A deliberate change of an order or a formula changes a
// constant.
#include <bit>
#include <cstdio>

#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

using Bits = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Bits, testing::ValuesIn(all_tables()), table_name);

// FNV-1a over the bit patterns.
std::uint64_t hash(std::span<const float> values) {
  std::uint64_t h = 0xCBF29CE484222325U;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) h = (h ^ (bits >> shift & 0xFFU)) * 0x100000001B3U;
  }
  return h;
}

std::uint64_t hash_products(const Kernels& table, WeightFormat format) {
  constexpr std::int32_t kRows = 21;
  constexpr std::int32_t kWidth = 1056;
  constexpr std::int32_t kTokens = 5;
  constexpr std::size_t kValues = std::size_t{kTokens} * kWidth;
  const TestMatrix m = random_matrix(format, kRows, kWidth, 100);
  const GuardBuffer x = random_floats(kValues, 101);
  std::vector<float> y = multiply(table, m.view, 0, kRows, x.as<float>(), kTokens);
  std::vector<float> transposed(kValues);
  table.matmul_t[static_cast<int>(format)](m.view, 0, kRows, floats(x), kRows, kTokens,
                                           transposed.data(), kWidth);
  y.insert(y.end(), transposed.begin(), transposed.end());
  return hash(y);
}

std::uint64_t hash_elementwise(void (*f)(const float*, float*, std::size_t)) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 100003) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  f(x.data(), x.data(), x.size());
  return hash(x);
}

std::uint64_t hash_situ(const Kernels& table) {
  const GuardBuffer gate = random_floats(1000, 102, -30, 30);
  const GuardBuffer up = random_floats(1000, 103, -90, 90);
  table.situ_mul(floats(gate), floats(up), 4, 25, floats(up), 1000);
  table.silu_mul(floats(gate), floats(up), floats(up), 1000);
  table.axpy(0.7F, floats(up), floats(gate), 1000);
  return hash(gate.as<float>());
}

std::uint64_t hash_kda(const Kernels& table) {
  constexpr std::int32_t kKey = 24;
  constexpr std::int32_t kValue = 40;
  constexpr std::size_t kState = std::size_t{kKey} * kValue;
  constexpr std::size_t kOut = std::size_t{9} * kValue;
  const GuardBuffer rows = random_floats(kOut, 104, -0.3F, 0.3F);
  const GuardBuffer decay = random_floats(kOut, 105, 0, 1);
  std::vector<float> all(kState + kOut);
  KdaHead head{};
  head.initial = all.data();
  head.state = all.data();
  head.q = floats(rows);
  head.k = floats(rows) + kValue - kKey;
  head.v = floats(rows);
  head.decay = floats(decay);
  head.beta = floats(decay);
  head.out = all.data() + kState;
  head.qkv_stride = kValue;
  head.row_stride = kValue;
  head.beta_stride = 1;
  head.tokens = 9;
  head.key_dim = kKey;
  head.value_dim = kValue;
  table.kda(head);
  return hash(all);
}

std::uint64_t hash_attend(const Kernels& table) {
  constexpr std::int32_t kWidth = 100;
  const GuardBuffer query = random_floats(kWidth, 106);
  const GuardBuffer cache = random_floats(std::size_t{99} * kWidth, 107);
  std::vector<float> all(92);
  AttentionPartial partial{0, 0, all.data() + 2};
  table.attend({floats(query), floats(cache), kWidth, 90, 99, 0.5F}, &partial);
  all[0] = partial.max;
  all[1] = partial.sum;
  return hash(all);
}

TEST_P(Bits, AreTheSameInEveryBuild) {
  const Kernels& k = table();
  const struct {
    const char* name;
    std::uint64_t got;
    std::uint64_t want;
  } kRows[] = {
      {"f32", hash_products(k, WeightFormat::f32), 0xE27493F15BABA694},
      {"bf16", hash_products(k, WeightFormat::bf16), 0xB9D3956712602F41},
      {"int8_rows", hash_products(k, WeightFormat::int8_rows), 0xA00E992CC8CD169B},
      {"mxfp4", hash_products(k, WeightFormat::mxfp4), 0xCAC02D69E83FF8B0},
      {"bf12", hash_products(k, WeightFormat::bf12), 0xACCC9E4EAB2381C4},
      {"exp", hash_elementwise(k.exp), 0xBEBD1179BC5D2EA6},
      {"tanh", hash_elementwise(k.tanh), 0xD9204C4AE0E4B519},
      {"sigmoid", hash_elementwise(k.sigmoid), 0xF74BE8266199492B},
      {"softplus", hash_elementwise(k.softplus), 0xDE31DD813F3B532A},
      {"situ", hash_situ(k), 0x2B16EE5952EECCC2},
      {"kda", hash_kda(k), 0xE320E49C6C858F1B},
      {"attend", hash_attend(k), 0xBA47074C774C1F89},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(row.got, row.want) << row.name << " 0x" << std::hex << row.got;
  }
}

}  // namespace
}  // namespace penstock::test

// SPDX-License-Identifier: Apache-2.0
//
// Kernels per table, format and shape on one core, beside a plain loop of reads. Weights lie in
// memory, not in a cache. `--benchmark_filter=avx512/mxfp4` picks some.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace penstock {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8_rows,
                                     WeightFormat::mxfp4, WeightFormat::bf12};
constexpr const char* kFormatNames[] = {"f32", "bf16", "int8_rows", "mxfp4", "bf12"};

struct Shape {
  std::int32_t rows;
  std::int32_t cols;
};
constexpr Shape kVectorShapes[] = {{16384, 7168}, {3072, 3584}};  // a projection, an expert of K3
constexpr Shape kExpert = {3072, 3584};
constexpr std::int32_t kExpertTokens[] = {2, 4, 8, 32, 256, 512};

std::size_t product(std::int32_t a, std::int32_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

// Bytes 0x38 are harmless numbers in every format; scales are powers of two near one.
struct Operands {
  std::vector<unsigned char> data;
  std::vector<unsigned char> scales;
  std::vector<unsigned char> prepared;
  std::vector<float> y;
  WeightMatrix w;

  Operands(const Kernels& table, WeightFormat format, Shape shape, std::int32_t tokens)
      : data(static_cast<std::size_t>(shape.rows) * row_data_bytes(format, shape.cols), 0x38),
        scales(static_cast<std::size_t>(shape.rows) * row_scale_bytes(format, shape.cols), 0x38),
        y(product(tokens, shape.rows)) {
    w = {data.data(), scales.data(), shape.rows, shape.cols, format};
    const MatmulKernel& kernel = table.matmul[static_cast<int>(format)];
    const std::vector<float> x(product(tokens, shape.cols), 0.01F);
    prepared.resize(kernel.prepared_bytes(tokens, shape.cols) + kPreparedAlignment);
    kernel.prepare(x.data(), shape.cols, shape.cols, 0, tokens, aligned());
  }

  void* aligned() {
    const auto address = reinterpret_cast<std::uintptr_t>(prepared.data());
    const std::size_t past = address % kPreparedAlignment;
    return prepared.data() + (past == 0 ? 0 : kPreparedAlignment - past);
  }
};

void set_rates(benchmark::State& state, double bytes, double flops) {
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * n / 1e9, benchmark::Counter::kIsRate);
  if (flops > 0) {
    state.counters["GFLOP/s"] = benchmark::Counter(flops * n / 1e9, benchmark::Counter::kIsRate);
  }
}

void multiply(benchmark::State& state, const Kernels& table, WeightFormat format, Shape shape,
              std::int32_t tokens) {
  Operands o(table, format, shape, tokens);
  for ([[maybe_unused]] auto _ : state) {
    table.matmul[static_cast<int>(format)].run(o.w, 0, shape.rows, o.aligned(), tokens, o.y.data(),
                                               shape.rows);
    benchmark::DoNotOptimize(o.y.data());
    benchmark::ClobberMemory();
  }
  const auto weights = static_cast<double>(product(shape.rows, shape.cols));
  set_rates(state, static_cast<double>(o.data.size() + o.scales.size()), 2 * tokens * weights);
}

void kda(benchmark::State& state, const Kernels& table, std::int32_t tokens) {
  constexpr std::int32_t kDim = 128;
  std::vector<float> s(kDim * kDim);
  const std::vector<float> rows(product(tokens, kDim), 0.05F);
  std::vector<float> out(rows.size());
  KdaHead head{};
  head.initial = s.data();
  head.state = s.data();
  head.q = head.k = head.v = head.decay = head.beta = rows.data();
  head.out = out.data();
  head.qkv_stride = head.row_stride = kDim;
  head.beta_stride = 1;
  head.tokens = tokens;
  head.key_dim = head.value_dim = kDim;
  for ([[maybe_unused]] auto _ : state) {
    table.kda(head);
    benchmark::ClobberMemory();
  }
  set_rates(state, 0, 7.0 * tokens * kDim * kDim);
}

void attend(benchmark::State& state, const Kernels& table) {
  constexpr std::int32_t kWidth = 576;
  constexpr std::int32_t kLatent = 512;
  const std::vector<float> query(kWidth, 0.05F);
  const std::vector<float> cache(kAttentionBlock * kWidth, 0.05F);
  std::vector<float> weighted(kLatent);
  AttentionPartial partial{0, 0, weighted.data()};
  for ([[maybe_unused]] auto _ : state) {
    table.attend({query.data(), cache.data(), kWidth, kLatent, kAttentionBlock, 0.1F}, &partial);
    benchmark::ClobberMemory();
  }
  set_rates(state, kAttentionBlock * kWidth * 4.0, 2.0 * kAttentionBlock * (kWidth + kLatent));
}

void read_loop(benchmark::State& state) {
  constexpr std::size_t kCount = std::size_t{1} << 22;  // 256 MiB
  const std::vector<std::uint64_t> memory(kCount * 8, 1);
  for ([[maybe_unused]] auto _ : state) {
    std::uint64_t sum[8] = {};
    for (std::size_t i = 0; i < memory.size(); i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sum[j] += memory[i + j];
    }
    for (std::uint64_t& value : sum) benchmark::DoNotOptimize(value);
  }
  set_rates(state, kCount * 64.0, 0);
}

void register_table(const Kernels& table) {
  const std::string prefix = table.name;
  const bool slow = prefix == "scalar";  // the specification: one shape shows how slow
  for (const WeightFormat format : kFormats) {
    const std::string name = prefix + "/" + kFormatNames[static_cast<int>(format)];
    for (const Shape shape : kVectorShapes) {
      if (slow && shape.cols != kExpert.cols) continue;
      const std::string size = std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
      benchmark::RegisterBenchmark((name + "/" + size + "/tokens:1").c_str(), multiply, table,
                                   format, shape, 1);
    }
    for (const std::int32_t tokens : kExpertTokens) {
      if (slow) continue;
      const std::string size = "/3072x3584/tokens:" + std::to_string(tokens);
      benchmark::RegisterBenchmark((name + size).c_str(), multiply, table, format, kExpert, tokens);
    }
  }
  for (const std::int32_t tokens : {1, 64}) {
    benchmark::RegisterBenchmark((prefix + "/kda/tokens:" + std::to_string(tokens)).c_str(), kda,
                                 table, tokens);
  }
  benchmark::RegisterBenchmark((prefix + "/attend").c_str(), attend, table);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  benchmark::RegisterBenchmark("roof/read", penstock::read_loop);
  const penstock::KernelList list = penstock::supported_kernels();
  for (int i = 0; i < list.count; ++i) penstock::register_table(*list.tables[i]);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

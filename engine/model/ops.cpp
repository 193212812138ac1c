// SPDX-License-Identifier: Apache-2.0
#include "engine/model/ops.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::int64_t kMinGrainRows = 16;          // a kernel's register tile, twice
constexpr std::int64_t kGrainMultiplies = 4 << 20;  // 0.1 to 1 ms of one core
constexpr std::int64_t kChunksPerThread = 4;
constexpr std::int64_t kPrepareGrainTokens = 8;

}  // namespace

// Rows that one thread takes at a time: enough to be worth it, few enough to share the whole work
// evenly and to end within milliseconds.
std::span<const Ops::RowRanges> Ops::split_rows(std::span<const Matmul> products) const {
  std::int64_t multiplies = 0;
  for (const auto& [w, x, y, ldy] : products)
    multiplies += std::int64_t{w.rows} * w.cols * x->tokens;
  const std::int64_t share =
      std::min(kGrainMultiplies, multiplies / (kChunksPerThread * pool.threads()));
  auto* const ranges = scratch.take<RowRanges>(products.size());
  std::int64_t end = 0;
  for (std::size_t p = 0; p < products.size(); ++p) {
    const auto& [w, x, y, ldy] = products[p];
    assert(x->prepared_by == kernels.matmul[static_cast<int>(w.format)].prepare);
    const std::int64_t grains = share / (std::int64_t{w.cols} * x->tokens) / kMinGrainRows;
    const std::int64_t rows = std::max<std::int64_t>(grains, 1) * kMinGrainRows;
    const std::int64_t begin = end;
    end += (w.rows + rows - 1) / rows;
    ranges[p] = {begin, end, rows, x->prepared};
  }
  return {ranges, products.size()};
}

void Ops::prepare(Rows* x, WeightFormat format) const {
  const MatmulKernel& kernel = kernels.matmul[static_cast<int>(format)];
  if (x->prepared_by == kernel.prepare) return;
  x->prepared = scratch.take<std::byte>(kernel.prepared_bytes(x->tokens, x->cols));
  x->prepared_by = kernel.prepare;
  parallel_for(x->tokens, kPrepareGrainTokens, [&](std::int64_t begin, std::int64_t end, int) {
    kernel.prepare(x->x, x->ld, x->cols, static_cast<std::int32_t>(begin),
                   static_cast<std::int32_t>(end), x->prepared);
  });
}

void Ops::throw_cancelled() {
  throw Error(ErrorCode::cancelled, "cancelled");
}

void rms_norm(const Kernels& kernels, const float* x, const float* w, std::int32_t n, float eps,
              float* y) {
  const auto count = static_cast<std::size_t>(n);
  const float mean = kernels.dot(x, x, count) / static_cast<float>(n);
  const float r = 1.0F / std::sqrt(mean + eps);
  for (std::size_t i = 0; i < count; ++i) y[i] = (x[i] * r) * w[i];
}

void rms_norm_rows(const Ops& ops, float* x, std::ptrdiff_t ld, const float* w, std::int32_t tokens,
                   std::int32_t n, float eps) {
  ops.parallel_for(tokens, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      rms_norm(ops.kernels, x + t * ld, w, n, eps, x + t * ld);
    }
  });
}

void check_finite(std::span<const float> values, const std::string& where) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  std::uint32_t found = 0;
  for (const float value : values) {  // without a way out: these are vector instructions
    found |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  }
  if (found == 0) return;
  throw Error(ErrorCode::model,
              where + " computed values that are not finite: its weights may be damaged");
}

std::int32_t argmax(const float* x, std::int32_t n) {
  return static_cast<std::int32_t>(std::max_element(x, x + n) - x);
}

}  // namespace penstock

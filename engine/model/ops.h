// SPDX-License-Identifier: Apache-2.0
//
// Kernels spread over the compute threads: what the layers are written in.
// One owner thread; every function throws Error(cancelled) once the sweep's stop flag is set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/stop_flag.h"
#include "engine/base/thread_pool.h"
#include "engine/model/scratch.h"
#include "kernels/kernels.h"

namespace penstock {

// A dimension as a count of memory.
inline std::size_t size(std::int32_t n) {
  return static_cast<std::size_t>(n);
}

// Rows of a layer's input that are multiplied with weights: x [tokens][cols], and its prepared form
// once a matmul has asked for it. Lives in a scratch frame.
struct Rows {
  const float* x;
  std::ptrdiff_t ld;  // floats from one row to the next
  std::int32_t tokens;
  std::int32_t cols;
  void* prepared = nullptr;
  decltype(MatmulKernel::prepare) prepared_by = nullptr;
};

// y[t * ldy + r] = sum over c of w[r][c] * x[t][c].
struct Matmul {
  const WeightMatrix& w;
  Rows* x;
  float* y;
  std::ptrdiff_t ldy;
};

struct Ops {
  const Kernels& kernels;
  ThreadPool& pool;
  Scratch& scratch;
  const StopFlag* stop = nullptr;  // of the running sweep

  // body(begin, end, worker) over [0, n), see ThreadPool.
  template <typename Body>
  void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) const {
    if (!pool.parallel_for(n, grain, stop, body)) throw_cancelled();
  }

  // Brings x into the form that a matmul with weights of `format` reads, unless it has it already.
  void prepare(Rows* x, WeightFormat format) const;

  void matmul(const WeightMatrix& w, Rows* x, float* y, std::ptrdiff_t ldy) const {
    const Matmul product{w, x, y, ldy};
    matmul({&product, 1});
  }
  // Independent products, at least one, computed together: threads wait for one another once, not
  // once for each. Those that share an x have formats with the same prepared form.
  void matmul(std::span<const Matmul> products) const {
    matmul(products, [](std::size_t, std::int32_t, std::int32_t) {});
  }
  // The same; epilogue(product, row_begin, row_end) runs on each range of rows of a product's w
  // right after its values were written, on the thread that wrote them.
  template <typename Epilogue>
  void matmul(std::span<const Matmul> products, const Epilogue& epilogue) const {
    for (const Matmul& product : products) prepare(product.x, product.w.format);
    const Scratch::Frame frame(scratch);
    const std::span<const RowRanges> ranges = split_rows(products);
    parallel_for(ranges.back().end, 1, [&](std::int64_t i, std::int64_t, int) {
      const auto at = std::ranges::upper_bound(ranges, i, {}, &RowRanges::end);
      const auto p = static_cast<std::size_t>(at - ranges.begin());
      const Matmul& product = products[p];
      const std::int64_t begin = (i - at->begin) * at->rows;
      const auto r0 = static_cast<std::int32_t>(begin);
      const auto r1 =
          static_cast<std::int32_t>(std::min<std::int64_t>(begin + at->rows, product.w.rows));
      kernels.matmul[static_cast<int>(product.w.format)].run(
          product.w, r0, r1, at->prepared, product.x->tokens, product.y + begin, product.ldy);
      epilogue(p, r0, r1);
    });
  }

  [[noreturn]] static void throw_cancelled();

 private:
  // The ranges [begin, end) of all those of a call that are of one product, `rows` of w in each.
  struct RowRanges {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t rows;
    const void* prepared;  // form of the product's x
  };
  std::span<const RowRanges> split_rows(std::span<const Matmul> products) const;
};

// y = x / sqrt(mean(x^2) + eps) * w (spec: model.md section 2, in fp32 throughout). y may be x.
void rms_norm(const Kernels& kernels, const float* x, const float* w, std::int32_t n, float eps,
              float* y);

// rms_norm of every row of x [tokens][n], row stride ld, in place and in parallel.
void rms_norm_rows(const Ops& ops, float* x, std::ptrdiff_t ld, const float* w, std::int32_t tokens,
                   std::int32_t n, float eps);

// Throws Error(model) when a value is not finite; `where` says what computed it.
void check_finite(std::span<const float> values, const std::string& where);

// The index of the largest value; the lowest index wins a tie. n >= 1.
std::int32_t argmax(const float* x, std::int32_t n);

}  // namespace penstock

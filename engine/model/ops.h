// SPDX-License-Identifier: Apache-2.0
//
// Kernels spread over the compute threads: what the layers are written in.
// One owner thread; every function throws Error(cancelled) once the sweep's stop flag is set.
#pragma once

#include <cstddef>
#include <cstdint>

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

  // y[t * ldy + r] = sum over c of w[r][c] * x[t][c].
  void matmul(const WeightMatrix& w, Rows* x, float* y, std::ptrdiff_t ldy) const {
    matmul(w, x, y, ldy, [](std::int32_t, std::int32_t) {});
  }
  // The same; epilogue(row_begin, row_end) runs on each range of rows of w right after its values
  // were written, on the thread that wrote them.
  template <typename Epilogue>
  void matmul(const WeightMatrix& w, Rows* x, float* y, std::ptrdiff_t ldy,
              const Epilogue& epilogue) const {
    prepare(x, w.format);
    const auto run = kernels.matmul[static_cast<int>(w.format)].run;
    parallel_for(w.rows, row_grain(w.rows, w.cols, x->tokens),
                 [&](std::int64_t begin, std::int64_t end, int) {
                   const auto r0 = static_cast<std::int32_t>(begin);
                   const auto r1 = static_cast<std::int32_t>(end);
                   run(w, r0, r1, x->prepared, x->tokens, y + begin, ldy);
                   epilogue(r0, r1);
                 });
  }

  // Rows of a matrix that one thread takes at a time: enough to be worth it, few enough to share
  // evenly and to end within milliseconds.
  std::int64_t row_grain(std::int32_t rows, std::int32_t cols, std::int32_t tokens) const;

  [[noreturn]] static void throw_cancelled();
};

// y = x / sqrt(mean(x^2) + eps) * w (spec: model.md section 2, in fp32 throughout). y may be x.
void rms_norm(const Kernels& kernels, const float* x, const float* w, std::int32_t n, float eps,
              float* y);

// rms_norm of every row of x [tokens][n], row stride ld, in place and in parallel.
void rms_norm_rows(const Ops& ops, float* x, std::ptrdiff_t ld, const float* w, std::int32_t tokens,
                   std::int32_t n, float eps);

// The index of the largest value; the lowest index wins a tie. n >= 1.
std::int32_t argmax(const float* x, std::int32_t n);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Memory for intermediate activations: a stack that grows when it must and is given back frame by
// frame. Values are not initialised. One owner thread.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/base/buffer.h"

namespace penstock {

class Scratch {
 public:
  explicit Scratch(std::size_t reserve_bytes);

  // What is taken while a frame lives goes back with it. Frames nest.
  class Frame {
   public:
    explicit Frame(Scratch& scratch)
        : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_;
    std::size_t used_;
  };

  // `count` values at 64-byte alignment.
  template <typename T>
  T* take(std::size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }
  float* floats(std::size_t count) { return take<float>(count); }

  std::size_t peak_bytes() const { return peak_; }  // the most that was taken at a time, so far

 private:
  std::byte* take_bytes(std::size_t bytes);

  std::vector<Buffer> blocks_;
  std::size_t block_ = 0;  // in use
  std::size_t used_ = 0;   // of that block
  std::size_t peak_ = 0;
};

}  // namespace penstock

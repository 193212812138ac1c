// SPDX-License-Identifier: Apache-2.0
//
// What stands in the tensors of a synthetic checkpoint. Matrices are cut from a pool of normal
// values at an offset of their own, scaled by a power of two: exponents spread as in trained
// weights, at the speed of a copy. Immutable after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/synthetic_tensors.h"

namespace penstock {

class SyntheticValues {
 public:
  // `skew` shapes the routing by the correction biases: the expert of popularity rank i = 1, 2, ...
  // is chosen in proportion to i^-skew; 0 is uniform. Which expert is popular differs by layer.
  SyntheticValues(const ModelConfig& config, std::uint64_t seed, double skew);

  // Bytes [begin, begin + out.size()) of a tensor. Both ends are multiples of the element.
  void fill(const SyntheticTensor& tensor, std::uint64_t begin, std::span<std::byte> out) const;

 private:
  std::vector<float> small_values(const SyntheticTensor& tensor) const;
  void fill_small(const SyntheticTensor& tensor, std::uint64_t begin,
                  std::span<std::byte> out) const;

  std::uint64_t seed_;
  std::int32_t heads_;
  std::vector<float> biases_;           // [experts], most popular first
  std::vector<std::uint16_t> normals_;  // bf16, standard deviation one
  std::vector<std::uint8_t> nibbles_;
  std::vector<std::uint8_t> scales_of_up_;
  std::vector<std::uint8_t> scales_of_down_;
};

// Biases [experts], most popular first, with which sigmoid(N(0, logit_std)) + bias chooses `top_k`
// experts of which rank i is chosen in proportion to i^-skew (at most nearly always). Mean zero.
std::vector<float> popularity_biases(std::int32_t experts, std::int32_t top_k, double skew,
                                     double logit_std);

}  // namespace penstock

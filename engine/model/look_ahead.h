// SPDX-License-Identifier: Apache-2.0
//
// Which experts the next layer may want, and whether it pays to read them before it says so. Its
// router sees the present layer's state; how often that is right differs from layer to layer and is
// measured. Whether the drive has time for it the read queue sees: reads ahead start when little
// else is in flight. One owner thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

class LookAhead {
 public:
  LookAhead(std::int32_t layers, bool enabled) : enabled_(enabled), layers_(layers_of(layers)) {}

  void begin_token() { ++tokens_; }

  // Whether to predict for a layer, be it to read or only to see how well it would go.
  bool wants(std::int32_t layer) const;
  // Notes what is predicted, best first, and returns those that are worth reading, none when too
  // few would be wanted.
  std::span<const std::int32_t> predict(std::int32_t layer, std::span<const std::int32_t> experts);
  // What the layer's router has chosen.
  void settle(std::int32_t layer, std::span<const std::int32_t> experts);

  double recall(std::int32_t layer) const;  // of what was predicted: share that was wanted

 private:
  struct Layer {
    std::vector<std::int32_t> predicted;
    double recall = 0.5;  // until measured
  };
  static std::vector<Layer> layers_of(std::int32_t count) {
    return std::vector<Layer>(static_cast<std::size_t>(count));
  }

  bool enabled_;
  std::vector<Layer> layers_;
  std::int64_t tokens_ = 0;
};

}  // namespace penstock

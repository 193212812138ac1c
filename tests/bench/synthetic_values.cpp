// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/synthetic_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <string_view>

namespace penstock {
namespace {

// Lengths of the pools: primes, so that no two rows of a matrix are the same.
constexpr std::size_t kNormals = 16'777'213;
constexpr std::size_t kNibbles = 33'554'393;
constexpr std::size_t kScales = 1'048'573;

// As on real weights: w1 and w3 have scales 112 to 122, w2 has 119 to 122 (spec: checkpoint.md).
struct ScaleRange {
  double mean;
  double std;
  int least;
  int most;
};
constexpr ScaleRange kUpScales = {119.0, 1.2, 112, 122};
constexpr ScaleRange kDownScales = {119.8, 0.7, 119, 122};

// Splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // In (0, 1].
  double uniform() { return static_cast<double>((next() >> 11U) + 1) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

std::uint64_t hash(std::string_view name, std::uint64_t seed) {
  std::uint64_t state = 14695981039346656037U ^ seed;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return Random(state).next();
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

std::vector<std::uint8_t> scale_pool(Random random, const ScaleRange& range) {
  std::vector<std::uint8_t> pool(kScales);
  for (std::uint8_t& scale : pool) {
    const auto drawn = static_cast<int>(std::lround(range.mean + range.std * random.normal()));
    scale = static_cast<std::uint8_t>(std::clamp(drawn, range.least, range.most));
  }
  return pool;
}

// out = the pool from `at` on, beginning anew at its end.
void copy_from_pool(const std::vector<std::uint8_t>& pool, std::uint64_t at,
                    std::span<std::byte> out) {
  while (!out.empty()) {
    at %= pool.size();
    const std::size_t n = std::min<std::size_t>(out.size(), pool.size() - at);
    std::memcpy(out.data(), pool.data() + at, n);
    out = out.subspan(n);
    at += n;
  }
}

// The same for bf16 values, times 2^log2_std. The pool has no zero, and no exponent near the ends.
void copy_scaled(const std::vector<std::uint16_t>& pool, std::uint64_t at, std::int32_t log2_std,
                 std::span<std::byte> out) {
  const auto exponents = static_cast<std::uint16_t>(log2_std * 128);
  while (!out.empty()) {
    at %= pool.size();
    const std::size_t n = std::min<std::size_t>(out.size() / 2, pool.size() - at);
    const std::uint16_t* const from = pool.data() + at;
    for (std::size_t i = 0; i < n; ++i) {
      const auto value = static_cast<std::uint16_t>(from[i] + exponents);
      std::memcpy(out.data() + 2 * i, &value, sizeof value);
    }
    out = out.subspan(2 * n);
    at += n;
  }
}

double normal_quantile(double probability) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < probability ? low : high) = middle;
  }
  return low;
}

// How often each rank is chosen: in proportion to rank^-skew, `top_k` in all, none always.
std::vector<double> popularity(std::int32_t experts, std::int32_t top_k, double skew) {
  constexpr double kMost = 0.98;
  const double most = std::max(kMost, static_cast<double>(top_k) / experts);
  std::vector<double> chosen(static_cast<std::size_t>(experts));
  double low = 0;
  double high = 1e6 * std::pow(experts, skew);
  for (int step = 0; step < 200; ++step) {
    const double factor = (low + high) / 2;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      chosen[i] = std::min(most, factor * std::pow(static_cast<double>(i + 1), -skew));
    }
    (std::accumulate(chosen.begin(), chosen.end(), 0.0) < top_k ? low : high) = factor;
  }
  return chosen;
}

}  // namespace

std::vector<float> popularity_biases(std::int32_t experts, std::int32_t top_k, double skew,
                                     double logit_std) {
  std::vector<float> biases(static_cast<std::size_t>(experts), 0.0F);
  if (skew == 0) return biases;
  std::vector<double> exact;
  for (const double chosen : popularity(experts, top_k, skew)) {
    // The score that an expert passes this often: what its bias must make good.
    exact.push_back(-1 / (1 + std::exp(-logit_std * normal_quantile(1 - chosen))));
  }
  const double mean = std::accumulate(exact.begin(), exact.end(), 0.0) / experts;
  std::transform(exact.begin(), exact.end(), biases.begin(),
                 [&](double bias) { return static_cast<float>(bias - mean); });
  return biases;
}

SyntheticValues::SyntheticValues(const ModelConfig& config, std::uint64_t seed, double skew)
    : seed_(seed),
      heads_(config.kda.heads),
      biases_(
          popularity_biases(config.moe.experts, config.moe.top_k, skew, router_logit_std(config))),
      normals_(kNormals),
      nibbles_(kNibbles),
      scales_of_up_(scale_pool(Random(hash("scales of up", seed)), kUpScales)),
      scales_of_down_(scale_pool(Random(hash("scales of down", seed)), kDownScales)) {
  Random random(hash("normals", seed));
  for (std::uint16_t& value : normals_) value = to_bf16(static_cast<float>(random.normal()));
  random = Random(hash("nibbles", seed));
  for (std::uint8_t& pair : nibbles_) pair = static_cast<std::uint8_t>(random.next() >> 56U);
}

void SyntheticValues::fill(const SyntheticTensor& tensor, std::uint64_t begin,
                           std::span<std::byte> out) const {
  const std::uint64_t place = hash(tensor.name, seed_) >> 1U;
  switch (tensor.fill) {
    case Fill::normal: return copy_scaled(normals_, place + begin / 2, tensor.log2_std, out);
    case Fill::nibbles: return copy_from_pool(nibbles_, place + begin, out);
    case Fill::scales_of_up: return copy_from_pool(scales_of_up_, place + begin, out);
    case Fill::scales_of_down: return copy_from_pool(scales_of_down_, place + begin, out);
    default: return fill_small(tensor, begin, out);
  }
}

std::vector<float> SyntheticValues::small_values(const SyntheticTensor& tensor) const {
  const std::uint64_t element = tensor.type == TensorType::f32 ? 4 : 2;
  std::vector<float> values(tensor.bytes() / element);
  Random random(hash(tensor.name, seed_));
  const auto fill_with = [&](const auto& draw) {
    for (float& value : values) value = static_cast<float>(draw());
  };
  switch (tensor.fill) {
    case Fill::norm: fill_with([&] { return 1 + kNormStd * random.normal(); }); break;
    case Fill::conv: fill_with([&] { return 0.5 * random.normal(); }); break;
    case Fill::a_log:  // as initialised: decay rates 1 to 16
      fill_with([&] { return std::log(1 + 15 * random.uniform()); });
      std::fill(values.begin() + std::min<std::ptrdiff_t>(heads_, std::ssize(values)), values.end(),
                0.0F);
      break;
    case Fill::dt_bias:  // softplus of it is 0.001 to 0.1
      fill_with([&] { return std::log(std::expm1(0.001 * std::pow(100, random.uniform()))); });
      break;
    default:
      values = biases_;
      for (std::size_t i = values.size(); i > 1; --i) {
        std::swap(values[i - 1], values[random.next() % i]);
      }
  }
  return values;
}

void SyntheticValues::fill_small(const SyntheticTensor& tensor, std::uint64_t begin,
                                 std::span<std::byte> out) const {
  const std::vector<float> values = small_values(tensor);
  if (tensor.type == TensorType::f32) {
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(values.data()) + begin, out.size());
    return;
  }
  for (std::size_t i = 0; i < out.size() / 2; ++i) {
    const std::uint16_t value = to_bf16(values[begin / 2 + i]);
    std::memcpy(out.data() + 2 * i, &value, sizeof value);
  }
}

}  // namespace penstock

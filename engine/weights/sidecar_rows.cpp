// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/sidecar_rows.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/weights/bf12.h"
#include "engine/weights/int8_rows.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "values are used as the files have them");

std::optional<ElementPlace> encode_bf12(const PublishedRows& published, std::uint32_t first_piece,
                                        SidecarRows& out) {
  const auto cols = static_cast<std::size_t>(published.cols);
  const std::size_t row_bytes = row_data_bytes(WeightFormat::bf12, published.cols);
  std::vector<std::uint16_t> row(cols);
  Bf12Pieces pieces{std::move(out.scales), first_piece};
  pieces.bytes.clear();
  std::int32_t bad = -1;
  std::size_t r = 0;
  for (; r < published.rows(); ++r) {
    std::memcpy(row.data(), published.bytes.data() + r * published.row_bytes(), cols * 2);
    bad = encode_bf12_row(row, out.data.data() + r * row_bytes, pieces);
    if (bad >= 0) break;
  }
  out.scales = std::move(pieces.bytes);
  if (bad < 0) return std::nullopt;
  return ElementPlace{r, static_cast<std::size_t>(bad)};
}

void load_floats(const PublishedRows& published, std::size_t r, std::vector<float>& out) {
  const std::byte* from = published.bytes.data() + r * published.row_bytes();
  if (published.type == TensorType::f32) {
    std::memcpy(out.data(), from, published.row_bytes());
    return;
  }
  for (std::size_t c = 0; c < out.size(); ++c) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, from + c * 2, sizeof upper);
    out[c] = std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16U);
  }
}

std::optional<ElementPlace> encode_int8(const PublishedRows& published, SidecarRows& out) {
  const auto cols = static_cast<std::size_t>(published.cols);
  out.scales.resize(published.rows() * sizeof(float));
  std::vector<float> row(cols);
  for (std::size_t r = 0; r < published.rows(); ++r) {
    load_floats(published, r, row);
    auto* to = reinterpret_cast<std::int8_t*>(out.data.data() + r * cols);
    const float scale = quantise_int8_row(row, to);
    if (std::isnan(scale)) {
      std::size_t c = 0;
      while (std::isfinite(row[c])) ++c;
      return ElementPlace{r, c};
    }
    std::memcpy(out.scales.data() + r * sizeof scale, &scale, sizeof scale);
  }
  return std::nullopt;
}

}  // namespace

std::optional<ElementPlace> encode_rows(WeightFormat format, const PublishedRows& published,
                                        std::uint32_t first_piece, SidecarRows& out) {
  assert(format == WeightFormat::int8_rows || published.type == TensorType::bf16);
  out.data.resize(published.rows() * row_data_bytes(format, published.cols));
  if (format == WeightFormat::bf12) return encode_bf12(published, first_piece, out);
  return encode_int8(published, out);
}

std::uint64_t hash_bytes(std::span<const unsigned char> bytes, std::uint64_t seed) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15U;  // odd: a step loses nothing
  std::uint64_t hash = seed ^ bytes.size() * kFactor;
  const auto take = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32U;
  };
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    take(word);
  }
  for (; i < bytes.size(); ++i) take(bytes[i]);
  return hash;
}

std::uint64_t published_hash(WeightFormat format, const PublishedRows& published,
                             const SidecarRows& encoded) {
  if (format == WeightFormat::int8_rows) return decoded_hash(format, encoded, published.cols, 0);
  std::uint64_t hash = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(published.bytes.data());
  for (std::size_t r = 0; r < published.rows(); ++r) {
    hash = hash_bytes({bytes + r * published.row_bytes(), published.row_bytes()}, hash);
  }
  return hash;
}

std::uint64_t decoded_hash(WeightFormat format, const SidecarRows& encoded, std::int32_t cols,
                           std::uint32_t first_piece) {
  if (format == WeightFormat::int8_rows) {
    return hash_bytes(encoded.scales, hash_bytes(encoded.data, 0));
  }
  const std::size_t rows = encoded.data.size() / row_data_bytes(format, cols);
  WeightMatrix view{encoded.data.data(), encoded.scales.data(), static_cast<std::int32_t>(rows),
                    cols, format};
  view.first_piece = first_piece;
  view.pieces = static_cast<std::uint32_t>(encoded.scales.size() / kBf12PieceBytes);
  std::vector<std::uint16_t> row(static_cast<std::size_t>(cols));
  std::uint64_t hash = 0;
  for (std::int32_t r = 0; r < view.rows; ++r) {
    decode_bf12_row(view, r, row);
    hash = hash_bytes({reinterpret_cast<const unsigned char*>(row.data()), row.size() * 2}, hash);
  }
  return hash;
}

}  // namespace penstock

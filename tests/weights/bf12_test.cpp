// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/bf12.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/guard_buffer.h"

namespace penstock::test {
namespace {

constexpr std::uint16_t bf16(std::uint32_t sign, std::uint32_t exponent, std::uint32_t mantissa) {
  return static_cast<std::uint16_t>(sign << 15 | exponent << 7 | mantissa);
}

struct Encoded {
  GuardBuffer data;
  GuardBuffer scales;
  WeightMatrix view;
};

// Rows of `cols` values, in one matrix whose buffers end at guard pages.
Encoded encode(std::span<const std::uint16_t> values, std::int32_t cols) {
  const auto width = static_cast<std::size_t>(cols);
  const std::size_t row_bytes = row_data_bytes(WeightFormat::bf12, cols);
  const std::size_t rows = values.size() / width;
  Encoded e{GuardBuffer(rows * row_bytes), {}, {}};
  Bf12Pieces pieces;
  for (std::size_t r = 0; r < rows; ++r) {
    EXPECT_EQ(
        encode_bf12_row(values.subspan(r * width, width), e.data.data() + r * row_bytes, pieces),
        -1);
  }
  e.scales = GuardBuffer(pieces.bytes.size());
  std::copy(pieces.bytes.begin(), pieces.bytes.end(), e.scales.data());
  e.view = {e.data.data(), e.scales.data(), static_cast<std::int32_t>(rows), cols,
            WeightFormat::bf12};
  e.view.pieces = static_cast<std::uint32_t>(pieces.bytes.size() / kBf12PieceBytes);
  return e;
}

std::vector<std::uint16_t> decode(const WeightMatrix& w) {
  const auto cols = static_cast<std::size_t>(w.cols);
  std::vector<std::uint16_t> values(static_cast<std::size_t>(w.rows) * cols);
  for (std::int32_t r = 0; r < w.rows; ++r) {
    decode_bf12_row(w, r, std::span(values).subspan(static_cast<std::size_t>(r) * cols, cols));
  }
  return values;
}

TEST(Bf12, ReturnsEveryFiniteValueInAnyShape) {
  std::minstd_rand random(1);
  for (const std::int32_t cols : {1, 31, 32, 33, 64, 95, 96, 97, 127, 128, 129, 300, 1024}) {
    for (const std::uint32_t spread : {1U, 13U, 15U, 17U, 254U}) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(cols) * 9);
      for (std::uint16_t& value : values) {
        const auto bits = static_cast<std::uint32_t>(random() * 2);
        const std::uint32_t exponent = bits % 16 == 0 ? 0 : 254 - bits / 16 % spread;
        value = bf16(bits >> 31, exponent, bits >> 20 & 127);
      }
      EXPECT_EQ(decode(encode(values, cols).view), values) << cols << " columns, " << spread;
    }
  }
}

TEST(Bf12, IsRawOnlyWhereExponentsSpanMoreThan15) {
  for (const std::uint32_t largest : {16U, 100U, 254U}) {
    std::vector<std::uint16_t> values(kBf12BlockCols, 0);
    values[3] = bf16(1, largest, 5);
    values[77] = bf16(0, largest - 14, 99);
    EXPECT_EQ(encode(values, kBf12BlockCols).view.pieces, 0U) << largest;
    values[78] = bf16(0, largest - 15, 99);
    const Encoded raw = encode(values, kBf12BlockCols);
    EXPECT_EQ(raw.view.pieces, 2U) << largest;
    EXPECT_EQ(raw.data.data()[0], kBf12Raw);
    EXPECT_EQ(decode(raw.view), values);
  }
}

TEST(Bf12, KeepsSmallExponentsApartFromZero) {
  for (std::uint32_t largest = 1; largest <= 16; ++largest) {
    std::vector<std::uint16_t> values(kBf12BlockCols);
    for (std::uint32_t i = 0; i < kBf12BlockCols; ++i)
      values[i] = bf16(i % 2, i % (largest + 1), i % 128);
    EXPECT_EQ(decode(encode(values, kBf12BlockCols).view), values) << largest;
  }
}

TEST(Bf12, SaysWhichColumnIsNotFinite) {
  for (const std::uint16_t bad : {bf16(0, 255, 0), bf16(1, 255, 0), bf16(0, 255, 64)}) {
    for (const std::size_t column : {0U, 127U, 128U, 299U}) {
      std::vector<std::uint16_t> row(300, bf16(0, 120, 1));
      row[column] = bad;
      std::vector<unsigned char> out(row_data_bytes(WeightFormat::bf12, 300));
      Bf12Pieces pieces;
      EXPECT_EQ(encode_bf12_row(row, out.data(), pieces), static_cast<std::int32_t>(column));
    }
  }
}

TEST(Bf12, EncodesAndDecodesInParts) {
  std::vector<std::uint16_t> values(std::size_t{3} * 288, bf16(0, 100, 3));
  for (std::size_t i = 0; i < values.size(); i += 100) values[i] = bf16(0, 200, 9);
  const Encoded whole = encode(values, 288);
  const std::size_t row_bytes = row_data_bytes(WeightFormat::bf12, 288);
  std::uint32_t next = 0;
  for (std::int32_t r = 0; r < 3; ++r) {
    const auto row = std::span(values).subspan(static_cast<std::size_t>(r) * 288, 288);
    std::vector<unsigned char> out(row_bytes);
    Bf12Pieces pieces{{}, next};
    encode_bf12_row(row, out.data(), pieces);
    const auto count = static_cast<std::uint32_t>(pieces.bytes.size() / kBf12PieceBytes);
    const unsigned char* in_whole = whole.data.data() + static_cast<std::size_t>(r) * row_bytes;
    EXPECT_EQ(std::memcmp(out.data(), in_whole, row_bytes), 0);
    EXPECT_EQ(bf12_row_pieces(in_whole, 288).first, next);
    EXPECT_EQ(bf12_row_pieces(in_whole, 288).count, count);
    WeightMatrix part = whole.view;
    part.scales = pieces.bytes.data();
    part.first_piece = next;
    part.pieces = count;
    std::vector<std::uint16_t> back(288);
    decode_bf12_row(part, r, back);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), row.begin()));
    next += count;
  }
  EXPECT_EQ(next, whole.view.pieces);
}

TEST(Bf12, ReadsAMissingPieceAsNan) {
  std::vector<std::uint16_t> values(kBf12BlockCols, bf16(0, 100, 3));
  values[0] = bf16(0, 200, 9);
  Encoded e = encode(values, kBf12BlockCols);
  e.view.pieces = 1;
  const std::vector<std::uint16_t> got = decode(e.view);
  for (std::size_t c = 0; c < got.size(); ++c) EXPECT_EQ(got[c], c < 96 ? values[c] : 0x7FC0) << c;
}

}  // namespace
}  // namespace penstock::test

// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/weights/bf12.h"
#include "tests/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

using Matmul = TableTest;
INSTANTIATE_TEST_SUITE_P(Each, Matmul, testing::ValuesIn(all_tables()), table_name);

constexpr std::int32_t kRows = 19;  // no multiple of any tile

std::span<const float> first_tokens(const GuardBuffer& x, std::int32_t tokens, std::int32_t cols) {
  return x.as<float>().first(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols));
}

std::size_t elements(std::int32_t tokens, std::int32_t cols) {
  return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols);
}

// |computed - exact| <= g * sum |w x|, g = steps of the longest chain * 2^-24 (slightly more for
// the second-order terms): two per block of 32 columns, four of the tree, one row scale.
double tolerance(const WeightMatrix& w, std::int32_t r, const float* x) {
  double magnitude = 0;
  for (std::int32_t c = 0; c < w.cols; ++c) {
    magnitude += std::fabs(weight_value(w, r, c) * row_scale_value(w, r) * x[c]);
  }
  const int steps = 2 * ((w.cols + 31) / 32) + 4 + 1;
  return 1.01 * steps * 0x1p-24 * magnitude + steps * 0x1p-149;
}

double exact_product(const WeightMatrix& w, std::int32_t r, const float* x) {
  double sum = 0;
  for (std::int32_t c = 0; c < w.cols; ++c) sum += weight_value(w, r, c) * x[c];
  return sum * row_scale_value(w, r);
}

TEST_P(Matmul, StaysWithinTheErrorBound) {
  constexpr std::int32_t kTokens = 5;
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : kCols) {
      if (!allows_cols(format, cols)) continue;
      SCOPED_TRACE(testing::Message() << format_name(format) << " cols " << cols);
      const TestMatrix m = random_matrix(format, kRows, cols, 1);
      const GuardBuffer x = random_floats(elements(kTokens, cols), 2);
      const std::vector<float> y = multiply(table(), m.view, 0, kRows, x.as<float>(), kTokens);
      for (std::int32_t t = 0; t < kTokens; ++t) {
        const float* xt = floats(x) + elements(t, cols);
        for (std::int32_t r = 0; r < kRows; ++r) {
          EXPECT_NEAR(y[static_cast<std::size_t>(t * kRows + r)], exact_product(m.view, r, xt),
                      tolerance(m.view, r, xt));
        }
      }
    }
  }
}

TEST_P(Matmul, HasTheBitsOfScalar) {
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : kCols) {
      if (!allows_cols(format, cols)) continue;
      const TestMatrix m = random_matrix(format, kRows, cols, 3);
      for (const std::int32_t tokens : {1, 2, 3, 4, 7, 50}) {
        SCOPED_TRACE(testing::Message()
                     << format_name(format) << " cols " << cols << " tokens " << tokens);
        const GuardBuffer x = random_floats(elements(tokens, cols), 4);
        EXPECT_TRUE(same_bits(multiply(table(), m.view, 0, kRows, x.as<float>(), tokens),
                              multiply(scalar(), m.view, 0, kRows, x.as<float>(), tokens)));
      }
    }
  }
}

TEST_P(Matmul, GivesATokenTheSameBitsInAnyCompany) {
  constexpr std::int32_t kAllTokens = 513;
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : {96, 1056}) {
      const TestMatrix m = random_matrix(format, kRows, cols, 5);
      const GuardBuffer x = random_floats(elements(kAllTokens, cols), 6);
      std::vector<float> alone;
      for (std::int32_t t = 0; t < kAllTokens; ++t) {
        const auto xt = x.as<float>().subspan(elements(t, cols), static_cast<std::size_t>(cols));
        const std::vector<float> y = multiply(table(), m.view, 0, kRows, xt, 1);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (const std::int32_t tokens : {2, 3, 8, 17, 64, kAllTokens}) {
        SCOPED_TRACE(testing::Message()
                     << format_name(format) << " cols " << cols << " tokens " << tokens);
        const std::span<const float> want(alone.data(), elements(tokens, kRows));
        EXPECT_TRUE(same_bits(
            multiply(table(), m.view, 0, kRows, first_tokens(x, tokens, cols), tokens), want));
      }
    }
  }
}

TEST_P(Matmul, GivesARowTheSameBitsInAnyRange) {
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t tokens : {1, 5}) {
      constexpr std::int32_t kWidth = 96;
      const TestMatrix m = random_matrix(format, kRows, kWidth, 7);
      const GuardBuffer x = random_floats(elements(tokens, kWidth), 8);
      const std::vector<float> all = multiply(table(), m.view, 0, kRows, x.as<float>(), tokens);
      for (std::int32_t begin = 0; begin < kRows; ++begin) {
        for (std::int32_t end = begin + 1; end <= kRows; ++end) {
          SCOPED_TRACE(testing::Message()
                       << format_name(format) << " rows " << begin << " to " << end);
          std::vector<float> want;
          for (std::ptrdiff_t t = 0; t < tokens; ++t) {
            want.insert(want.end(), all.begin() + t * kRows + begin, all.begin() + t * kRows + end);
          }
          ASSERT_TRUE(
              same_bits(multiply(table(), m.view, begin, end, x.as<float>(), tokens), want));
        }
      }
    }
  }
}

TEST_P(Matmul, TakesWeightsAtAnyAddress) {
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : {32, 96, 100, 1000}) {
      if (!allows_cols(format, cols)) continue;
      for (const std::int32_t tokens : {1, 4}) {
        const GuardBuffer x = random_floats(elements(tokens, cols), 9);
        const TestMatrix aligned = random_matrix(format, kRows, cols, 10);
        const std::vector<float> want =
            multiply(table(), aligned.view, 0, kRows, x.as<float>(), tokens);
        for (const std::size_t slack : {1U, 2U, 3U, 7U}) {
          SCOPED_TRACE(testing::Message()
                       << format_name(format) << " cols " << cols << " slack " << slack);
          const TestMatrix m = random_matrix(format, kRows, cols, 10, slack);
          EXPECT_TRUE(same_bits(multiply(table(), m.view, 0, kRows, x.as<float>(), tokens), want));
        }
      }
    }
  }
}

TEST_P(Matmul, EqualsF32OfTheDequantisedMatrix) {
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : kCols) {
      if (!allows_cols(format, cols)) continue;
      const TestMatrix m = random_matrix(format, kRows, cols, 11);
      const TestMatrix plain = dequantised(m.view);
      for (const std::int32_t tokens : {1, 6}) {
        SCOPED_TRACE(testing::Message()
                     << format_name(format) << " cols " << cols << " tokens " << tokens);
        const GuardBuffer x = random_floats(elements(tokens, cols), 12);
        std::vector<float> want = multiply(table(), plain.view, 0, kRows, x.as<float>(), tokens);
        for (std::size_t i = 0; i < want.size(); ++i) {
          const auto row = static_cast<std::int32_t>(i) % kRows;
          if (format == WeightFormat::int8_rows) {
            want[i] *= static_cast<float>(row_scale_value(m.view, row));
          }
        }
        EXPECT_TRUE(same_bits(multiply(table(), m.view, 0, kRows, x.as<float>(), tokens), want));
      }
    }
  }
}

// The rows [begin, end) of a bf12 matrix as one of their own, with their pieces only.
WeightMatrix rows_of(const WeightMatrix& w, std::int32_t begin, std::int32_t end) {
  const std::size_t row_bytes = row_data_bytes(w.format, w.cols);
  WeightMatrix part = w;
  part.data += static_cast<std::size_t>(begin) * row_bytes;
  part.rows = end - begin;
  part.pieces = 0;
  for (std::int32_t r = 0; r < part.rows; ++r) {
    const Bf12PieceRange range =
        bf12_row_pieces(part.data + static_cast<std::size_t>(r) * row_bytes, w.cols);
    if (part.pieces == 0) part.first_piece = range.first;
    part.pieces += range.count;
  }
  part.scales += static_cast<std::size_t>(part.first_piece) * kBf12PieceBytes;
  EXPECT_GT(part.first_piece, 0U);
  EXPECT_GT(part.pieces, 0U);
  return part;
}

TEST_P(Matmul, GivesBf12TheBitsOfBf16) {
  for (const std::int32_t cols : {100, 192, 384, 1056}) {
    const TestMatrix m = random_matrix(WeightFormat::bf12, kRows, cols, 25);
    const TestMatrix bf16 = decoded_bf16(m.view);
    for (const std::int32_t tokens : {1, 2, 3, 8, 17, 64, 513}) {
      SCOPED_TRACE(testing::Message() << "cols " << cols << " tokens " << tokens);
      const GuardBuffer x = random_floats(elements(tokens, cols), 26);
      EXPECT_TRUE(same_bits(multiply(table(), m.view, 0, kRows, x.as<float>(), tokens),
                            multiply(table(), bf16.view, 0, kRows, x.as<float>(), tokens)));
      EXPECT_TRUE(same_bits(multiply(table(), rows_of(m.view, 5, 18), 1, 13, x.as<float>(), tokens),
                            multiply(table(), bf16.view, 6, 18, x.as<float>(), tokens)));
    }
  }
}

// Every finite bf16, in blocks of like and of unlike exponents, read out through unit vectors.
TEST_P(Matmul, DecodesEveryBf12Value) {
  constexpr std::int32_t kRowsOfAll = 65536 / kBf12BlockCols;
  for (const std::uint32_t step : {1U, 509U}) {
    const GuardBuffer all(std::size_t{65536} * 2);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i * step);
      all.as<std::uint16_t>()[i] = (bits & 0x7F80U) == 0x7F80U ? 0 : bits;
    }
    const TestMatrix m =
        encoded_bf12({all.data(), nullptr, kRowsOfAll, kBf12BlockCols, WeightFormat::bf16});
    EXPECT_EQ(m.view.pieces != 0, step != 1);
    const GuardBuffer x = zero_floats(elements(kBf12BlockCols, kBf12BlockCols));
    for (std::size_t c = 0; c < kBf12BlockCols; ++c) x.as<float>()[c * kBf12BlockCols + c] = 1;
    const std::vector<float> y =
        multiply(table(), m.view, 0, kRowsOfAll, x.as<float>(), kBf12BlockCols);
    for (std::size_t i = 0; i < 65536; ++i) {
      const float want =
          std::bit_cast<float>(static_cast<std::uint32_t>(all.as<std::uint16_t>()[i]) << 16);
      ASSERT_EQ(y[i % kBf12BlockCols * kRowsOfAll + i / kBf12BlockCols], want) << "bits of " << i;
    }
  }
}

// A damaged index must neither crash nor look like a number.
TEST_P(Matmul, ReadsAMissingBf12PieceAsNan) {
  TestMatrix m = random_matrix(WeightFormat::bf12, 1, kBf12BlockCols, 27);
  m.data.data()[0] = kBf12Raw;
  const GuardBuffer x = random_floats(kBf12BlockCols, 28, 0.5F, 1);
  for (const std::uint32_t index : {0U, 7U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    std::memcpy(m.data.data() + 1, &index, sizeof index);
    m.view.pieces = index % 16;  // one more would do for some of the block
    EXPECT_TRUE(std::isnan(multiply(table(), m.view, 0, 1, x.as<float>(), 1)[0])) << index;
    m.view.first_piece = index + 5;
    EXPECT_TRUE(std::isnan(multiply(table(), m.view, 0, 1, x.as<float>(), 1)[0])) << index;
    m.view.first_piece = 0;
  }
}

// Every code under every scale byte, read out through unit vectors.
TEST_P(Matmul, DecodesEveryMxfp4Value) {
  constexpr std::int32_t kScales = 253;  // above it the largest codes leave the range of fp32
  TestMatrix m = random_matrix(WeightFormat::mxfp4, kScales, kMxfp4BlockCols, 13);
  for (std::size_t r = 0; r < kScales; ++r) m.scales.data()[r] = static_cast<unsigned char>(r);
  for (std::size_t r = 0; r < kScales; ++r) {
    for (std::size_t j = 0; j < 16; ++j) {
      m.data.data()[r * 16 + j] = static_cast<unsigned char>(j | (15 - j) << 4);
    }
  }
  const GuardBuffer x = zero_floats(elements(kMxfp4BlockCols, kMxfp4BlockCols));
  for (std::size_t c = 0; c < kMxfp4BlockCols; ++c) x.as<float>()[c * kMxfp4BlockCols + c] = 1;
  const std::vector<float> y =
      multiply(table(), m.view, 0, kScales, x.as<float>(), kMxfp4BlockCols);
  for (std::int32_t r = 0; r < kScales; ++r) {
    for (std::int32_t c = 0; c < kMxfp4BlockCols; ++c) {
      EXPECT_EQ(static_cast<double>(y[static_cast<std::size_t>(c * kScales + r)]),
                weight_value(m.view, r, c))
          << "scale " << r << " column " << c;
    }
  }
}

TEST_P(Matmul, WritesItsRowsOnly) {
  constexpr std::int32_t kWidth = 32;
  constexpr std::int32_t kStride = kRows + 5;
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t tokens : {1, 3, 9}) {
      const TestMatrix m = random_matrix(format, kRows, kWidth, 14);
      const GuardBuffer x = random_floats(elements(tokens, kWidth), 15);
      const MatmulKernel& kernel = table().matmul[static_cast<int>(format)];
      const GuardBuffer prepared(kernel.prepared_bytes(tokens, kWidth));
      kernel.prepare(floats(x), kWidth, kWidth, 0, tokens, prepared.data());
      std::vector<float> y(elements(tokens, kStride), 77.0F);
      kernel.run(m.view, 0, kRows, prepared.data(), tokens, y.data(), kStride);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool row = static_cast<std::int32_t>(i) % kStride < kRows;
        EXPECT_EQ(y[i] != 77.0F, row) << format_name(format) << " value " << i;
      }
    }
  }
}

TEST_P(Matmul, PreparesTokensInPieces) {
  constexpr std::int32_t kTokens = 6;
  constexpr std::int32_t kWidth = 100;
  constexpr ptrdiff_t kStride = 111;
  const GuardBuffer x = random_floats((kTokens - 1) * kStride + kWidth, 16);
  for (const MatmulKernel& kernel : table().matmul) {
    const GuardBuffer whole(kernel.prepared_bytes(kTokens, kWidth));
    const GuardBuffer pieces(kernel.prepared_bytes(kTokens, kWidth));
    kernel.prepare(floats(x), kStride, kWidth, 0, kTokens, whole.data());
    kernel.prepare(floats(x), kStride, kWidth, 4, kTokens, pieces.data());
    kernel.prepare(floats(x), kStride, kWidth, 0, 4, pieces.data());
    EXPECT_TRUE(same_bits(pieces.as<float>(), whole.as<float>()));
  }
}

// y = W^T x over some rows, by one table.
std::vector<float> multiply_t(const Kernels& table, const WeightMatrix& w, std::int32_t row_begin,
                              std::int32_t row_end, const GuardBuffer& x, std::int32_t tokens) {
  const GuardBuffer y = zero_floats(elements(tokens, w.cols));
  table.matmul_t[static_cast<int>(w.format)](w, row_begin, row_end, floats(x), row_end - row_begin,
                                             tokens, floats(y), w.cols);
  return {y.as<float>().begin(), y.as<float>().end()};
}

TEST_P(Matmul, TransposedStaysWithinTheErrorBound) {
  constexpr std::int32_t kTokens = 5;
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : kCols) {
      if (!allows_cols(format, cols)) continue;
      SCOPED_TRACE(testing::Message() << format_name(format) << " cols " << cols);
      const TestMatrix m = random_matrix(format, kRows, cols, 17);
      const GuardBuffer x = random_floats(elements(kTokens, kRows), 18);
      const std::vector<float> y = multiply_t(table(), m.view, 0, kRows, x, kTokens);
      for (std::int32_t i = 0; i < kTokens * cols; ++i) {
        double sum = 0;
        double magnitude = 0;
        for (std::int32_t r = 0; r < kRows; ++r) {
          const double term = weight_value(m.view, r, i % cols) * row_scale_value(m.view, r) *
                              floats(x)[i / cols * kRows + r];
          sum += term;
          magnitude += std::fabs(term);
        }
        // A chain of one fma per row, and the product with the row scale.
        EXPECT_NEAR(y[static_cast<std::size_t>(i)], sum,
                    1.01 * (kRows + 1) * 0x1p-24 * magnitude + kRows * 0x1p-149);
      }
    }
  }
}

TEST_P(Matmul, TransposedHasTheBitsOfScalar) {
  for (const WeightFormat format : kFormats) {
    for (const std::int32_t cols : kCols) {
      if (!allows_cols(format, cols)) continue;
      for (const std::size_t slack : {0U, 1U, 3U}) {
        const TestMatrix m = random_matrix(format, kRows, cols, 19, slack);
        for (const std::int32_t tokens : {1, 2, 4, 7}) {
          SCOPED_TRACE(testing::Message()
                       << format_name(format) << " cols " << cols << " tokens " << tokens);
          const GuardBuffer x = random_floats(elements(tokens, kRows), 20);
          EXPECT_TRUE(same_bits(multiply_t(table(), m.view, 0, kRows, x, tokens),
                                multiply_t(scalar(), m.view, 0, kRows, x, tokens)));
        }
      }
    }
  }
}

TEST_P(Matmul, TransposedSumsTheRowsOfItsRange) {
  constexpr std::int32_t kBegin = 3;
  constexpr std::int32_t kEnd = 11;
  for (const WeightFormat format : kFormats) {
    const TestMatrix m = random_matrix(format, kRows, 96, 21);
    const TestMatrix plain = dequantised(m.view);
    const GuardBuffer x = random_floats(kEnd - kBegin, 22);
    std::vector<float> want(96, 0.0F);
    for (std::int32_t r = kBegin; r < kEnd; ++r) {
      const float xr = floats(x)[r - kBegin] * static_cast<float>(row_scale_value(m.view, r));
      for (std::size_t c = 0; c < want.size(); ++c) {
        want[c] = std::fma(floats(plain.data)[static_cast<std::size_t>(r) * 96 + c], xr, want[c]);
      }
    }
    EXPECT_TRUE(same_bits(multiply_t(table(), m.view, kBegin, kEnd, x, 1), want))
        << format_name(format);
  }
}

TEST_P(Matmul, TransposedGivesATokenTheSameBitsInAnyCompany) {
  constexpr std::int32_t kWidth = 544;
  constexpr std::int32_t kAllTokens = 64;
  for (const WeightFormat format : kFormats) {
    const TestMatrix m = random_matrix(format, kRows, kWidth, 23);
    const GuardBuffer x = random_floats(elements(kAllTokens, kRows), 24);
    const std::vector<float> all = multiply_t(table(), m.view, 0, kRows, x, kAllTokens);
    for (const std::int32_t tokens : {1, 2, 3, 8, 17}) {
      EXPECT_TRUE(same_bits(multiply_t(table(), m.view, 0, kRows, x, tokens),
                            std::span(all).first(elements(tokens, kWidth))))
          << format_name(format) << " tokens " << tokens;
    }
  }
}

}  // namespace
}  // namespace penstock::test

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/bf12.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored as they are in memory");

constexpr std::uint32_t kExponent = 0x7F80;
constexpr std::int32_t kCodes = 15;  // above code 0, which is exponent 0
constexpr std::uint16_t kNan = 0x7FC0;

using Block = std::array<std::uint16_t, kBf12BlockCols>;  // zeros past the columns

std::uint16_t swap_bytes(std::uint32_t word) {
  return static_cast<std::uint16_t>(word >> 8 | word << 8);
}

std::uint16_t load_word(const unsigned char* p) {
  std::uint16_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// The exponents of a block, zeros and subnormals (field 0) aside.
struct Span {
  std::int32_t smallest = 255;
  std::int32_t largest = 0;
};

Span exponents_of(const Block& block) {
  Span span;
  for (const std::uint16_t bits : block) {
    const std::int32_t exponent = (bits & kExponent) >> 7U;
    span.largest = std::max(span.largest, exponent);
    span.smallest = std::min(span.smallest, exponent == 0 ? 255 : exponent);
  }
  return span;
}

std::uint32_t code_of(std::uint16_t bits, std::int32_t base) {
  const std::int32_t exponent = (bits & kExponent) >> 7U;
  return exponent == 0 ? 0 : static_cast<std::uint32_t>(exponent - base + kCodes);
}

// A group of two halves of `half` columns.
void encode_group(const std::uint16_t* columns, std::size_t half, std::int32_t base,
                  unsigned char* out) {
  unsigned char* words = out + half;
  for (std::size_t i = 0; i < half; ++i) {
    const std::uint16_t a = columns[i];
    const std::uint16_t b = columns[half + i];
    out[i] = static_cast<unsigned char>(code_of(a, base) | code_of(b, base) << 4U);
    const auto word = static_cast<std::uint16_t>((a & 0x807FU) | swap_bytes(b & 0x807FU));
    std::memcpy(words + i * 2, &word, sizeof word);
  }
}

void encode_raw(const Block& block, std::int32_t count, unsigned char* out, Bf12Pieces& pieces) {
  const auto index =
      pieces.first + static_cast<std::uint32_t>(pieces.bytes.size() / kBf12PieceBytes);
  const auto in_place = static_cast<std::size_t>(bf12_pieces_in_place(count)) * kBf12PieceBytes;
  const auto* bytes = reinterpret_cast<const unsigned char*>(block.data());
  const std::size_t all = static_cast<std::size_t>(count) * kBf12PieceBytes;
  std::memcpy(out, &index, sizeof index);
  std::memcpy(out + sizeof index, bytes, in_place);
  std::fill(out + sizeof index + in_place, out + count * 48, std::uint8_t{0});
  pieces.bytes.insert(pieces.bytes.end(), bytes + in_place, bytes + all);
}

void encode_block(const Block& block, Span span, std::int32_t count, unsigned char* out,
                  Bf12Pieces& pieces) {
  if (span.largest - span.smallest >= kCodes) {
    *out = kBf12Raw;
    return encode_raw(block, count, out + 1, pieces);
  }
  *out = static_cast<unsigned char>(span.largest);
  const std::uint16_t* columns = block.data();
  for (++out; count > 0; count -= 2, columns += 64, out += 96) {
    // Written out, so that the compiler sees the number of steps.
    if (count == 1) {
      encode_group(columns, 16, span.largest, out);
    } else {
      encode_group(columns, 32, span.largest, out);
    }
  }
}

std::uint32_t raw_index(const unsigned char* p) {
  std::uint32_t index = 0;
  std::memcpy(&index, p, sizeof index);
  return index;
}

void decode_raw(const WeightMatrix& w, const unsigned char* p, std::int32_t count, Block& block) {
  const std::uint32_t first = raw_index(p);
  const std::int32_t in_place = bf12_pieces_in_place(count);
  for (std::int32_t piece = 0; piece < count; ++piece) {
    std::uint16_t* to = block.data() + static_cast<std::ptrdiff_t>(piece) * kBf12PieceCols;
    const std::int64_t index = std::int64_t{first} - w.first_piece + piece - in_place;
    if (piece < in_place) {
      std::memcpy(to, p + sizeof first + piece * kBf12PieceBytes, kBf12PieceBytes);
    } else if (index >= 0 && index < std::int64_t{w.pieces}) {
      std::memcpy(to, w.scales + index * kBf12PieceBytes, kBf12PieceBytes);
    } else {
      std::fill(to, to + kBf12PieceCols, kNan);
    }
  }
}

std::uint16_t decode_word(std::uint32_t sign_and_mantissa, std::uint32_t code, std::uint32_t base) {
  const std::uint32_t exponent = code == 0 ? 0 : base - kCodes + code;
  return static_cast<std::uint16_t>((sign_and_mantissa & 0x807FU) | exponent << 7U);
}

void decode_block(const WeightMatrix& w, const unsigned char* p, std::int32_t count, Block& block) {
  const std::uint32_t base = *p++;
  if (base == kBf12Raw) return decode_raw(w, p, count, block);
  std::uint16_t* columns = block.data();
  for (; count > 0; count -= 2, columns += 64, p += 96) {
    const std::size_t half = count == 1 ? 16 : 32;
    for (std::size_t i = 0; i < half; ++i) {
      const std::uint16_t word = load_word(p + half + i * 2);
      columns[i] = decode_word(word, p[i] & 15U, base);
      columns[half + i] = decode_word(swap_bytes(word), p[i] >> 4U, base);
    }
  }
}

// Calls use(first column, columns, pieces) for each block of a row.
template <class Use>
void for_blocks(std::size_t cols, const Use& use) {
  for (std::size_t c = 0; c < cols; c += kBf12BlockCols) {
    const std::size_t columns = std::min<std::size_t>(cols - c, kBf12BlockCols);
    use(c, columns, static_cast<std::int32_t>((columns + kBf12PieceCols - 1) / kBf12PieceCols));
  }
}

}  // namespace

std::int32_t encode_bf12_row(std::span<const std::uint16_t> row, unsigned char* out,
                             Bf12Pieces& pieces) {
  std::int32_t bad = -1;
  for_blocks(row.size(), [&](std::size_t first, std::size_t columns, std::int32_t count) {
    if (bad >= 0) return;
    Block block{};
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(first), columns, block.begin());
    const Span span = exponents_of(block);
    if (span.largest == 255) {
      const auto* place = std::find_if(block.begin(), block.end(), [](std::uint16_t bits) {
        return (bits & kExponent) == kExponent;
      });
      bad = static_cast<std::int32_t>(first) + static_cast<std::int32_t>(place - block.begin());
      return;
    }
    encode_block(block, span, count, out, pieces);
    out += 1 + count * 48;
  });
  return bad;
}

Bf12PieceRange bf12_row_pieces(const unsigned char* row, std::int32_t cols) {
  Bf12PieceRange range;
  for_blocks(static_cast<std::size_t>(cols), [&](std::size_t, std::size_t, std::int32_t count) {
    if (*row == kBf12Raw) {
      if (range.count == 0) range.first = raw_index(row + 1);
      range.count += static_cast<std::uint32_t>(count - bf12_pieces_in_place(count));
    }
    row += 1 + count * 48;
  });
  return range;
}

void decode_bf12_row(const WeightMatrix& w, std::int32_t r, std::span<std::uint16_t> out) {
  assert(w.format == WeightFormat::bf12 && out.size() == static_cast<std::size_t>(w.cols));
  const unsigned char* p =
      w.data + static_cast<std::size_t>(r) * row_data_bytes(WeightFormat::bf12, w.cols);
  for_blocks(out.size(), [&](std::size_t first, std::size_t columns, std::int32_t count) {
    Block block;
    decode_block(w, p, count, block);
    std::copy_n(block.begin(), columns, out.begin() + static_cast<std::ptrdiff_t>(first));
    p += 1 + count * 48;
  });
}

}  // namespace penstock

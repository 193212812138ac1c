// SPDX-License-Identifier: Apache-2.0
#include "engine/text/utf8.h"

#include <cstring>

namespace penstock {
namespace {

// What may follow a lead byte: the range of the second byte excludes overlong forms, surrogates and
// code points above U+10FFFF; later bytes are 80..BF (Unicode, table 3-7).
struct Lead {
  std::uint8_t bytes;  // of the whole sequence, 0 for a byte that cannot lead
  std::uint8_t second_min;
  std::uint8_t second_max;
};

constexpr Lead lead_of(unsigned byte) noexcept {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

constexpr char32_t kReplacement = 0xFFFD;

// Appends the text of `bytes` with ill-formed subparts replaced; returns the bytes of a truncated
// sequence at the end, which is left out.
std::size_t append_complete(std::string_view bytes, std::string* out) {
  while (true) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    out->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return 0;
    const Utf8Sequence bad = read_utf8(bytes);
    if (bad.status == Utf8Status::truncated) return bytes.size();
    out->append(kReplacementCharacter);
    bytes.remove_prefix(bad.bytes);
  }
}

}  // namespace

Utf8Sequence read_utf8(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return {first, 1, Utf8Status::complete};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0) return {kReplacement, 1, Utf8Status::ill_formed};
  char32_t code_point = first & (0x7FU >> lead.bytes);
  for (std::uint8_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {kReplacement, i, Utf8Status::truncated};
    const unsigned min = i == 1 ? lead.second_min : 0x80U;
    const unsigned max = i == 1 ? lead.second_max : 0xBFU;
    if (at(i) < min || at(i) > max) return {kReplacement, i, Utf8Status::ill_formed};
    code_point = code_point << 6U | (at(i) & 0x3FU);
  }
  return {code_point, lead.bytes, Utf8Status::complete};
}

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    std::uint64_t word = 0;
    while (i + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + i, sizeof word);
      if ((word & 0x8080808080808080U) != 0) break;
      i += sizeof word;
    }
    if (i == text.size()) break;
    const Utf8Sequence next = read_utf8(text.substr(i));
    if (next.status != Utf8Status::complete) break;
    i += next.bytes;
  }
  return i;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (append_complete(text, &out) != 0) out.append(kReplacementCharacter);
  return out;
}

std::string Utf8Stream::feed(std::string_view bytes) {
  std::string out;
  std::size_t open = 0;
  if (held_.empty()) {
    open = append_complete(bytes, &out);
    held_.assign(bytes.substr(bytes.size() - open));
  } else {
    held_.append(bytes);
    open = append_complete(held_, &out);
    held_.erase(0, held_.size() - open);
  }
  return out;
}

std::string Utf8Stream::flush() {
  const bool held = !held_.empty();
  held_.clear();
  return std::string(held ? kReplacementCharacter : std::string_view());
}

}  // namespace penstock

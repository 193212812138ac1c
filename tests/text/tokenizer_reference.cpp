// SPDX-License-Identifier: Apache-2.0
#include "tests/text/tokenizer_reference.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "engine/text/unicode_tables.h"

namespace penstock {
namespace {

using Predicate = std::function<bool(char32_t)>;

struct Item {
  Predicate accepts;
  std::size_t min;
  std::size_t max;
};
constexpr std::size_t kMany = static_cast<std::size_t>(-1);

bool has(char32_t c, std::uint8_t bits) {
  return (UnicodeClasses::get()[c] & bits) != 0;
}
bool is_newline(char32_t c) {
  return c == '\r' || c == '\n';
}

using Rest = std::function<std::optional<std::size_t>(std::size_t)>;

// Greedy items in a row, then `rest`; the end of the match.
std::optional<std::size_t> match(std::u32string_view text, std::size_t at,
                                 const std::vector<Item>& items, std::size_t index,
                                 const Rest& rest) {
  if (index == items.size()) return rest(at);
  const Item& item = items[index];
  std::size_t n = 0;
  while (n < item.max && at + n < text.size() && item.accepts(text[at + n])) ++n;
  for (;; --n) {
    if (n < item.min) return std::nullopt;
    if (const auto end = match(text, at + n, items, index + 1, rest)) return end;
    if (n == 0) return std::nullopt;
  }
}

std::size_t contraction_end(std::u32string_view text, std::size_t at) {
  for (const std::u32string_view tail : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
    if (at + 1 + tail.size() > text.size() || text[at] != '\'') continue;
    bool equal = true;
    for (std::size_t i = 0; i < tail.size(); ++i) {
      const char32_t c = text[at + 1 + i];
      const char32_t folded = c >= 'A' && c <= 'Z' ? c + 32 : c == 0x17F ? U's' : c;
      equal = equal && folded == tail[i];
    }
    if (equal) return at + 1 + tail.size();
  }
  return at;
}

std::size_t piece_end(std::u32string_view text, std::size_t at) {
  const Predicate han = [](char32_t c) { return has(c, kHanClass); };
  const Predicate upper = [](char32_t c) { return has(c, kUpperClass); };
  const Predicate lower = [](char32_t c) { return has(c, kLowerClass); };
  const Predicate number = [](char32_t c) { return has(c, kNumberClass); };
  const Predicate space = [](char32_t c) { return has(c, kSpaceClass); };
  const Predicate blank = [](char32_t c) { return c == ' '; };
  const Predicate lead = [](char32_t c) {
    return !is_newline(c) && !has(c, kLetterClass | kNumberClass);
  };
  const Predicate other = [](char32_t c) {
    return !has(c, kSpaceClass | kLetterClass | kNumberClass);
  };
  const Rest done = [](std::size_t end) { return end; };
  const Rest contraction = [&](std::size_t end) { return contraction_end(text, end); };
  const Rest not_before_text = [&](std::size_t end) -> std::optional<std::size_t> {
    if (end < text.size() && !space(text[end])) return std::nullopt;
    return end;
  };
  const std::vector<std::pair<std::vector<Item>, Rest>> alternatives = {
      {{{han, 1, kMany}}, done},
      {{{lead, 0, 1}, {upper, 0, kMany}, {lower, 1, kMany}}, contraction},
      {{{lead, 0, 1}, {upper, 1, kMany}, {lower, 0, kMany}}, contraction},
      {{{number, 1, 3}}, done},
      {{{blank, 0, 1}, {other, 1, kMany}, {is_newline, 0, kMany}}, done},
      {{{space, 0, kMany}, {is_newline, 1, kMany}}, done},
      {{{space, 1, kMany}}, not_before_text},
      {{{space, 1, kMany}}, done},
  };
  for (const auto& [items, rest] : alternatives) {
    if (const auto end = match(text, at, items, 0, rest)) return *end;
  }
  return at;  // not reached: the alternatives cover every character
}

std::string decode_base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bits;
  for (const char c : text) {
    if (c == '=') break;
    const std::size_t value = kAlphabet.find(c);
    for (int bit = 5; bit >= 0; --bit) bits.push_back((value >> bit & 1U) != 0 ? '1' : '0');
  }
  std::string out;
  for (std::size_t i = 0; i + 8 <= bits.size(); i += 8) {
    out.push_back(static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2)));
  }
  return out;
}

}  // namespace

std::u32string reference_decode(std::string_view utf8) {
  std::u32string out;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const std::size_t n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = n == 1 ? lead : lead & (0xFFU >> (n + 1));
    for (std::size_t k = 1; k < n; ++k) {
      c = c * 64 + (static_cast<unsigned char>(utf8[i + k]) - 0x80U);
    }
    out.push_back(c);
    i += n;
  }
  return out;
}

std::string reference_encode(std::u32string_view text) {
  std::string out;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  for (const char32_t c : text) {
    if (c < 0x80) {
      put(c);
      continue;
    }
    if (c < 0x800) {
      put(0xC0 + c / 64);
    } else if (c < 0x10000) {
      put(0xE0 + c / 4096);
    } else {
      put(0xF0 + c / 262144);
      put(0x80 + c / 4096 % 64);
    }
    if (c >= 0x800) put(0x80 + c / 64 % 64);
    put(0x80 + c % 64);
  }
  return out;
}

std::vector<std::string> reference_pieces(std::string_view text) {
  const std::u32string decoded = reference_decode(text);
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < decoded.size();) {
    const std::size_t end = piece_end(decoded, at);
    if (end == at) break;
    pieces.push_back(reference_encode(std::u32string_view(decoded).substr(at, end - at)));
    at = end;
  }
  return pieces;
}

std::vector<std::string> reference_cuts(std::string_view text) {
  const std::u32string decoded = reference_decode(text);
  const auto is_space = [](char32_t c) { return has(c, kSpaceClass) || (c >= 0x1C && c <= 0x1F); };
  std::vector<std::string> parts;
  for (std::size_t chunk = 0; chunk < decoded.size(); chunk += 400000) {
    const std::u32string_view s = std::u32string_view(decoded).substr(chunk, 400000);
    std::size_t start = 0;
    std::size_t run = 0;
    bool run_is_space = is_space(s[0]);
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (is_space(s[i]) != run_is_space) {
        run = 1;
        run_is_space = !run_is_space;
      } else if (++run > 25000) {
        parts.push_back(reference_encode(s.substr(start, i - start)));
        start = i;
        run = 1;
      }
    }
    parts.push_back(reference_encode(s.substr(start)));
  }
  return parts;
}

ReferenceTokenizer::ReferenceTokenizer(const std::string& rank_file) {
  std::ifstream file(rank_file);
  std::string token;
  for (Token rank = 0; file >> token >> rank;) ranks_[decode_base64(token)] = rank;
}

std::vector<Token> ReferenceTokenizer::encode(std::string_view text) const {
  std::vector<Token> ids;
  for (const std::string& piece : reference_pieces(text)) merge(piece, &ids);
  return ids;
}

std::vector<Token> ReferenceTokenizer::encode(std::string_view text,
                                              const std::map<std::string, Token>& specials) const {
  std::vector<Token> ids;
  const auto append = [&](std::string_view part) {
    const std::vector<Token> more = encode(part);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  while (true) {
    std::size_t first = std::string_view::npos;
    const std::pair<const std::string, Token>* found = nullptr;
    for (const auto& special : specials) {
      const std::size_t at = text.find(special.first);
      if (at < first) {
        first = at;
        found = &special;
      }
    }
    append(text.substr(0, first));
    if (found == nullptr) return ids;
    ids.push_back(found->second);
    text.remove_prefix(first + found->first.size());
  }
}

void ReferenceTokenizer::merge(const std::string& piece, std::vector<Token>* out) const {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    auto best = ranks_.end();
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks_.find(parts[i] + parts[i + 1]);
      if (found == ranks_.end()) continue;
      if (best == ranks_.end() || found->second < best->second) {
        best = found;
        best_at = i;
      }
    }
    if (best == ranks_.end()) break;
    parts[best_at] = best->first;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  for (const std::string& part : parts) out->push_back(ranks_.at(part));
}

const std::u32string& tricky_characters() {
  static const std::u32string characters =
      U"aBsStdDrReEvVlLm''' \t\n\r\u0085\u00A0\u2028\u3000.!<_\u001C\u200B"
      U"0\u00BD\u0660\u2167\u3007\u01C5\u017F\u02B0\u0301\u0903\u05D0\uD55C"
      U"\u00DF\u00C9\u4E2D\u6F22\u2E80\u3005\U00020000\U0001F642\uFFFD";
  return characters;
}

std::string tricky_text(std::mt19937& random, std::size_t code_points) {
  const std::u32string& characters = tricky_characters();
  std::u32string text;
  for (std::size_t i = 0; i < code_points; ++i) {
    text.push_back(characters[random() % characters.size()]);
  }
  return reference_encode(text);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as text: the ids decode to the text with ill-formed bytes replaced, whatever the cuts
// and merges. Any bytes as a rank file or as tokenizer_config.json: refused with an Error, or
// complete.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_files.h"
#include "engine/text/tokenizer_ranks.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// All bytes, then all pairs and some longer strings of a few letters, so that merges meet.
const TokenRanks& fuzz_ranks() {
  static const TokenRanks ranks = [] {
    constexpr std::string_view kLetters = " \n'aest\xC3\xA9";
    TokenRanks made(8192, 65536);
    for (int byte = 0; byte < 256; ++byte) made.add(std::string(1, static_cast<char>(byte)));
    std::vector<std::string> shorter(1);
    for (int length = 1; length <= 4; ++length) {
      std::vector<std::string> longer;
      for (const std::string& token : shorter) {
        for (const char letter : kLetters.substr(0, length < 3 ? 9 : 6)) {
          longer.push_back(token + letter);
          made.add(longer.back());
        }
      }
      shorter = std::move(longer);
    }
    for (std::size_t n = 5; n < 20; ++n) made.add(std::string(n, 'a'));
    return made;
  }();
  return ranks;
}

void fuzz_text(std::string_view bytes) {
  const std::string text = replace_invalid_utf8(bytes);
  require(valid_utf8_prefix(text) == text.size());
  Utf8Stream stream;
  std::string streamed;
  for (std::size_t i = 0; i < bytes.size(); i += 3) streamed += stream.feed(bytes.substr(i, 3));
  require(streamed + stream.flush() == text);

  std::vector<Token> ids;
  SafetyCuts cuts(text);
  for (std::string_view part = cuts.next(); !part.empty(); part = cuts.next()) {
    Pieces pieces(part);
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      require(valid_utf8_prefix(piece) == piece.size());
      encode_piece(fuzz_ranks(), piece, part.data() + part.size(), &ids);
    }
  }
  std::string decoded;
  for (const Token id : ids) decoded += fuzz_ranks().bytes(id);
  require(decoded == text);
}

template <typename Parse>
void fuzz_file(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::model);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace
}  // namespace penstock

// The first byte says what the others are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'r':
      penstock::fuzz_file(
          [&] { penstock::require(penstock::parse_ranks(rest, "f").size() >= 256); });
      break;
    case 'n':
      penstock::fuzz_file(
          [&] { penstock::require(penstock::parse_special_names(rest, "f", 300).size() == 256); });
      break;
    default: penstock::fuzz_text(rest);
  }
  return 0;
}

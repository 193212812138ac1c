// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_files.h"
#include "engine/text/tokenizer_ranks.h"
#include "engine/text/utf8.h"

namespace penstock {
namespace {

// Reserved for one id per this many bytes of text; English has about 4.4.
constexpr std::size_t kBytesPerToken = 4;

struct Special {
  std::string_view name;
  Token id;
};

}  // namespace

struct Tokenizer::Tables {
  Tables(TokenRanks token_ranks, std::vector<std::string> names)
      : ranks(std::move(token_ranks)), special_names(std::move(names)) {
    for (std::size_t i = 0; i < special_names.size(); ++i) {
      sorted_specials.push_back({special_names[i], ranks.size() + static_cast<Token>(i)});
      starts_special[static_cast<unsigned char>(special_names[i][0])] = true;
    }
    std::sort(sorted_specials.begin(), sorted_specials.end(),
              [](const Special& a, const Special& b) { return a.name < b.name; });
  }

  Tables(const Tables&) = delete;  // sorted_specials views special_names
  Tables& operator=(const Tables&) = delete;
  ~Tables() = default;

  // The special at the start of `text`, or null. No name is the start of another: then the only
  // candidate is the last name that does not sort behind the text.
  const Special* special_at(std::string_view text) const {
    const auto after = std::upper_bound(
        sorted_specials.begin(), sorted_specials.end(), text,
        [](std::string_view value, const Special& special) { return value < special.name; });
    if (after == sorted_specials.begin()) return nullptr;
    const Special& candidate = after[-1];
    return text.substr(0, candidate.name.size()) == candidate.name ? &candidate : nullptr;
  }

  void encode_pieces(std::string_view text, std::vector<Token>* out) const {
    const char* const end = text.data() + text.size();
    Pieces pieces(text);
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      encode_piece(ranks, piece, end, out);
    }
  }

  void encode_with_specials(std::string_view text, std::vector<Token>* out) const {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size();) {
      const bool may_start = starts_special[static_cast<unsigned char>(text[i])];
      const Special* special = may_start ? special_at(text.substr(i)) : nullptr;
      if (special == nullptr) {
        ++i;
        continue;
      }
      encode_pieces(text.substr(begin, i - begin), out);
      out->push_back(special->id);
      i += special->name.size();
      begin = i;
    }
    encode_pieces(text.substr(begin), out);
  }

  // Calls encode(part) for the parts of the text between safety cuts, as well-formed UTF-8.
  template <typename Encode>
  static void for_each_part(std::string_view text, const Encode& encode) {
    std::string replaced;
    if (valid_utf8_prefix(text) != text.size()) {
      replaced = replace_invalid_utf8(text);
      text = replaced;
    }
    SafetyCuts cuts(text);
    for (std::string_view part = cuts.next(); !part.empty(); part = cuts.next()) encode(part);
  }

  TokenRanks ranks;
  std::vector<std::string> special_names;  // [256], by id
  std::vector<Special> sorted_specials;    // by name
  std::array<bool, 256> starts_special{};  // by the first byte of a name
};

Tokenizer Tokenizer::load(const std::string& model_dir) {
  const std::string rank_file = model_dir + "/tiktoken.model";
  TokenRanks ranks = parse_ranks(read_tokenizer_file(rank_file), rank_file);
  const std::string config_file = model_dir + "/tokenizer_config.json";
  std::vector<std::string> names =
      parse_special_names(read_tokenizer_file(config_file), config_file, ranks.size());
  return Tokenizer(std::make_unique<const Tables>(std::move(ranks), std::move(names)));
}

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<Token> Tokenizer::encode_ordinary(std::string_view text) const {
  std::vector<Token> ids;
  ids.reserve(text.size() / kBytesPerToken);
  encode_ordinary(text, &ids);
  return ids;
}

void Tokenizer::encode_ordinary(std::string_view text, std::vector<Token>* out) const {
  Tables::for_each_part(text, [&](std::string_view part) { tables_->encode_pieces(part, out); });
}

std::vector<Token> Tokenizer::encode_with_specials(std::string_view text) const {
  std::vector<Token> ids;
  ids.reserve(text.size() / kBytesPerToken);
  Tables::for_each_part(text,
                        [&](std::string_view part) { tables_->encode_with_specials(part, &ids); });
  return ids;
}

std::optional<Token> Tokenizer::special(std::string_view name) const {
  const Special* found = tables_->special_at(name);
  if (found == nullptr || found->name.size() != name.size()) return std::nullopt;
  return found->id;
}

bool Tokenizer::is_special(Token id) const {
  return id >= first_special() && id < vocab_size();
}

std::string_view Tokenizer::bytes(Token id) const {
  assert(id >= 0 && id < vocab_size());
  if (id < first_special()) return tables_->ranks.bytes(id);
  return tables_->special_names[static_cast<std::size_t>(id - first_special())];
}

Token Tokenizer::vocab_size() const {
  return first_special() + kSpecialTokens;
}
Token Tokenizer::first_special() const {
  return tables_->ranks.size();
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The tiktoken BPE of the Kimi models (spec: tokenizer.md): a rank file, 256 specials by name, the
// exact pre-token pattern. Text and markup go through different entry points, so that text can
// never become structure. Immutable after construction.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace penstock {

class Tokenizer {
 public:
  // Reads tiktoken.model and tokenizer_config.json of a model folder. Throws Error(model) naming
  // the file, the line and what is wrong.
  static Tokenizer load(const std::string& model_dir);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Nothing is special: marker text becomes ordinary ids. Ill-formed UTF-8 is read as U+FFFD.
  std::vector<Token> encode_ordinary(std::string_view text) const;
  void encode_ordinary(std::string_view text, std::vector<Token>* out) const;  // appends

  // The names of specials become their ids (spec: tokenizer.md section 6).
  std::vector<Token> encode_with_specials(std::string_view text) const;

  std::optional<Token> special(std::string_view name) const;  // "<|open|>" to its id
  bool is_special(Token id) const;

  // The bytes of an id; a special's are its name. Views live as long as the tokenizer.
  std::string_view bytes(Token id) const;  // id in [0, vocab_size())
  Token vocab_size() const;                // ranks + 256
  Token first_special() const;             // number of ranks

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);
  std::unique_ptr<const Tables> tables_;
};

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer a second time, slow and by the letter of the specification: the pattern as a small
// backtracking regex engine, the cuts as the Python code does them, merges by trying every pair.
#pragma once

#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/token.h"

namespace penstock {

std::u32string reference_decode(std::string_view utf8);  // well-formed
std::string reference_encode(std::u32string_view text);

std::vector<std::string> reference_pieces(std::string_view text);
std::vector<std::string> reference_cuts(std::string_view text);

class ReferenceTokenizer {
 public:
  explicit ReferenceTokenizer(const std::string& rank_file);
  std::vector<Token> encode(std::string_view text) const;  // ordinary, well-formed
  std::vector<Token> encode(std::string_view text,
                            const std::map<std::string, Token>& specials) const;

 private:
  void merge(const std::string& piece, std::vector<Token>* out) const;
  std::map<std::string, Token, std::less<>> ranks_;
};

// Characters that tell the classes of the pattern apart, all forms of the contractions among them.
const std::u32string& tricky_characters();
std::string tricky_text(std::mt19937& random, std::size_t code_points);

}  // namespace penstock

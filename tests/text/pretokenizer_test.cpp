// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text/tokenizer_reference.h"

namespace penstock {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  Pieces all(text);
  for (std::string_view piece = all.next(); !piece.empty(); piece = all.next()) {
    pieces.emplace_back(piece);
  }
  return pieces;
}

std::vector<std::string> cuts_of(std::string_view text) {
  std::vector<std::string> parts;
  SafetyCuts cuts(text);
  for (std::string_view part = cuts.next(); !part.empty(); part = cuts.next()) {
    parts.emplace_back(part);
  }
  return parts;
}

TEST(Pretokenizer, CutsTheGoldenTexts) {
  std::ifstream file(PENSTOCK_GOLDEN "/kimi-k3/pretokenize_vectors.json");
  const nlohmann::json vectors = nlohmann::json::parse(file).at("vectors");
  ASSERT_EQ(vectors.size(), 55U);
  for (const nlohmann::json& vector : vectors) {
    const std::string text = vector.at("text");
    EXPECT_EQ(pieces_of(text), vector.at("pieces").get<std::vector<std::string>>()) << text;
    EXPECT_EQ(reference_pieces(text), pieces_of(text)) << text;
  }
}

TEST(Pretokenizer, AgreesWithBacktrackingOnAllShortTexts) {
  const std::u32string& characters = tricky_characters();
  std::u32string text(3, U' ');
  for (const char32_t a : characters) {
    for (const char32_t b : characters) {
      for (const char32_t c : characters) {
        text = {a, b, c};
        const std::string utf8 = reference_encode(text);
        ASSERT_EQ(pieces_of(utf8), reference_pieces(utf8)) << utf8;
      }
    }
  }
}

TEST(Pretokenizer, AgreesWithBacktrackingOnRandomTexts) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = tricky_text(random, 4 + random() % 30);
    ASSERT_EQ(pieces_of(text), reference_pieces(text)) << text;
  }
}

// Words as in English, of all lengths around the 8 bytes that are looked at together.
TEST(Pretokenizer, AgreesWithBacktrackingOnAsciiWords) {
  constexpr std::string_view kOther = "ABYZ@[`{'-., \n09";
  std::mt19937 random(4);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    while (text.size() < 60) {
      text.push_back(kOther[random() % kOther.size()]);
      const std::size_t letters = random() % 20;
      for (std::size_t k = 0; k < letters; ++k) text.push_back("abyz"[random() % 4]);
    }
    if (i % 2 == 0) text += "\u00E9";
    ASSERT_EQ(pieces_of(text), reference_pieces(text)) << text;
  }
}

TEST(SafetyCuts, GivesNothingForEmptyText) {
  EXPECT_TRUE(SafetyCuts("").next().empty());
}

TEST(SafetyCuts, CutsRunsBehind25000CodePoints) {
  const std::string smile = "\U0001F642";
  std::string smiles;
  for (int i = 0; i < 25001; ++i) smiles += smile;
  EXPECT_EQ(cuts_of(smiles), (std::vector<std::string>{smiles.substr(4), smile}));
  const std::string words(25000, 'a');
  EXPECT_EQ(cuts_of(words + " " + words).size(), 1U);
  EXPECT_EQ(cuts_of(words + "a " + words), (std::vector<std::string>{words, "a " + words}));
  // Separators that are no \s count as blank.
  const std::string blanks(12500, '\x1C');
  EXPECT_EQ(cuts_of(blanks + std::string(12501, ' ')).size(), 2U);
}

TEST(SafetyCuts, CutsChunksOf400000CodePoints) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "\u00E9 ";
  EXPECT_EQ(cuts_of(text).size(), 1U);
  EXPECT_EQ(cuts_of(text + "\u00E9"), (std::vector<std::string>{text, "\u00E9"}));
  // Counting of runs restarts with the chunk.
  const std::string run(20000, 'x');
  EXPECT_EQ(cuts_of("ab" + text.substr(0, text.size() - 15000) + run),
            reference_cuts("ab" + text.substr(0, text.size() - 15000) + run));
}

TEST(SafetyCuts, AgreesWithThePythonCodeOnRuns) {
  const std::u32string kBlanks = U" \u001F\u00A0\u3000";
  const std::u32string kOther = U"a\u00E9\u4E2D\U0001F642";
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    std::u32string text;
    while (text.size() < 120000) {
      const std::size_t base = random() % 3 == 0 ? 24998 + random() % 5 : random() % 30000;
      const std::u32string& kind = random() % 2 == 0 ? kBlanks : kOther;
      const std::size_t width = 1 + random() % kind.size();
      for (std::size_t k = 0; k < base; ++k) text.push_back(kind[random() % width]);
    }
    if (i % 8 == 0) text += text + text + text;
    const std::string utf8 = reference_encode(text);
    ASSERT_EQ(cuts_of(utf8), reference_cuts(utf8)) << i;
  }
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// The rules of the tokenizer on the demo's rank file, against the slow second implementation.
#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/text/tokenizer_reference.h"

namespace penstock {
namespace {

const std::string kDemo = PENSTOCK_SOURCE_DIR "/config/demo-model";

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::load(kDemo);
  return tokenizer;
}

const ReferenceTokenizer& reference() {
  static const ReferenceTokenizer tokenizer(kDemo + "/tiktoken.model");
  return tokenizer;
}

std::map<std::string, Token> specials() {
  std::map<std::string, Token> names;
  for (Token id = demo().first_special(); id < demo().vocab_size(); ++id) {
    names[std::string(demo().bytes(id))] = id;
  }
  return names;
}

std::string decode(const std::vector<Token>& ids) {
  std::string text;
  for (const Token id : ids) text += demo().bytes(id);
  return text;
}

// Words of the demo's own vocabulary, whole and cut short, so that merges of every depth occur.
std::string wordy_text(std::mt19937& random, int words) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    const auto ranks = static_cast<unsigned>(demo().first_special());
    const std::string_view token = demo().bytes(static_cast<Token>(random() % ranks));
    text += token.substr(0, random() % (token.size() + 1));
  }
  return replace_invalid_utf8(text);
}

TEST(Tokenizer, TakesIdsFromTheNumberOfRanks) {
  EXPECT_EQ(demo().first_special(), 4096);
  EXPECT_EQ(demo().vocab_size(), 4352);
  EXPECT_EQ(demo().special("[BOS]"), 4096);
  EXPECT_EQ(demo().special("<|end_of_msg|>"), 4098);
  EXPECT_EQ(demo().special("<|open|>"), 4099);
  EXPECT_EQ(demo().special("<osagent_mode>"), 4161);
  EXPECT_EQ(demo().special("<|reserved_token_4104|>"), 4104);
  EXPECT_EQ(demo().special("[PAD]"), 4351);
  EXPECT_EQ(demo().special("<|open|"), std::nullopt);
  EXPECT_EQ(demo().special("<|open|>x"), std::nullopt);
  EXPECT_EQ(demo().special(""), std::nullopt);
  EXPECT_FALSE(demo().is_special(4095));
  EXPECT_TRUE(demo().is_special(4096));
  EXPECT_TRUE(demo().is_special(4351));
  EXPECT_FALSE(demo().is_special(4352));
}

TEST(Tokenizer, KnowsTheBytesOfEveryId) {
  EXPECT_EQ(demo().bytes(0), "!");
  EXPECT_EQ(demo().bytes(188), std::string_view("\0", 1));
  EXPECT_EQ(demo().bytes(220), " ");
  EXPECT_EQ(demo().bytes(4099), "<|open|>");
  for (Token id = 0; id < demo().vocab_size(); ++id) ASSERT_FALSE(demo().bytes(id).empty()) << id;
}

TEST(Tokenizer, AppendsToWhatIsThere) {
  std::vector<Token> ids = {7};
  demo().encode_ordinary("", &ids);
  EXPECT_EQ(ids, std::vector<Token>{7});
  demo().encode_ordinary("!!", &ids);
  demo().encode_ordinary("!", &ids);
  EXPECT_EQ(ids.front(), 7);
  EXPECT_EQ(ids.back(), 0);
  EXPECT_TRUE(demo().encode_ordinary("").empty());
  EXPECT_TRUE(demo().encode_with_specials("").empty());
}

TEST(Tokenizer, AgreesWithTheReferenceOnRandomTexts) {
  std::mt19937 random(6);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = i % 2 == 0 ? tricky_text(random, random() % 40)
                                        : wordy_text(random, static_cast<int>(random() % 20));
    const std::vector<Token> ids = demo().encode_ordinary(text);
    ASSERT_EQ(ids, reference().encode(text)) << text;
    ASSERT_EQ(decode(ids), text);
  }
}

// Pieces without a border, around the length at which another algorithm takes over.
TEST(Tokenizer, MergesPiecesOfEveryLength) {
  std::mt19937 random(7);
  for (std::size_t bytes = 1; bytes < 300; ++bytes) {
    for (int i = 0; i < 4; ++i) {
      std::string text;
      while (text.size() < bytes) text.push_back("abeinorst"[random() % (i < 2 ? 9 : 2)]);
      ASSERT_EQ(demo().encode_ordinary(text), reference().encode(text)) << text;
    }
  }
  const std::string equal(20000, 'e');
  EXPECT_EQ(decode(demo().encode_ordinary(equal)), equal);
}

TEST(Tokenizer, ReadsIllFormedBytesAsReplacementCharacters) {
  std::mt19937 random(8);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = tricky_text(random, random() % 12);
    for (std::size_t k = random() % 4; k > 0 && !bytes.empty(); --k) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    }
    bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), random() % 3));
    const std::string text = replace_invalid_utf8(bytes);
    const std::vector<Token> ids = demo().encode_ordinary(bytes);
    ASSERT_EQ(ids, reference().encode(text));
    ASSERT_EQ(decode(ids), text);
  }
}

// What lies behind the text, be it more of the same word or nothing readable, does not matter.
TEST(Tokenizer, LooksAtTheTextOnly) {
  std::mt19937 random(10);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = i % 2 == 0 ? wordy_text(random, 3) : tricky_text(random, 5);
    const std::vector<Token> ids = demo().encode_ordinary(text);
    const std::vector<char> exact(text.begin(), text.end());  // nothing behind it
    ASSERT_EQ(demo().encode_ordinary({exact.data(), exact.size()}), ids);
    for (const char* behind : {"s's", "\xCC\x81", "  ", "11", "\xE4\xB8\xAD", "\n!"}) {
      const std::string more = text + behind;
      ASSERT_EQ(demo().encode_ordinary(std::string_view(more).substr(0, text.size())), ids) << more;
    }
  }
}

TEST(Tokenizer, NeverGivesSpecialsForOrdinaryText) {
  for (const auto& [name, id] : specials()) {
    for (const Token token : demo().encode_ordinary(name)) EXPECT_FALSE(demo().is_special(token));
    EXPECT_EQ(demo().encode_with_specials(name), std::vector<Token>{id});
  }
}

TEST(Tokenizer, AgreesWithTheReferenceOnSpecials) {
  const std::map<std::string, Token> names = specials();
  std::vector<std::string> fragments = {" ", "  ", "a", "\n", "é", "<", "<|", "|>", "[", "open|>"};
  for (const char* name : {"<|open|>", "<|close|>", "<|sep|>", "[BOS]", "[EOT]", "<osagent_mode>",
                           "<|reserved_token_4104|>", "[start_header_id]"}) {
    fragments.emplace_back(name);
    fragments.emplace_back(std::string(name).substr(0, 4));
  }
  std::mt19937 random(9);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::size_t k = random() % 12; k > 0; --k) text += fragments[random() % fragments.size()];
    const std::vector<Token> ids = demo().encode_with_specials(text);
    ASSERT_EQ(ids, reference().encode(text, names)) << text;
    ASSERT_EQ(decode(ids), text);
  }
}

// Text before a special is encoded as if it ended there: both blanks stay together.
TEST(Tokenizer, EndsTextAtASpecial) {
  std::vector<Token> expected = demo().encode_ordinary("a  ");
  expected.push_back(*demo().special("<|sep|>"));
  expected.push_back(demo().encode_ordinary("x").front());
  EXPECT_EQ(demo().encode_with_specials("a  <|sep|>x"), expected);
}

TEST(Tokenizer, EncodesPartsBetweenSafetyCutsOnTheirOwn) {
  const std::string run(24996, 'x');
  std::vector<Token> expected = demo().encode_ordinary(run + "<|op");
  for (const Token id : demo().encode_ordinary("en|>")) expected.push_back(id);
  EXPECT_EQ(demo().encode_ordinary(run + "<|open|>"), expected);
  EXPECT_EQ(demo().encode_with_specials(run + "<|open|>"), expected);
  EXPECT_EQ(demo().encode_with_specials(run + " <|open|>").back(), demo().special("<|open|>"));
}

TEST(Tokenizer, CanBeMoved) {
  Tokenizer first = Tokenizer::load(kDemo);
  Tokenizer second = std::move(first);
  first = std::move(second);
  EXPECT_EQ(first.encode_ordinary("Hello"), demo().encode_ordinary("Hello"));
}

}  // namespace
}  // namespace penstock

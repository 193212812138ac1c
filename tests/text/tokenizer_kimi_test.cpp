// SPDX-License-Identifier: Apache-2.0
//
// Kimi K3's own vectors. They take its published rank file, which is not part of this repository:
// PENSTOCK_SHARED names the folder that holds data/kimi-k3/, else it is ../shared beside the
// checkout. Without it these tests are skipped.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/text/sha256.h"

namespace penstock {
namespace {

using nlohmann::json;

std::string model_dir() {
  const char* shared = std::getenv("PENSTOCK_SHARED");
  const std::string root = shared != nullptr ? shared : PENSTOCK_SOURCE_DIR "/../shared";
  return root + "/data/kimi-k3";
}

std::uint64_t fnv1a(std::uint64_t hash, std::uint32_t word) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    hash = (hash ^ (word >> shift & 0xFFU)) * 0x100000001b3U;
  }
  return hash;
}
constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325U;

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value /= 16) text[i] = "0123456789abcdef"[value % 16];
  return text;
}

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

class KimiTokenizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!std::filesystem::exists(model_dir() + "/tiktoken.model")) return;
    tokenizer_.emplace(Tokenizer::load(model_dir()));
    std::ifstream file(PENSTOCK_GOLDEN "/kimi-k3/tokenizer_vectors.json");
    vectors_ = json::parse(file);
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  void SetUp() override {
    if (!tokenizer_) {
      GTEST_SKIP() << "Kimi K3's published rank file is not at " << model_dir()
                   << "/tiktoken.model (set PENSTOCK_SHARED)";
    }
  }

  static std::string decode(const std::vector<Token>& ids) {
    std::string text;
    for (const Token id : ids) text += tokenizer_->bytes(id);
    return text;
  }

  static void expect_hash(const std::vector<Token>& ids, const json& vector) {
    const std::string text = vector.at("text_expr");
    EXPECT_EQ(ids.size(), vector.at("ids_count").get<std::size_t>()) << text;
    if (vector.contains("ids_json_sha256")) {
      EXPECT_EQ(sha256_hex(json(ids).dump()), vector.at("ids_json_sha256")) << text;
    } else {
      std::uint64_t hash = kFnvBasis;
      for (const Token id : ids) hash = fnv1a(hash, static_cast<std::uint32_t>(id));
      EXPECT_EQ(hex(hash), vector.at("fnv1a64_u32le")) << text;
    }
  }

  static std::optional<Tokenizer> tokenizer_;
  static json vectors_;
};

std::optional<Tokenizer> KimiTokenizer::tokenizer_;
json KimiTokenizer::vectors_;

TEST_F(KimiTokenizer, GivesThePublishedIds) {
  const json& vectors = vectors_.at("vectors");
  ASSERT_EQ(vectors.size(), 92U);
  for (const json& vector : vectors) {
    const std::string text = vector.at("text");
    const std::vector<Token> ids = vector.at("allow_special").get<bool>()
                                       ? tokenizer_->encode_with_specials(text)
                                       : tokenizer_->encode_ordinary(text);
    EXPECT_EQ(ids, vector.at("ids").get<std::vector<Token>>()) << text;
    EXPECT_EQ(decode(ids), text);
  }
}

TEST_F(KimiTokenizer, GivesThePublishedHashesOfLongTexts) {
  const std::vector<std::string> texts = {repeat("QUJDRA", 5000), repeat(" ", 30000) + "end",
                                          repeat("word ", 6000), repeat("word ", 100000)};
  const json& vectors = vectors_.at("long_vectors");
  ASSERT_EQ(vectors.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    expect_hash(tokenizer_->encode_ordinary(texts[i]), vectors[i]);
  }
}

TEST_F(KimiTokenizer, GivesThePublishedHashesOfCutTexts) {
  const std::vector<std::string> texts = {repeat("a", 25001), repeat(" ", 25001),
                                          repeat("\U0001F642", 25001), repeat("a ", 200000) + "b"};
  const json& vectors = vectors_.at("hash_vectors");
  ASSERT_EQ(vectors.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    expect_hash(tokenizer_->encode_ordinary(texts[i]), vectors[i]);
  }
}

TEST_F(KimiTokenizer, GivesThePublishedHashOfAllCombinations) {
  const json& combinatorial = vectors_.at("combinatorial");
  const auto fragments = combinatorial.at("fragments").get<std::vector<std::string>>();
  ASSERT_EQ(fragments.size(), 28U);
  std::uint64_t hashes[2] = {kFnvBasis, kFnvBasis};
  std::size_t totals[2] = {0, 0};
  const auto add = [&](int which, const std::vector<Token>& ids) {
    totals[which] += ids.size();
    hashes[which] = fnv1a(hashes[which], static_cast<std::uint32_t>(ids.size()));
    for (const Token id : ids) {
      hashes[which] = fnv1a(hashes[which], static_cast<std::uint32_t>(id));
    }
  };
  for (const std::string& left : fragments) {
    for (const std::string& middle : fragments) {
      for (const std::string& right : fragments) {
        const std::string text = left + middle + right;
        add(0, tokenizer_->encode_ordinary(text));
        add(1, tokenizer_->encode_with_specials(text));
      }
    }
  }
  const char* names[2] = {"ordinary", "specials_enabled"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(totals[i], combinatorial.at(names[i]).at("total_ids").get<std::size_t>());
    EXPECT_EQ(hex(hashes[i]), combinatorial.at(names[i]).at("hash"));
  }
}

TEST_F(KimiTokenizer, HasTheIdsOfTheRelease) {
  EXPECT_EQ(tokenizer_->first_special(), 163584);
  EXPECT_EQ(tokenizer_->vocab_size(), 163840);
  EXPECT_EQ(tokenizer_->special("[BOS]"), 163584);
  EXPECT_EQ(tokenizer_->special("<|end_of_msg|>"), 163586);
  EXPECT_EQ(tokenizer_->special("<|open|>"), 163587);
  EXPECT_EQ(tokenizer_->special("<|media_pad|>"), 163605);
  EXPECT_EQ(tokenizer_->special("[PAD]"), 163839);
  EXPECT_EQ(tokenizer_->special("<|reserved_token_163589|>"), std::nullopt);
  EXPECT_EQ(tokenizer_->special("<|reserved_token_163594|>"), 163594);
}

}  // namespace
}  // namespace penstock

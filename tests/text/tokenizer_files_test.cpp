// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

namespace penstock {
namespace {

const std::string kDemo = PENSTOCK_SOURCE_DIR "/config/demo-model";

// The lines of the smallest valid rank file: the demo's 256 single bytes and two merges.
std::vector<std::string> small_rank_lines() {
  std::ifstream file(kDemo + "/tiktoken.model");
  std::vector<std::string> lines(258);
  for (std::string& line : lines) std::getline(file, line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string rank_error(const std::string& text) {
  try {
    parse_ranks(text, "tiktoken.model");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

std::string names_error(const std::string& json) {
  try {
    parse_special_names(json, "tokenizer_config.json", 300);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

TEST(TokenizerFiles, ReadsASmallRankFile) {
  const std::string text = joined(small_rank_lines());
  EXPECT_EQ(parse_ranks(text, "f").size(), 258);
  EXPECT_EQ(parse_ranks(text.substr(0, text.size() - 1), "f").size(), 258);  // no last newline
}

TEST(TokenizerFiles, NamesTheLineThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected two fields, a token in base64 and its rank, with one space between"},
      {"YWE=", "expected two fields, a token in base64 and its rank, with one space between"},
      {"YWE= 256 1", "expected two fields, a token in base64 and its rank, with one space between"},
      {" 256", "the token is empty"},
      {"YWE 256", "the token is not valid base64"},
      {"Y-E= 256", "the token is not valid base64"},
      {"YWE=YWE= 256", "the token is not valid base64"},
      {"Y=== 256", "the token is not valid base64"},
      {"==== 256", "the token is not valid base64"},
      {"YWF= 256", "the token is not valid base64"},  // bits left over
      {"YWE= 2x6", "the rank is not a decimal number"},
      {"YWE= -1", "the rank is not a decimal number"},
      {"YWE= ", "the rank is not a decimal number"},
      {"YWE= 256\r", "the rank is not a decimal number"},
      {"YWE= 99999999999", "the rank is not a decimal number"},
      {"YWE= 255", "rank 255, expected 256: ranks ascend from 0 without gaps"},
      {"YWE= 257", "rank 257, expected 256: ranks ascend from 0 without gaps"},
      {"IQ== 256", "rank 256 repeats the token of rank 0"},
  };
  for (const auto& [line, problem] : cases) {
    std::vector<std::string> lines = small_rank_lines();
    lines[256] = line;
    EXPECT_EQ(rank_error(joined(lines)), "tiktoken.model line 257: " + problem) << line;
  }
}

TEST(TokenizerFiles, MissesSingleBytes) {
  EXPECT_EQ(rank_error(""), "tiktoken.model: no line holds the single byte 0x00 (of 0 tokens)");
  std::vector<std::string> lines = small_rank_lines();
  lines[216] = "YWE= 216";  // instead of 0x1C
  lines.resize(256);
  EXPECT_EQ(rank_error(joined(lines)),
            "tiktoken.model: no line holds the single byte 0x1C (of 256 tokens)");
}

TEST(TokenizerFiles, NamesSpecialsWithoutAnEntryByTheirId) {
  const std::vector<std::string> names = parse_special_names(
      R"({"added_tokens_decoder": {"301": {"content": "<a>"}, "556": {"content": "<ignored>"}}})",
      "f", 300);
  ASSERT_EQ(names.size(), 256U);
  EXPECT_EQ(names[0], "<|reserved_token_300|>");
  EXPECT_EQ(names[1], "<a>");
  EXPECT_EQ(names[255], "<|reserved_token_555|>");
}

TEST(TokenizerFiles, RefusesSpecialsThatDoNotFit) {
  const auto decoder = [](const std::string& entries) {
    return R"({"added_tokens_decoder": {)" + entries + "}}";
  };
  const std::string range = "specials have the ids 300 to 555, behind the ranks of tiktoken.model";
  const std::string at = "tokenizer_config.json: added_tokens_decoder";
  EXPECT_EQ(names_error("{}"), at + " is missing");
  EXPECT_EQ(names_error(R"({"added_tokens_decoder": []})"), at + " is not an object");
  EXPECT_EQ(names_error(decoder(R"("299": {"content": "a"})")), at + "[\"299\"]: " + range);
  EXPECT_EQ(names_error(decoder(R"("558": {"content": "a"})")), at + "[\"558\"]: " + range);
  EXPECT_EQ(names_error(decoder(R"("x": {"content": "a"})")), at + "[\"x\"]: " + range);
  EXPECT_EQ(names_error(decoder(R"("300": {"content": ""})")), at + "[\"300\"]: content is empty");
  EXPECT_NE(names_error(decoder(R"("300": {})")).find("[\"300\"]: content is missing"),
            std::string::npos);
  EXPECT_EQ(names_error(decoder(R"("300": {"content": "<a"}, "301": {"content": "<a>"})")),
            "tokenizer_config.json: special token \"<a\" is also the start of \"<a>\"");
  EXPECT_EQ(names_error(decoder(R"("300": {"content": "a"}, "301": {"content": "a"})")),
            "tokenizer_config.json: special token \"a\" is also the start of \"a\"");
  EXPECT_EQ(names_error(decoder(R"("300": {"content": "\n"}, "301": {"content": "\n!"})")),
            R"(tokenizer_config.json: special token "\n" is also the start of "\n!")");
  EXPECT_NE(names_error("{").find("tokenizer_config.json"), std::string::npos);
}

TEST(TokenizerFiles, NamesAFileThatIsNotThere) {
  try {
    Tokenizer::load("no-such-folder");
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_STREQ(error.what(), "no-such-folder/tiktoken.model: cannot be opened");
  }
}

}  // namespace
}  // namespace penstock

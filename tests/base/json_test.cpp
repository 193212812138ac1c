// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/expect_error.h"

namespace penstock {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMinInt = std::numeric_limits<std::int64_t>::min();

std::string message_of_int(const std::string& value) {
  const nlohmann::json object = parse_json("{\"hidden_size\":" + value + "}", "config.json");
  const JsonFields fields(object, "config.json");
  const Error error = error_of([&] { fields.get_int("hidden_size", 1, 1048576); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  return error.what();
}

std::string parse_message(const std::string& text) {
  const Error error = error_of([&] { parse_json(text, "config.json"); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  return error.what();
}

TEST(ParseJson, NamesTheFileAndThePosition) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "{\"a\":NaN}", "{} x", "\"\xff\"", "01"}) {
    const std::string message = parse_message(text);
    EXPECT_EQ(message.rfind("config.json: ", 0), 0U) << message;
    EXPECT_NE(message.find("line 1, column"), std::string::npos) << message;
  }
}

TEST(ParseJson, ShortensWhatItQuotes) {
  EXPECT_LT(parse_message("[\"" + std::string(100000, 'x')).size(), 300U);
  EXPECT_LT(parse_message("nul" + std::string(100000, 'x')).size(), 300U);
}

TEST(ParseJson, RefusesADepthBomb) {
  EXPECT_EQ(parse_message(std::string(100000, '[')),
            "config.json: nested deeper than 64 levels at byte 64");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_EQ(parse_message(objects), "config.json: nested deeper than 64 levels at byte 320");
}

TEST(ParseJson, AcceptsTheDeepestAllowed) {
  const std::string inner = std::string(63, '[') + std::string(63, ']');
  const std::string twice = std::string("[").append(inner).append(",").append(inner).append("]");
  EXPECT_EQ(parse_json(twice, "x").size(), 2U);
}

TEST(ParseJson, CountsNoBracketsInStrings) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("\"" + brackets + "\\\"" + brackets + "\"", "x").get<std::string>(),
            brackets + "\"" + brackets);
  EXPECT_EQ(parse_json("{\"\\\\\":[1]}", "x").size(), 1U);
}

TEST(ParseJson, LastDuplicateKeyWins) {
  const nlohmann::json object = parse_json(R"({"a":1,"b":2,"a":{"c":3}})", "x");
  EXPECT_EQ(object.size(), 2U);
  EXPECT_EQ(object["a"]["c"], 3);
}

TEST(ParseJson, RefusesNumbersNoDoubleHolds) {
  EXPECT_EQ(parse_message("{\"a\":1e400}"), "config.json: number overflow parsing '1e400'");
}

TEST(JsonFields, NeedsAnObject) {
  const nlohmann::json array = parse_json("[1]", "config.json");
  EXPECT_STREQ(error_of([&] { JsonFields(array, "config.json"); }).what(),
               "config.json: is an array, expected an object");
}

TEST(JsonFields, ReadsWhatIsThere) {
  const nlohmann::json object = parse_json(
      R"({"i":-5,"f":0.5,"one":1,"b":false,"s":"text","o":{"x":1},"n":null})", "config.json");
  const JsonFields fields(object, "config.json");
  EXPECT_EQ(fields.get_int("i", -5, -5), -5);
  EXPECT_EQ(fields.find_number("f", 0, 1), 0.5);
  EXPECT_EQ(fields.get_number("one", 0, 1), 1.0);
  EXPECT_EQ(fields.find_bool("b"), false);
  EXPECT_EQ(fields.get_string("s"), "text");
  ASSERT_NE(fields.find("o"), nullptr);
  EXPECT_EQ((*fields.find("o"))["x"], 1);
  EXPECT_TRUE(fields.has("i"));
}

TEST(JsonFields, TakesNullAndAbsentAlike) {
  const nlohmann::json object = parse_json(R"({"n":null})", "config.json");
  const JsonFields fields(object, "config.json");
  for (const char* field : {"n", "absent"}) {
    EXPECT_FALSE(fields.has(field));
    EXPECT_EQ(fields.find(field), nullptr);
    EXPECT_EQ(fields.find_int(field, 0, 1), std::nullopt);
    EXPECT_EQ(fields.find_number(field, 0, 1), std::nullopt);
    EXPECT_EQ(fields.find_bool(field), std::nullopt);
    EXPECT_EQ(fields.find_string(field), std::nullopt);
    const std::string missing = "config.json: " + std::string(field) + " is missing";
    EXPECT_EQ(error_of([&] { fields.get_int(field, 0, 1); }).what(), missing);
    EXPECT_EQ(error_of([&] { fields.get_number(field, 0, 1); }).what(), missing);
    EXPECT_EQ(error_of([&] { fields.get_string(field); }).what(), missing);
  }
}

TEST(JsonFields, NamesTheRange) {
  EXPECT_EQ(message_of_int("99999999"),
            "config.json: hidden_size is 99999999, expected 1 to 1048576");
  EXPECT_EQ(message_of_int("0"), "config.json: hidden_size is 0, expected 1 to 1048576");
  EXPECT_EQ(message_of_int("-3"), "config.json: hidden_size is -3, expected 1 to 1048576");
}

TEST(JsonFields, TakesNoOtherNumberForAnInteger) {
  EXPECT_EQ(message_of_int("1.5"), "config.json: hidden_size is 1.5, expected an integer");
  EXPECT_EQ(message_of_int("64.0"), "config.json: hidden_size is 64.0, expected an integer");
  EXPECT_EQ(message_of_int("1e3"), "config.json: hidden_size is 1000.0, expected an integer");
  // 2^64 + 64 would come out as 64 when cut to 64 bits, 2^64 - 1 as -1.
  EXPECT_NE(message_of_int("18446744073709551680").find("expected an integer"), std::string::npos);
  EXPECT_EQ(message_of_int("18446744073709551615"),
            "config.json: hidden_size is 18446744073709551615, expected 1 to 1048576");
  EXPECT_EQ(message_of_int("true"), "config.json: hidden_size is true, expected an integer");
  EXPECT_EQ(message_of_int("\"64\""), "config.json: hidden_size is \"64\", expected an integer");
  EXPECT_EQ(message_of_int("[64]"), "config.json: hidden_size is an array, expected an integer");
  EXPECT_EQ(message_of_int("{}"), "config.json: hidden_size is an object, expected an integer");
}

TEST(JsonFields, HoldsTheWholeRangeOfIntegers) {
  const nlohmann::json object = parse_json(
      R"({"max":9223372036854775807,"min":-9223372036854775808,"more":9223372036854775808})", "x");
  const JsonFields fields(object, "x");
  EXPECT_EQ(fields.get_int("max", kMinInt, kMaxInt), kMaxInt);
  EXPECT_EQ(fields.get_int("min", kMinInt, kMaxInt), kMinInt);
  EXPECT_EQ(error_of([&] { fields.get_int("more", kMinInt, kMaxInt); }).code(), ErrorCode::model);
}

TEST(JsonFields, NamesTheWrongType) {
  const nlohmann::json object =
      parse_json(R"({"rms_norm_eps":"abc","tie":1,"kind":7})", "config.json");
  const JsonFields fields(object, "config.json");
  EXPECT_STREQ(error_of([&] { fields.get_number("rms_norm_eps", 0, 1); }).what(),
               "config.json: rms_norm_eps is \"abc\", expected a number");
  EXPECT_STREQ(error_of([&] { fields.find_bool("tie"); }).what(),
               "config.json: tie is 1, expected true or false");
  EXPECT_STREQ(error_of([&] { fields.get_string("kind"); }).what(),
               "config.json: kind is 7, expected a string");
  EXPECT_STREQ(error_of([&] { fields.get_number("kind", 1e-6, 0.5); }).what(),
               "config.json: kind is 7, expected 1e-06 to 0.5");
}

TEST(JsonFields, ShortensLongValuesBetweenCharacters) {
  std::string umlauts = "x";
  for (int i = 0; i < 50000; ++i) umlauts += "\xc3\xa4";
  const std::string message = message_of_int("\"" + umlauts + "\"");
  EXPECT_LT(message.size(), 300U);
  const std::string cut = message.substr(0, message.find("..."));
  EXPECT_EQ(cut.substr(cut.size() - 2), "\xc3\xa4");
}

}  // namespace
}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
#include "engine/text/json_text.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

JsonValue parse(std::string_view text) {
  std::string problem;
  std::optional<JsonValue> value = read_json(text, {}, &problem);
  EXPECT_TRUE(value) << text << ": " << problem;
  return value.value_or(JsonValue{});
}

std::string problem_of(std::string_view text, const JsonLimits& limits = {}) {
  std::string problem;
  EXPECT_FALSE(read_json(text, limits, &problem)) << text;
  return problem;
}

TEST(JsonText, KeepsKeyOrderAndNumberSpelling) {
  const std::string text =
      R"({"z":1e2,"a":123456789012345678901234567890,"m":[1.50,-0,true,null],"b":{}})";
  EXPECT_EQ(write_json(parse(text), kAsSpeltJson), text);
}

TEST(JsonText, TakesTheLastOfEqualKeysAtTheFirstPlace) {
  EXPECT_EQ(write_json(parse(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"a":6})"), kCompactJson),
            R"({"a":6,"b":5,"c":4})");
}

TEST(JsonText, WritesAsPythonDoes) {
  const JsonValue value =
      parse("{\"b\":[1,\"\\u00e9\\n/\\u007f\\u0001\"],\"a\":{\"k\":1e5},\"Ä\":[]}");
  EXPECT_EQ(write_json(value, kPythonJson),
            "{\"b\": [1, \"\xC3\xA9\\n/\x7F\\u0001\"], \"a\": {\"k\": 100000.0}, \"Ä\": []}");
  EXPECT_EQ(write_json(value, kCanonicalJson),
            "{\"a\":{\"k\":100000.0},\"b\":[1,\"\xC3\xA9\\n/\x7F\\u0001\"],\"Ä\":[]}");
}

TEST(JsonText, SpellsNumbersAsPythonDoes) {
  const std::pair<const char*, const char*> kCases[] = {
      {"0", "0"},
      {"-0", "0"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"1.50", "1.5"},
      {"1e2", "100.0"},
      {"1E+5", "100000.0"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1.5e-7", "1.5e-07"},
      {"0.1", "0.1"},
      {"3.14159", "3.14159"},
      {"5e-324", "5e-324"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e400", "Infinity"},
      {"-1e400", "-Infinity"},
  };
  for (const auto& [spelling, expected] : kCases) EXPECT_EQ(python_number(spelling), expected);
}

TEST(JsonText, ReadsEscapes) {
  EXPECT_EQ(parse(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac")").text, "\"\\/\b\f\n\r\tAé€");
  EXPECT_EQ(parse(R"("\ud83d\ude00")").text, "\xF0\x9F\x98\x80");
  EXPECT_EQ(parse(R"("\ud83dx\ude00\ud83d\u0041")").text,
            "\uFFFDx\uFFFD\uFFFD"
            "A");
}

TEST(JsonText, FindsMembers) {
  const JsonValue value = parse(R"({"a":null,"b":"x"})");
  ASSERT_NE(value.find("a"), nullptr);
  EXPECT_TRUE(value.find("a")->is(JsonKind::null));
  EXPECT_EQ(value.find("b")->text, "x");
  EXPECT_EQ(value.find("c"), nullptr);
  EXPECT_EQ(parse("[1]").find("a"), nullptr);
}

TEST(JsonText, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "01",
                           "-",
                           "1.",
                           "1e",
                           ".5",
                           "+1",
                           "tru",
                           "nul",
                           "'a'",
                           "\"a",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\t\"",
                           "1 2",
                           "[1 2]",
                           "{\"a\" 1}",
                           "NaN",
                           "Infinity",
                           "\xEF\xBB\xBF{}",
                           "\"\xE2\x82\"",
                           "\"\xED\xA0\x80\""}) {
    EXPECT_NE(problem_of(text), "") << text;
  }
  EXPECT_EQ(problem_of("[1,,2]"), "a JSON value was expected at byte 3");
  EXPECT_EQ(problem_of("\"ab\xFF\""), "ill-formed UTF-8 at byte 3");
}

TEST(JsonText, RefusesWhatIsTooDeepOrTooMany) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(read_json(nested(64), {}, nullptr));
  EXPECT_EQ(problem_of(nested(65)), "JSON nested deeper than 64 at byte 64");
  EXPECT_EQ(problem_of(std::string(100000, '[')), "JSON nested deeper than 64 at byte 64");

  std::string keys = "{";
  for (int i = 0; i < 4097; ++i) keys += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  EXPECT_EQ(problem_of(keys + "}").rfind("a JSON object with more than 4096 keys", 0), 0U);
  EXPECT_EQ(problem_of("[1,2,3]", {.max_values = 3}), "more than 3 JSON values at byte 5");
}

}  // namespace
}  // namespace penstock

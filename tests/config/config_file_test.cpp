// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"

namespace penstock {
namespace {

std::string parse_error(const std::string& text) {
  try {
    parse_config(text, "config.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(ConfigFile, ReadsFlatToml) {
  const auto entries = parse_config(
      "# comment\n"
      "\n"
      "threads = 4\r\n"
      "  ram=\"24G\"   # behind a value\n"
      "model = 'C:\\models # 1'\n"
      "isa = \"a \\\"quoted\\\" \\\\ name\"\n"
      "streaming = true",
      "config.toml");
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].key, "threads");
  EXPECT_EQ(entries[0].value, "4");
  EXPECT_EQ(entries[0].line, 3);
  EXPECT_EQ(entries[1].key, "ram");
  EXPECT_EQ(entries[1].value, "24G");
  EXPECT_EQ(entries[2].value, "C:\\models # 1");
  EXPECT_EQ(entries[3].value, "a \"quoted\" \\ name");
  EXPECT_EQ(entries[4].value, "true");
  EXPECT_EQ(entries[4].line, 7);
}

TEST(ConfigFile, IsEmptyWithoutEntries) {
  EXPECT_TRUE(parse_config("", "config.toml").empty());
  EXPECT_TRUE(parse_config("\n# nothing\n", "config.toml").empty());
}

TEST(ConfigFile, NamesLineAndProblem) {
  EXPECT_EQ(parse_error("\n[run]\nthreads = 4\n"),
            "config.toml:2: sections are not used: keys stand at the top level");
  EXPECT_EQ(parse_error("threads"), "config.toml:1: expected key = value");
  EXPECT_EQ(parse_error("= 4"), "config.toml:1: expected key = value");
  EXPECT_EQ(parse_error("a.b = 4"), "config.toml:1: expected key = value");
  EXPECT_EQ(parse_error("threads = # 4"), "config.toml:1: the value is missing");
  EXPECT_EQ(parse_error("ram = 24G"), "config.toml:1: the value 24G needs quotes: \"24G\"");
  EXPECT_EQ(parse_error("ram = \"24G"), "config.toml:1: the closing quote is missing");
  EXPECT_EQ(parse_error("ram = \"24G\" 5"), "config.toml:1: text behind the closing quote");
  EXPECT_EQ(
      parse_error("model = \"C:\\x\""),
      "config.toml:1: only \\\" and \\\\ may follow a backslash; or write the value in single "
      "quotes");
  EXPECT_EQ(parse_error("threads = 1\nram = \"2G\"\nthreads = 2\n"),
            "config.toml:3: threads is set twice, first in line 1");
}

TEST(ConfigFile, NamesAFileThatCannotBeRead) {
  try {
    read_config_file("/nonexistent/penstock.toml");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "/nonexistent/penstock.toml: cannot read the config file: No such file or "
                 "directory");
  }
  EXPECT_THROW(read_config_file("/"), Error);
}

}  // namespace
}  // namespace penstock

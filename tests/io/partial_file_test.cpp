// SPDX-License-Identifier: Apache-2.0
#include "engine/io/partial_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PartialFile, IsGoneUnlessCommitted) {
  const TempDir dir;
  const std::string text = "words";
  {
    PartialFile file(dir.path("a"));
    file.write(0, std::as_bytes(std::span(text)));
    file.sync();
    EXPECT_EQ(text_of(file.partial_path()), text);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  PartialFile file(dir.path("a"));
  file.write(0, std::as_bytes(std::span(text)));
  file.commit();
  EXPECT_EQ(text_of(dir.path("a")), text);
}

TEST(PartialFile, NamesWhatCannotBeWritten) {
  const TempDir dir;
  const Error error = error_of([&] { PartialFile(dir.path("absent/a")); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.what(), dir.path("absent/a") + ": cannot be created: No such file or directory");
}

}  // namespace
}  // namespace penstock

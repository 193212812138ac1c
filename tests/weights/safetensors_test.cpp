// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/safetensors.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/memory_source.h"

namespace penstock {
namespace {

struct Seen {
  std::string name;
  TensorType type;
  std::vector<std::int64_t> shape;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// A file of the header and `data_bytes` of data.
std::vector<Seen> parse(const std::string& json, std::uint64_t data_bytes) {
  std::vector<Seen> seen;
  parse_safetensors_header(
      json, "x.safetensors", 8 + json.size() + data_bytes, [&](const SafetensorsEntry& entry) {
        seen.push_back(
            {std::string(entry.name), entry.type, entry.shape, entry.offset, entry.bytes});
      });
  return seen;
}

std::string message_of(const std::string& json, std::uint64_t data_bytes) {
  try {
    parse(json, data_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, VisitsInFileOrderAndSkipsMetadata) {
  const std::string json = R"({"__metadata__":{"format":"pt","n":{"deep":[1,{"x":null}]}},)"
                           R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                           R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"},)"
                           R"("empty":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]}}   )";
  const std::vector<Seen> seen = parse(json, 16);
  ASSERT_EQ(seen.size(), 3U);
  const std::uint64_t start = 8 + json.size();
  EXPECT_EQ(seen[0].name, "a");
  EXPECT_EQ(seen[0].type, TensorType::f32);
  EXPECT_TRUE(seen[0].shape.empty());
  EXPECT_EQ(seen[0].offset, start);
  EXPECT_EQ(seen[1].name, "b");
  EXPECT_EQ(seen[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(seen[1].offset, start + 4);
  EXPECT_EQ(seen[1].bytes, 12U);
  EXPECT_EQ(seen[2].name, "empty");
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(parse("{}", 0).empty());
  EXPECT_EQ(message_of("{}", 1),
            "x.safetensors: the last tensor ends at 10 but the file has 11 bytes");
}

TEST(Safetensors, KeepsOffsetsBeyond32Bits) {
  const std::vector<Seen> seen =
      parse(R"({"a":{"dtype":"U8","shape":[5000000000],"data_offsets":[0,5000000000]},)"
            R"("b":{"dtype":"F32","shape":[70000,70000],"data_offsets":[5000000000,24600000000]}})",
            24'600'000'000);
  EXPECT_EQ(seen[1].bytes, 19'600'000'000U);
  EXPECT_EQ(seen[1].offset - seen[0].offset, 5'000'000'000U);
}

struct BadHeader {
  const char* json;
  std::uint64_t data_bytes;
  const char* message;  // part of it
};

TEST(Safetensors, NamesWhatIsWrong) {
  const BadHeader cases[] = {
      {"", 0, "x.safetensors: the header is not valid JSON at byte"},
      {"{", 0, "not valid JSON at byte"},
      {"{} x", 0, "not valid JSON at byte"},
      {"[]", 0, "the header is an array, expected an object"},
      {"7", 0, "the header is 7, expected an object"},
      {R"({"__metadata__":3})", 0, "__metadata__ is 3, expected an object"},
      {R"({"t":[1]})", 0, "tensor t is an array, expected an object"},
      {R"({"t":null})", 0, "tensor t is null, expected an object"},
      {R"({"":{}})", 0, "a tensor name of 0 bytes, expected 1 to 512"},
      {R"({"a\nb":{}})", 0, "a tensor name of 3 bytes"},
      {R"({"t":{}})", 0, "tensor t has no dtype"},
      {R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor t has no shape"},
      {R"({"t":{"dtype":"F32","shape":[1]}})", 4, "tensor t has no data_offsets"},
      {R"({"t":{"dtype":"F32","dtype":"F32"}})", 4, "tensor t has dtype twice"},
      {R"({"t":{"dtype":"F32","strides":[1]}})", 4, "tensor t has an unknown field"},
      {R"({"t":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1,
       R"(tensor t has the unknown dtype "F8_E4M3")"},
      {R"({"t":{"dtype":32}})", 1, "tensor t has 32 as dtype, expected a string"},
      {R"({"t":{"dtype":"U8","shape":4}})", 1, "tensor t has 4 as shape, expected an array"},
      {R"({"t":{"dtype":"U8","shape":{}}})", 1, "has an object as shape, expected an array"},
      {R"({"t":{"dtype":"U8","shape":[-4]}})", 1, "tensor t has -4 in its shape"},
      {R"({"t":{"dtype":"U8","shape":[4.0]}})", 1, "tensor t has 4.0 in its shape"},
      {R"({"t":{"dtype":"U8","shape":[[4]]}})", 1, "tensor t has an array in its shape"},
      {R"({"t":{"dtype":"U8","shape":[true]}})", 1, "tensor t has a boolean in its shape"},
      {R"({"t":{"dtype":"U8","shape":[18446744073709551615]}})", 1,
       "tensor t has 18446744073709551615 in its shape"},
      {R"({"t":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1]}})", 1, "more than 8 dimensions"},
      {R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "tensor t is F32 [4294967296, 4294967296], which is more bytes than 64 bits can count"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "fewer than two data_offsets"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1,
       "tensor t has 2 in data_offsets, expected two byte offsets"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":["0",1]}})", 1,
       "tensor t has a string in data_offsets"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 1,
       "tensor t has data_offsets [2, 1], which end before they begin"},
      {R"({"t":{"dtype":"BF16","shape":[3],"data_offsets":[0,4]}})", 4,
       "tensor t has 4 bytes, but BF16 [3] takes 6"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor t is there twice"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("u":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "tensor u begins at 115 but the data before it ends at 114"},
      {R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("u":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor u begins at 114 but the data before it ends at 115"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
       "tensor t begins at 62 but the data before it ends at 61"},
      {R"({"t":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 5,
       "tensor t ends at 70 but the file has 66 bytes"},
      {R"({"t":{"dtype":"U8","shape":[9223372036854775807],)"
       R"("data_offsets":[9223372036854775808,18446744073709551615]}})",
       5, "tensor t ends at 18446744073709551615 but the file has"},
  };
  for (const BadHeader& bad : cases) {
    const std::string message = message_of(bad.json, bad.data_bytes);
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.json << "\n" << message;
    EXPECT_EQ(message.rfind("x.safetensors: ", 0), 0U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Safetensors, CutsLongUnknownDtypes) {
  const std::string json = R"({"t":{"dtype":")" + std::string(100'000, 'x') + R"("}})";
  EXPECT_LT(message_of(json, 0).size(), 200U);
}

MemorySource source_of(const std::string& bytes) {
  const auto all = std::as_bytes(std::span(bytes));
  return {"y.safetensors", {all.begin(), all.end()}};
}

std::string read_message(const std::string& file) {
  try {
    read_safetensors_header(source_of(file), [](const SafetensorsEntry&) {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, ReadsWhatTheBuilderWrites) {
  BuiltShard shard{
      "y.safetensors",
      {float_tensor("a", TensorType::f32, {3, 5}), float_tensor("b", TensorType::bf16, {7})},
      13};
  std::vector<std::uint64_t> offsets;
  read_safetensors_header(source_of(shard_bytes(shard)),
                          [&](const SafetensorsEntry& entry) { offsets.push_back(entry.offset); });
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{offset_of(shard, "a"), offset_of(shard, "b")}));
}

TEST(Safetensors, ChecksTheHeaderLengthBeforeReadingIt) {
  EXPECT_EQ(read_message("1234567"), "y.safetensors: has 7 bytes, too few for a safetensors file");
  const std::string none(8, '\0');
  EXPECT_EQ(read_message(none), "y.safetensors: a header of 0 bytes, expected 2 to 100000000");
  const std::string huge = std::string("\x01\xE1\xF5\x05\0\0\0\0", 8) + "{}";  // 100,000,001
  EXPECT_EQ(read_message(huge),
            "y.safetensors: a header of 100000001 bytes, expected 2 to 100000000");
  const std::string wrapped(16, '\xFF');
  EXPECT_EQ(read_message(wrapped),
            "y.safetensors: a header of 18446744073709551615 bytes, expected 2 to 100000000");
  const std::string beyond = std::string("\x03\0\0\0\0\0\0\0", 8) + "{}";
  EXPECT_EQ(read_message(beyond), "y.safetensors: the header ends at 11 but the file has 10 bytes");
}

}  // namespace
}  // namespace penstock

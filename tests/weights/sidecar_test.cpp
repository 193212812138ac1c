// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/sidecar.h"

#include "engine/weights/bf12.h"
#include "engine/weights/int8_rows.h"
#include "engine/weights/spine_segments.h"
#include "tests/weights/sidecar_fixture.h"

namespace penstock::test {
namespace {

using Sidecar = SidecarTest;

constexpr WeightFormat kFormats[] = {WeightFormat::bf12, WeightFormat::int8_rows};

std::string bytes_of(const TensorIndex& index, const std::string& name) {
  const TensorInfo& info = index.get(name);
  std::string bytes(static_cast<std::size_t>(info.bytes), '\0');
  index.source(info.source).read(info.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

const unsigned char* unsigned_bytes(const std::string& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

TEST_F(Sidecar, HoldsEveryMatrixBitForBitInBf12) {
  convert(WeightFormat::bf12);
  const TensorIndex sidecar = open(WeightFormat::bf12);
  for (const SidecarFile& file : files_) {
    for (const SidecarMatrix& matrix : file.matrices) {
      const std::string data = bytes_of(sidecar, matrix.name + ".bf12");
      const std::string pieces = bytes_of(sidecar, matrix.name + ".bf12_pieces");
      WeightMatrix view{unsigned_bytes(data), unsigned_bytes(pieces), matrix.rows, matrix.cols,
                        WeightFormat::bf12};
      view.pieces = static_cast<std::uint32_t>(pieces.size() / kBf12PieceBytes);
      EXPECT_EQ(view.pieces > 0, matrix.name == "l0.o.weight") << matrix.name;
      std::string decoded;
      std::vector<std::uint16_t> row(static_cast<std::size_t>(matrix.cols));
      for (std::int32_t r = 0; r < matrix.rows; ++r) {
        decode_bf12_row(view, r, row);
        decoded.append(reinterpret_cast<const char*>(row.data()), row.size() * 2);
      }
      EXPECT_EQ(decoded, bytes_of(index(), matrix.name)) << matrix.name;
    }
  }
}

TEST_F(Sidecar, HoldsEveryMatrixQuantisedInInt8) {
  convert(WeightFormat::int8_rows);
  const TensorIndex sidecar = open(WeightFormat::int8_rows);
  for (const SidecarFile& file : files_) {
    for (const SidecarMatrix& matrix : file.matrices) {
      const auto cols = static_cast<std::size_t>(matrix.cols);
      const std::string published = bytes_of(index(), matrix.name);
      std::string data;
      std::string scales;
      for (std::size_t r = 0; r < static_cast<std::size_t>(matrix.rows); ++r) {
        std::vector<float> row(cols);
        for (std::size_t c = 0; c < cols; ++c) {
          std::memcpy(reinterpret_cast<char*>(&row[c]) + 2, &published[(r * cols + c) * 2], 2);
        }
        std::vector<std::int8_t> quantised(cols);
        const float scale = quantise_int8_row(row, quantised.data());
        data.append(reinterpret_cast<const char*>(quantised.data()), cols);
        scales.append(reinterpret_cast<const char*>(&scale), sizeof scale);
      }
      EXPECT_EQ(bytes_of(sidecar, matrix.name + ".int8"), data) << matrix.name;
      EXPECT_EQ(bytes_of(sidecar, matrix.name + ".int8_scale"), scales) << matrix.name;
    }
  }
}

TEST_F(Sidecar, LaysMatricesInOrderOfUseFromAPageOn) {
  convert(WeightFormat::bf12);
  const TensorIndex sidecar = open(WeightFormat::bf12);
  std::uint64_t at = sidecar.get("l0.o.weight.bf12").offset;
  EXPECT_EQ(at % 4096, 0U);
  for (const char* name : {"l0.o.weight.bf12", "l0.o.weight.bf12_pieces", "l0.q.weight.bf12"}) {
    EXPECT_EQ(sidecar.get(name).offset, at) << name;
    at += sidecar.get(name).bytes;
  }
}

// A spine that reads any range of rows gets their pieces with them.
TEST_F(Sidecar, SuppliesRangesOfRows) {
  shards_[0].tensors[1] = wide_tensor("l0.o.weight", {5, 300}, 50);
  // Rows 1 and 3 without raw blocks.
  const std::string plain = float_tensor("x", TensorType::bf16, {1, 300}).bytes;
  for (const std::size_t row : {1U, 3U}) {
    shards_[0].tensors[1].bytes.replace(row * 600, 600, plain);
  }
  write();
  convert(WeightFormat::bf12);
  const TensorIndex sidecar = open(WeightFormat::bf12);
  const std::string published = bytes_of(index(), "l0.o.weight");
  for (std::int32_t begin = 0; begin < 5; ++begin) {
    for (std::int32_t end = begin + 1; end <= 5; ++end) {
      const std::vector<SpineSegment> segments = plan_segments(
          {&index(), &sidecar}, {{"unit", {{"l0.o.weight", 5, 300, begin, end - begin}}}});
      std::vector<std::byte> memory(static_cast<std::size_t>(segments[0].memory_bytes));
      for (const SegmentRead& read : segments[0].reads) {
        read.source->read(read.offset, std::span(memory).subspan(
                                           static_cast<std::size_t>(read.base + read.offset % 4096),
                                           static_cast<std::size_t>(read.bytes)));
      }
      const WeightMatrix view = segment_views(segments[0], memory.data())[0];
      std::string decoded;
      std::vector<std::uint16_t> row(300);
      for (std::int32_t r = 0; r < end - begin; ++r) {
        decode_bf12_row(view, r, row);
        decoded.append(reinterpret_cast<const char*>(row.data()), row.size() * 2);
      }
      EXPECT_EQ(decoded, published.substr(static_cast<std::size_t>(begin) * 600, decoded.size()))
          << "rows " << begin << " to " << end;
    }
  }
}

TEST_F(Sidecar, SaysThatThereIsNone) {
  const Error error = error_of([&] { open(WeightFormat::bf12); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  EXPECT_EQ(error.what(), dir() +
                              ": there is no bf12 sidecar; `penstock convert MODEL --spine "
                              "bf12` makes it");
}

// Spoils the sidecar, then opens it.
template <class Spoil>
void expect_refusal(const TensorIndex& model, const std::string& dir, WeightFormat format,
                    const std::vector<SidecarFile>& files, const std::string& message,
                    const Spoil& spoil) {
  ConvertOptions options{.format = format, .dir = dir, .budget_bytes = 0, .opener = plain_opener()};
  convert_spine(model, files, options);
  spoil();
  const Error error = error_of([&] { open_sidecar(model, dir, format, files, plain_opener()); });
  EXPECT_EQ(error.code(), ErrorCode::model);
  const std::string text = error.what();
  EXPECT_NE(text.find(message), std::string::npos) << text;
  EXPECT_NE(text.find("; run `penstock convert MODEL --spine "), std::string::npos) << text;
}

TEST_F(Sidecar, SaysWhichFileIsMissing) {
  for (const WeightFormat format : kFormats) {
    expect_refusal(index(), dir(), format, files_, "layer-0001.safetensors is missing",
                   [&] { std::filesystem::remove(path("layer-0001.safetensors")); });
  }
}

TEST_F(Sidecar, RefusesATruncatedFile) {
  for (const WeightFormat format : kFormats) {
    expect_refusal(index(), dir(), format, files_, "but the file has", [&] {
      const std::string file = path("lm_head.safetensors");
      std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    });
  }
}

TEST_F(Sidecar, RefusesTheOtherFormat) {
  convert(WeightFormat::bf12);
  const Error error = error_of([&] { open(WeightFormat::int8_rows); });
  EXPECT_EQ(std::string(error.what()),
            "layer-0000.safetensors: __metadata__ has \"bf12\" as spine, expected \"int8\"; run "
            "`penstock convert MODEL --spine int8` again");
}

TEST_F(Sidecar, RefusesAnotherLayout) {
  expect_refusal(index(), dir(), WeightFormat::bf12, files_,
                 "__metadata__ has \"2\" as layout, expected \"1\"", [&] {
                   const std::string file = path("layer-0000.safetensors");
                   std::string bytes = file_text(file);
                   const std::string key = "\"layout\":\"1";
                   bytes.at(bytes.find(key) + key.size() - 1) = '2';
                   write_file(file, bytes);
                 });
}

TEST_F(Sidecar, RefusesAFileWithoutMetadata) {
  expect_refusal(index(), dir(), WeightFormat::bf12, files_, "expected \"penstock\"", [&] {
    write_file(path("lm_head.safetensors"),
               shard_bytes({"", {float_tensor("head.weight", TensorType::f32, {2})}}));
  });
}

TEST_F(Sidecar, RefusesACheckpointThatLiesElsewhere) {
  convert(WeightFormat::bf12);
  shards_[1].padding = 8;
  write();
  const Error error = error_of([&] { open(WeightFormat::bf12); });
  EXPECT_NE(std::string(error.what())
                .find("layer-0001.safetensors: was made from another checkpoint (origin "),
            std::string::npos)
      << error.what();
}

// A fine-tuned model has the same headers, but no row is the same.
TEST_F(Sidecar, RefusesACheckpointWithOtherValues) {
  for (const WeightFormat format : kFormats) {
    convert(format);
    for (std::size_t i = 0; i < shards_[0].tensors[0].bytes.size(); i += 2) {
      shards_[0].tensors[0].bytes[i] ^= 1;
    }
    write();
    const Error error = error_of([&] { open(format); });
    EXPECT_NE(std::string(error.what()).find("layer-0000.safetensors: row "), std::string::npos)
        << error.what();
    std::filesystem::remove_all(dir());
  }
}

TEST_F(Sidecar, RefusesAForeignFile) {
  expect_refusal(index(), dir(), WeightFormat::bf12, files_, "stray.safetensors: is no part of",
                 [&] {
                   write_file(path("stray.safetensors"),
                              shard_bytes({"", {float_tensor("x", TensorType::f32, {2})}}));
                 });
}

TEST_F(Sidecar, RefusesAMatrixOfAnotherShape) {
  convert(WeightFormat::bf12);
  std::vector<SidecarFile> files = files_;
  files[2].matrices[0].rows = 299;
  const Error error =
      error_of([&] { open_sidecar(index(), dir(), WeightFormat::bf12, files, plain_opener()); });
  EXPECT_EQ(
      std::string(error.what())
          .find("b.safetensors: tensor head.weight is BF16 [300, 96], expected BF16 [299, 96]"),
      0U)
      << error.what();
}

}  // namespace
}  // namespace penstock::test

// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint of two shards whose matrices become a sidecar of three files. One owner thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/weights/convert.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace penstock::test {

inline SourceOpener plain_opener() {
  return [](const std::string& path) { return open_source(path); };
}

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// BF16 values: most like those of float_tensor, every `wide`-th column far smaller.
inline BuiltTensor wide_tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                               std::size_t wide) {
  BuiltTensor tensor = float_tensor(name, TensorType::bf16, shape);
  const auto cols = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i * 2 < tensor.bytes.size(); ++i) {
    if (i % cols % wide == 0) tensor.bytes[i * 2 + 1] = static_cast<char>(0x10);
  }
  return tensor;
}

class SidecarTest : public testing::Test {
 protected:
  SidecarTest() { write(); }

  void write() {
    write_checkpoint(model_.path(), shards_);
    index_.emplace(TensorIndex::open(model_.path(), plain_opener()));
  }
  const TensorIndex& index() const { return *index_; }
  std::string dir() const { return model_.path("penstock/out"); }
  std::string path(const std::string& file) const { return dir() + "/" + file; }

  ConvertOptions options(WeightFormat format) const {
    return {.format = format, .dir = dir(), .budget_bytes = 1U << 30U, .opener = plain_opener()};
  }
  ConvertResult convert(WeightFormat format) const {
    return convert_spine(index(), files_, options(format));
  }
  TensorIndex open(WeightFormat format) const {
    return open_sidecar(index(), dir(), format, files_, plain_opener());
  }
  // The names in the sidecar's folder, sorted.
  std::vector<std::string> listing() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Changes one byte of a file.
  static void flip(const std::string& file, std::uint64_t offset) {
    std::string bytes = file_text(file);
    bytes.at(static_cast<std::size_t>(offset)) ^= 1;
    write_file(file, bytes);
  }

  std::vector<BuiltShard> shards_ = {{"a.safetensors",
                                      {float_tensor("l0.q.weight", TensorType::bf16, {37, 192}),
                                       wide_tensor("l0.o.weight", {5, 300}, 50)}},
                                     {"b.safetensors",
                                      {float_tensor("l1.q.weight", TensorType::bf16, {64, 128}),
                                       float_tensor("head.weight", TensorType::bf16, {300, 96}),
                                       float_tensor("norm.weight", TensorType::f32, {96})}}};
  std::vector<SidecarFile> files_ = {
      {"layer-0000.safetensors", {{"l0.o.weight", 5, 300}, {"l0.q.weight", 37, 192}}},
      {"layer-0001.safetensors", {{"l1.q.weight", 64, 128}}},
      {"lm_head.safetensors", {{"head.weight", 300, 96}}}};
  TempDir model_;

 private:
  std::optional<TensorIndex> index_;
};

}  // namespace penstock::test

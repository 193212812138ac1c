// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sparse_checkpoint.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "engine/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw Error(ErrorCode::io, path.string() + ": cannot be written");
}

}  // namespace

void write_sparse_k3(const std::string& dir, const SyntheticSize& size) {
  const std::string text = synthetic_config(SyntheticModel::sparse_k3, size);
  const std::vector<SyntheticShard> shards =
      published_shards(parse_model_config(text, "", "config.json"));
  fs::create_directories(dir);
  for (const SyntheticShard& shard : shards) {
    const fs::path path = fs::path(dir) / shard.file;
    write_text(path, shard.header);
    std::error_code error;
    fs::resize_file(path, shard.bytes(), error);
    if (error) throw Error(ErrorCode::io, path.string() + ": " + error.message());
  }
  write_index_and_config(dir, shards, text);
}

void write_index_and_config(const std::string& dir, const std::vector<SyntheticShard>& shards,
                            const std::string& config) {
  write_text(fs::path(dir) / "model.safetensors.index.json", synthetic_index(shards));
  write_text(fs::path(dir) / "config.json", config);  // last: without it there is no model
}

}  // namespace penstock

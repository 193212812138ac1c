// SPDX-License-Identifier: Apache-2.0
#include "tests/support/checkpoint_builder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "engine/base/buffer.h"
#include "engine/weights/safetensors.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kExperts = ".block_sparse_moe.experts.";

// Numbers that depend on the name and the place alone.
class Values {
 public:
  explicit Values(const std::string& name) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33U);
  }

 private:
  std::uint64_t state_ = 14695981039346656037U;  // FNV-1a of the name, then a linear generator
};

std::size_t element_count(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
  return count;
}

std::string header_of(const BuiltShard& shard) {
  std::string json = "{";
  std::size_t offset = 0;
  for (const BuiltTensor& tensor : shard.tensors) {
    if (json.size() > 1) json += ",";
    json += nlohmann::json(tensor.name).dump() + R"(:{"dtype":")" + tensor_type_name(tensor.type) +
            R"(","shape":)" + nlohmann::json(tensor.shape).dump() + R"(,"data_offsets":[)" +
            std::to_string(offset) + "," + std::to_string(offset + tensor.bytes.size()) + "]}";
    offset += tensor.bytes.size();
  }
  json += "}";
  json.append(round_up(json.size(), 8) - json.size() + shard.padding, ' ');
  return json;
}

bool is_expert(const BuiltTensor& tensor) {
  return tensor.name.find(kExperts) != std::string::npos;
}

BuiltTensor byte_tensor(const std::string& name, std::int64_t rows, std::int64_t cols,
                        std::uint32_t lowest, std::uint32_t count) {
  BuiltTensor tensor{name, TensorType::u8, {rows, cols}, {}};
  tensor.bytes.resize(element_count(tensor.shape));
  Values values(name);
  for (char& byte : tensor.bytes) byte = static_cast<char>(lowest + values.next() % count);
  return tensor;
}

}  // namespace

std::string shard_bytes(const BuiltShard& shard) {
  const std::string header = header_of(shard);
  std::string bytes(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  }
  bytes += header;
  for (const BuiltTensor& tensor : shard.tensors) bytes += tensor.bytes;
  return bytes;
}

std::uint64_t offset_of(const BuiltShard& shard, const std::string& tensor) {
  std::uint64_t offset = kLengthBytes + header_of(shard).size();
  for (const BuiltTensor& candidate : shard.tensors) {
    if (candidate.name == tensor) return offset;
    offset += candidate.bytes.size();
  }
  throw std::logic_error("no tensor " + tensor + " in " + shard.file);
}

void sort_as_published(BuiltShard& shard) {
  const auto rank = [](TensorType type) {
    return type == TensorType::f32 ? 0 : type == TensorType::bf16 ? 1 : 2;
  };
  std::sort(shard.tensors.begin(), shard.tensors.end(),
            [&](const BuiltTensor& a, const BuiltTensor& b) {
              return std::pair(rank(a.type), a.name) < std::pair(rank(b.type), b.name);
            });
}

void pad_to_residue(BuiltShard& shard, const std::string& tensor, std::size_t residue) {
  shard.padding = 0;
  const std::size_t found = offset_of(shard, tensor) % kPageBytes;
  shard.padding = (residue + kPageBytes - found) % kPageBytes;
}

std::vector<BuiltShard> read_checkpoint(const std::string& dir) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<BuiltShard> shards;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    BuiltShard& shard = shards.emplace_back(BuiltShard{path.filename().string(), {}});
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    parse_safetensors_header(
        std::string_view(bytes).substr(kLengthBytes, length), shard.file, bytes.size(),
        [&](const SafetensorsEntry& entry) {
          shard.tensors.push_back({std::string(entry.name), entry.type, entry.shape,
                                   bytes.substr(entry.offset, entry.bytes)});
        });
  }
  return shards;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void write_checkpoint(const std::string& dir, const std::vector<BuiltShard>& shards,
                      bool with_index) {
  nlohmann::json map = nlohmann::json::object();
  for (const BuiltShard& shard : shards) {
    write_file((fs::path(dir) / shard.file).string(), shard_bytes(shard));
    for (const BuiltTensor& tensor : shard.tensors) map[tensor.name] = shard.file;
  }
  if (!with_index) return;
  write_file((fs::path(dir) / "model.safetensors.index.json").string(),
             nlohmann::json{{"metadata", nlohmann::json::object()}, {"weight_map", map}}.dump());
}

void spread_residues(std::vector<BuiltShard>& shards) {
  // The four published residues, page-aligned, one byte to either side, and an odd one.
  constexpr std::array<std::size_t, 8> kResidues = {3088, 304, 976, 2280, 0, 1, 4095, 1235};
  std::size_t next = 0;
  for (BuiltShard& shard : shards) {
    const auto first = std::find_if(shard.tensors.begin(), shard.tensors.end(), is_expert);
    if (first == shard.tensors.end()) continue;
    pad_to_residue(shard, first->name, kResidues[next++ % kResidues.size()]);
  }
}

void split_expert(std::vector<BuiltShard>& shards, std::int32_t layer, std::int32_t expert) {
  const std::string middle =
      "layers." + std::to_string(layer) + std::string(kExperts) + std::to_string(expert) + ".";
  for (std::size_t i = 0; i + 1 < shards.size(); ++i) {
    std::vector<BuiltTensor>& from = shards[i].tensors;
    const auto moves = [&](const BuiltTensor& tensor) {
      const std::size_t at = tensor.name.find(middle);
      return at != std::string::npos && tensor.name[at + middle.size() + 1] != '1';
    };
    const auto moved = std::stable_partition(
        from.begin(), from.end(), [&](const BuiltTensor& tensor) { return !moves(tensor); });
    if (moved == from.end()) continue;
    shards[i + 1].tensors.insert(shards[i + 1].tensors.end(), moved, from.end());
    from.erase(moved, from.end());
    sort_as_published(shards[i + 1]);
    return;
  }
  throw std::logic_error("no expert to split: " + middle);
}

BuiltTensor float_tensor(const std::string& name, TensorType type,
                         const std::vector<std::int64_t>& shape) {
  assert(type == TensorType::f32 || type == TensorType::bf16);
  BuiltTensor tensor{name, type, shape, {}};
  Values values(name);
  for (std::size_t i = 0; i < element_count(shape); ++i) {
    // A multiple of 1/128 is exact in BF16 too.
    const float value = static_cast<float>(values.next() % 256) / 128.0F - 1.0F;
    std::array<char, 4> bytes;
    std::memcpy(bytes.data(), &value, bytes.size());
    tensor.bytes.append(bytes.begin() + (type == TensorType::bf16 ? 2 : 0), bytes.end());
  }
  return tensor;
}

std::vector<BuiltTensor> expert_tensors(const std::string& prefix, std::int32_t layer,
                                        std::int32_t expert, std::int32_t input,
                                        std::int32_t intermediate, WeightFormat format) {
  std::vector<BuiltTensor> tensors;
  for (const char part : {'1', '2', '3'}) {
    const std::int64_t rows = part == '2' ? input : intermediate;
    const std::int64_t cols = part == '2' ? intermediate : input;
    const std::string name = prefix + "layers." + std::to_string(layer) + std::string(kExperts) +
                             std::to_string(expert) + ".w" + part + ".weight";
    if (format == WeightFormat::mxfp4) {
      tensors.push_back(byte_tensor(name + "_packed", rows, cols / 2, 0, 256));
      tensors.push_back(byte_tensor(name + "_scale", rows, cols / kMxfp4BlockCols, 112, 11));
    } else {
      const bool is_bf16 = format == WeightFormat::bf16;
      tensors.push_back(
          float_tensor(name, is_bf16 ? TensorType::bf16 : TensorType::f32, {rows, cols}));
    }
  }
  return tensors;
}

std::vector<BuiltShard> expert_checkpoint(const ExpertFixture& fixture) {
  std::vector<BuiltShard> shards;
  for (std::int32_t layer = 0; layer < fixture.layers; ++layer) {
    BuiltShard& shard =
        shards.emplace_back(BuiltShard{"model-" + std::to_string(layer + 1) + ".safetensors", {}});
    const std::string prefix = "model.layers." + std::to_string(layer);
    shard.tensors.push_back(
        float_tensor(prefix + ".input_layernorm.weight", TensorType::bf16, {fixture.input}));
    for (std::int32_t expert = 0; layer > 0 && expert < fixture.experts; ++expert) {
      for (BuiltTensor& tensor : expert_tensors("model.", layer, expert, fixture.input,
                                                fixture.intermediate, fixture.format)) {
        shard.tensors.push_back(std::move(tensor));
      }
    }
    sort_as_published(shard);
  }
  return shards;
}

}  // namespace penstock

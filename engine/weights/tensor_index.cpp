// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/tensor_index.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/io/mirrored_source.h"
#include "engine/weights/safetensors.h"

namespace penstock {

struct TensorShard {
  std::unique_ptr<ByteSource> source;
  std::vector<std::pair<std::string, TensorInfo>> tensors;
  std::vector<ExpertTensor> expert_tensors;
  std::exception_ptr error;
};

namespace {

using Shard = TensorShard;
namespace fs = std::filesystem;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 1'000'000'000;  // K3's has 60 MB
constexpr int kMaxThreads = 4;  // headers are parsed at some 200 MB/s per core

struct ShardName {
  std::string file;
  std::optional<std::uint64_t> tensors;  // that the index file lists
};

// SAX handler of the index file: it counts the tensors of each shard. Names of tensors are not
// kept, since the headers give them again with their places.
class WeightMapHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool start_array(std::size_t) override { return other() && ++depth_ > 0; }
  bool end_array() override { return depth_-- > 0; }

  bool string(string_t& value) override {
    if (!in_map_ || depth_ != 2) return other();
    // Neighbours in the file mostly lie in the same shard.
    if (last_ == counts.end() || last_->first != value) {
      last_ = counts.try_emplace(value, std::uint64_t{0}).first;
    }
    ++last_->second;
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ > 1) other();
    if (depth_ == 1 && in_map_) found = true;
    ++depth_;
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) in_map_ = value == "weight_map";
    return true;
  }

  bool end_object() override { return depth_-- > 0; }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    throw Error(ErrorCode::model,
                std::string(kIndexFile) + ": not valid JSON at byte " + std::to_string(position));
  }

  bool found = false;                           // weight_map is there
  std::map<std::string, std::uint64_t> counts;  // shard to number of tensors

 private:
  // Anything but a string in the map is wrong; outside of it nothing matters.
  bool other() const {
    if (in_map_) {
      throw Error(ErrorCode::model,
                  std::string(kIndexFile) + ": weight_map must map tensor names to file names");
    }
    return true;
  }

  bool in_map_ = false;
  int depth_ = 0;
  std::map<std::string, std::uint64_t>::iterator last_ = counts.end();
};

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
         });
}

std::vector<ShardName> shards_of_index(const ByteSource& file) {
  if (file.size() > kMaxIndexBytes) {
    throw Error(ErrorCode::model, file.name() + ": has " + std::to_string(file.size()) +
                                      " bytes, expected at most " + std::to_string(kMaxIndexBytes));
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  WeightMapHandler handler;
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &handler);
  if (!handler.found || handler.counts.empty()) {
    throw Error(ErrorCode::model, file.name() + ": weight_map is missing or empty");
  }
  std::vector<ShardName> shards;
  for (const auto& [name, tensors] : handler.counts) {
    if (!is_plain_file_name(name)) {
      throw Error(ErrorCode::model, file.name() + ": weight_map names " +
                                        nlohmann::json(name).dump() +
                                        ", expected a file name without a folder");
    }
    shards.push_back({name, tensors});
  }
  return shards;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<ShardName> shards_of_folders(const std::vector<std::string>& model_dirs) {
  std::set<std::string> files;
  for (const std::string& dir : model_dirs) {
    std::error_code error;
    for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".safetensors") files.insert(it->path().filename().string());
    }
    if (error) throw Error(ErrorCode::model, dir + ": cannot be listed: " + error.message());
  }
  if (files.empty()) {
    throw Error(ErrorCode::model,
                join(model_dirs) + ": has neither " + kIndexFile + " nor a *.safetensors file");
  }
  std::vector<ShardName> shards;
  shards.reserve(files.size());
  for (const std::string& file : files) shards.push_back({file, std::nullopt});
  return shards;
}

std::vector<ShardName> list_shards(const std::vector<std::string>& model_dirs,
                                   const SourceOpener& opener) {
  for (const std::string& dir : model_dirs) {
    const std::string path = (fs::path(dir) / kIndexFile).string();
    std::error_code error;
    if (fs::exists(path, error)) return shards_of_index(*opener(path));
  }
  return shards_of_folders(model_dirs);
}

// Takes a decimal without leading zeros from the front of `text`.
std::optional<std::uint16_t> take_id(std::string_view& text) {
  std::uint16_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{}) return std::nullopt;
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (digits > 1 && text.front() == '0') return std::nullopt;
  text.remove_prefix(digits);
  return id;
}

// Layer, expert, part and kind, when `name` is that of a routed-expert tensor.
std::optional<ExpertTensor> parse_expert_name(std::string_view name) {
  constexpr std::string_view kExperts = ".block_sparse_moe.experts.";
  constexpr std::string_view kLayers = "layers.";
  const std::size_t middle = name.rfind(kExperts);
  if (middle == std::string_view::npos) return std::nullopt;
  const std::size_t layer_begin = name.substr(0, middle).rfind('.') + 1;
  const std::string_view prefix = name.substr(0, layer_begin);
  if (!prefix.ends_with(kLayers)) return std::nullopt;
  if (prefix.size() > kLayers.size() && prefix[prefix.size() - kLayers.size() - 1] != '.') {
    return std::nullopt;
  }
  std::string_view layer_text = name.substr(layer_begin, middle - layer_begin);
  std::string_view rest = name.substr(middle + kExperts.size());
  const std::optional<std::uint16_t> layer = take_id(layer_text);
  const std::optional<std::uint16_t> expert = take_id(rest);
  if (!layer || !layer_text.empty() || !expert) return std::nullopt;
  if (rest.size() < 3 || !rest.starts_with(".w") || rest[2] < '1' || rest[2] > '3') {
    return std::nullopt;
  }
  const auto part = static_cast<ExpertPart>(rest[2] - '1');
  rest.remove_prefix(3);
  if (rest != ".weight" && rest != ".weight_packed" && rest != ".weight_scale") {
    return std::nullopt;
  }
  ExpertTensor tensor{};
  tensor.layer = *layer;
  tensor.expert = *expert;
  tensor.part = part;
  tensor.is_scale = rest == ".weight_scale";
  tensor.is_packed = rest == ".weight_packed";
  return tensor;
}

void add_tensor(const SafetensorsEntry& entry, std::uint32_t source, Shard& shard) {
  std::optional<ExpertTensor> expert = parse_expert_name(entry.name);
  if (!expert) {
    shard.tensors.emplace_back(
        std::string(entry.name),
        TensorInfo{entry.shape, entry.offset, entry.bytes, source, entry.type});
    return;
  }
  if (entry.shape.size() != 2 || entry.shape[0] > INT32_MAX || entry.shape[1] > INT32_MAX) {
    throw Error(ErrorCode::model, shard.source->name() + ": tensor " + std::string(entry.name) +
                                      " is " + describe_tensor(entry.type, entry.shape) +
                                      ", expected two dimensions below 2^31");
  }
  expert->offset = entry.offset;
  expert->rows = static_cast<std::int32_t>(entry.shape[0]);
  expert->cols = static_cast<std::int32_t>(entry.shape[1]);
  expert->source = source;
  expert->type = entry.type;
  shard.expert_tensors.push_back(*expert);
}

void check_copy(const ByteSource& copy, const std::string& path, const ByteSource& first,
                const std::string& first_path) {
  if (copy.size() == first.size()) return;
  throw Error(ErrorCode::model, path + ": has " + std::to_string(copy.size()) + " bytes, but " +
                                    first_path + " has " + std::to_string(first.size()));
}

// The file in every folder that has it.
std::unique_ptr<ByteSource> open_copies(const std::vector<std::string>& model_dirs,
                                        const std::string& file, const SourceOpener& opener) {
  if (model_dirs.size() == 1) return opener((fs::path(model_dirs.front()) / file).string());
  std::vector<std::unique_ptr<ByteSource>> copies;
  std::string first_path;
  for (const std::string& dir : model_dirs) {
    const std::string path = (fs::path(dir) / file).string();
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    copies.push_back(opener(path));
    if (first_path.empty()) first_path = path;
    check_copy(*copies.back(), path, *copies.front(), first_path);
  }
  if (copies.empty()) {
    throw Error(ErrorCode::model, file + ": is in none of the folders " + join(model_dirs));
  }
  return make_mirrored_source(std::move(copies));
}

void open_shard(const std::vector<std::string>& model_dirs, const ShardName& name,
                std::uint32_t source, const SourceOpener& opener, Shard& shard) {
  try {
    shard.source = open_copies(model_dirs, name.file, opener);
  } catch (const Error& error) {
    if (!name.tensors) throw;
    throw Error(error.code(), std::string(error.what()) + " (named by " + kIndexFile + ")");
  }
  read_safetensors_header(*shard.source,
                          [&](const SafetensorsEntry& entry) { add_tensor(entry, source, shard); });
  const std::uint64_t tensors = shard.tensors.size() + shard.expert_tensors.size();
  if (name.tensors && *name.tensors != tensors) {
    throw Error(ErrorCode::model, name.file + ": has " + std::to_string(tensors) +
                                      " tensors, but " + kIndexFile + " lists " +
                                      std::to_string(*name.tensors));
  }
}

// Opens all shards with a few threads. The first one in order that fails decides the error: shards
// are begun in order, and whoever begins one ends it.
std::vector<Shard> open_shards(const std::vector<std::string>& model_dirs,
                               const std::vector<ShardName>& names, const SourceOpener& opener) {
  std::vector<Shard> shards(names.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= names.size()) return;
      try {
        open_shard(model_dirs, names[i], static_cast<std::uint32_t>(i), opener, shards[i]);
      } catch (...) {
        shards[i].error = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> helpers;
  const std::size_t threads =
      std::min(names.size(), static_cast<std::size_t>(std::min(kMaxThreads, available_cores())));
  try {
    while (helpers.size() + 1 < threads) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads do it as well.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  for (const Shard& shard : shards) {
    if (shard.error) std::rethrow_exception(shard.error);
  }
  return shards;
}

// Only name and size are known.
class AbsentFile final : public ByteSource {
 public:
  AbsentFile(std::string name, std::uint64_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_; }
  void read(std::uint64_t /*offset*/, std::span<std::byte> /*out*/) const override {
    throw Error(ErrorCode::model, name_ + ": is not here, only its layout is known");
  }
  int direct_fd() const override { return -1; }

 private:
  std::string name_;
  std::uint64_t bytes_;
};

}  // namespace

std::uint64_t expert_tensor_key(const ExpertTensor& t) {
  return std::uint64_t{t.layer} << 32U | std::uint64_t{t.expert} << 16U |
         static_cast<std::uint64_t>(t.part) << 8U | static_cast<std::uint64_t>(t.is_scale) << 1U |
         static_cast<std::uint64_t>(t.is_packed);
}

std::string expert_tensor_name(const ExpertTensor& tensor) {
  const char* suffix = tensor.is_scale ? "_scale" : tensor.is_packed ? "_packed" : "";
  return "layers." + std::to_string(tensor.layer) + ".block_sparse_moe.experts." +
         std::to_string(tensor.expert) + ".w" + std::to_string(static_cast<int>(tensor.part) + 1) +
         ".weight" + suffix;
}

TensorIndex TensorIndex::open(const std::string& model_dir, const SourceOpener& opener) {
  return open(std::vector<std::string>{model_dir}, opener);
}

TensorIndex TensorIndex::open(const std::vector<std::string>& model_dirs,
                              const SourceOpener& opener) {
  return merge(open_shards(model_dirs, list_shards(model_dirs, opener), opener));
}

TensorIndex TensorIndex::from_layout(const std::vector<LayoutFile>& files) {
  std::vector<Shard> shards(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const SafetensorsHeader header = make_safetensors_header(files[i].tensors);
    shards[i].source = std::make_unique<AbsentFile>(files[i].name, header.file_bytes);
    parse_safetensors_header(header.json, files[i].name, header.file_bytes,
                             [&](const SafetensorsEntry& entry) {
                               add_tensor(entry, static_cast<std::uint32_t>(i), shards[i]);
                             });
  }
  return merge(std::move(shards));
}

TensorIndex TensorIndex::merge(std::vector<TensorShard> shards) {
  TensorIndex index;
  const auto fail_twice = [&](const std::string& name, std::uint32_t a, std::uint32_t b) {
    throw Error(ErrorCode::model, index.sources_[b]->name() + ": tensor " + name + " is in " +
                                      index.sources_[a]->name() + " too");
  };
  std::size_t experts = 0;
  for (Shard& shard : shards) {
    index.sources_.push_back(std::move(shard.source));
    experts += shard.expert_tensors.size();
  }
  index.expert_tensors_.reserve(experts);
  for (Shard& shard : shards) {
    for (auto& [name, info] : shard.tensors) {
      const std::uint32_t source = info.source;
      const auto [it, inserted] = index.tensors_.try_emplace(std::move(name), std::move(info));
      if (!inserted) fail_twice(it->first, it->second.source, source);
    }
    index.expert_tensors_.insert(index.expert_tensors_.end(), shard.expert_tensors.begin(),
                                 shard.expert_tensors.end());
    std::vector<ExpertTensor>().swap(shard.expert_tensors);
  }
  auto& tensors = index.expert_tensors_;
  std::sort(tensors.begin(), tensors.end(), [](const ExpertTensor& a, const ExpertTensor& b) {
    return std::pair(expert_tensor_key(a), a.source) < std::pair(expert_tensor_key(b), b.source);
  });
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                        [](const ExpertTensor& a, const ExpertTensor& b) {
                                          return expert_tensor_key(a) == expert_tensor_key(b);
                                        });
  if (twice != tensors.end()) {
    fail_twice(expert_tensor_name(*twice), twice[0].source, twice[1].source);
  }
  return index;
}

const TensorInfo* TensorIndex::find(std::string_view name) const {
  const auto it = tensors_.find(std::string(name));
  return it == tensors_.end() ? nullptr : &it->second;
}

const TensorInfo& TensorIndex::get(const std::string& name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) throw Error(ErrorCode::model, "tensor " + name + " is missing");
  return *info;
}

std::uint64_t TensorIndex::file_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& source : sources_) sum += source->size();
  return sum;
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// Writes a synthetic checkpoint with the shapes and the layout of a published one, at the speed of
// the drive. Its text makes no sense; its bytes, offsets and routing do.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/model_config.h"
#include "engine/weights/memory_plan.h"
#include "tests/bench/direct_writer.h"
#include "tests/bench/sparse_checkpoint.h"
#include "tests/bench/synthetic_config.h"
#include "tests/bench/synthetic_tensors.h"
#include "tests/bench/synthetic_values.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "make_synthetic kimi-linear|k3-slice OUTDIR [--seed N] [--skew S]\n"
    "               [--experts N] [--vocab N] [--narrow 1|2|4|8] [--layers N]\n"
    "make_synthetic bias OUTDIR [--seed N] [--skew S]\n"
    "make_synthetic sparse-k3 OUTDIR [--layers N]\n"
    "\n"
    "  kimi-linear  27 layers of 256 experts, experts in MXFP4: 29 GB\n"
    "  k3-slice     three layers of Kimi K3, two of them with 896 experts: 41 GB\n"
    "  bias         writes only the routers' correction biases of a checkpoint anew\n"
    "  sparse-k3    all of Kimi K3 as published, but holes for weights: 1.56 TB apparent, 130 MB\n"
    "               on disk\n"
    "  --skew S     popularity of experts falls with rank^-S; 0, the default, is uniform; with "
    "1.2\n"
    "               an LRU cache of 4, 8, 15 and 30 % of Kimi-Linear's experts has the hit rates\n"
    "               measured on the real one: 0.33, 0.51, 0.66, 0.79\n"
    "The others make it smaller.";

constexpr std::uint64_t kSpareBytes = 1'000'000'000;  // that the drive is left with

struct Options {
  std::string model;
  std::string dir;
  std::uint64_t seed = 1;
  double skew = 0;
  SyntheticSize size;
};

[[noreturn]] void fail_usage(const std::string& problem) {
  throw Error(ErrorCode::usage, problem + "\n\n" + kUsage);
}

template <typename Number>
Number number(std::string_view name, std::string_view text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least)) {
    fail_usage(std::string(name) + ": " + std::string(text) + " is no number it takes");
  }
  return value;
}

void set_option(std::string_view name, std::string_view value, Options* options) {
  if (name == "--seed") {
    options->seed = number<std::uint64_t>(name, value, 0);
  } else if (name == "--skew") {
    options->skew = number<double>(name, value, 0);
  } else if (name == "--experts") {
    options->size.experts = number<std::int32_t>(name, value, 1);
  } else if (name == "--vocab") {
    options->size.vocab = number<std::int32_t>(name, value, 1);
  } else if (name == "--narrow") {
    options->size.narrow = number<std::int32_t>(name, value, 1);
  } else if (name == "--layers") {
    options->size.layers = number<std::int32_t>(name, value, 1);
  } else {
    fail_usage(std::string(name) + ": no such option");
  }
}

Options parse(std::span<char* const> arguments) {
  Options options;
  std::vector<std::string> places;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with("--")) {
      places.emplace_back(argument);
    } else if (i + 1 == arguments.size()) {
      fail_usage(std::string(argument) + " needs a value");
    } else {
      set_option(argument, arguments[++i], &options);
    }
  }
  if (places.size() != 2) fail_usage("a model and a folder are needed");
  options.model = places[0];
  options.dir = places[1];
  return options;
}

// Bytes of a shard: the header, then its tensors.
void fill_shard(const SyntheticShard& shard, const SyntheticValues& values, std::uint64_t begin,
                std::span<std::byte> out) {
  const std::uint64_t end = begin + out.size();
  std::uint64_t at = 0;  // of the part at hand
  const auto part = [&](std::uint64_t bytes, const auto& fill) {
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min(end, at + bytes);
    if (from < to) fill(from - at, out.subspan(from - begin, to - from));
    at += bytes;
  };
  part(shard.header.size(), [&](std::uint64_t from, std::span<std::byte> piece) {
    std::memcpy(piece.data(), shard.header.data() + from, piece.size());
  });
  for (const SyntheticTensor& tensor : shard.tensors) {
    part(tensor.bytes(),
         [&](std::uint64_t from, std::span<std::byte> piece) { values.fill(tensor, from, piece); });
  }
}

void write_shard(const std::string& dir, const SyntheticShard& shard,
                 const SyntheticValues& values) {
  write_direct((fs::path(dir) / shard.file).string(), shard.bytes(),
               [&](std::uint64_t begin, std::span<std::byte> out) {
                 fill_shard(shard, values, begin, out);
               });
}

// Counts as free what files of the same names hold now.
void check_room(const std::string& dir, const std::vector<SyntheticShard>& shards) {
  std::uint64_t needed = kSpareBytes;
  std::uint64_t room = fs::space(dir).available;
  for (const SyntheticShard& shard : shards) {
    needed += shard.bytes();
    std::error_code none;
    const std::uintmax_t held = fs::file_size(fs::path(dir) / shard.file, none);
    if (!none) room += held;
  }
  if (needed > room) {
    throw Error(ErrorCode::io, dir + ": needs " + format_bytes(needed) + " with 1 GB to spare, " +
                                   format_bytes(room) + " are free");
  }
}

void write_checkpoint(const Options& options, SyntheticModel model) {
  const std::string text = synthetic_config(model, options.size);
  const ModelConfig config = parse_model_config(text, "", "config.json");
  const std::vector<SyntheticShard> shards = synthetic_shards(config);
  fs::create_directories(options.dir);
  check_room(options.dir, shards);
  const SyntheticValues values(config, options.seed, options.skew);
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t bytes = 0;
  for (const SyntheticShard& shard : shards) {
    write_shard(options.dir, shard, values);
    bytes += shard.bytes();
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  write_index_and_config(options.dir, shards, text);
  std::printf("%s: %s in %.1f s, %.2f GB/s\n", options.dir.c_str(), format_bytes(bytes).c_str(),
              taken.count(), static_cast<double>(bytes) / taken.count() / 1e9);
}

void write_biases(const Options& options) {
  const ModelConfig config = read_model_config(options.dir);
  const SyntheticValues values(config, options.seed, options.skew);
  const SyntheticShard shard = synthetic_shards(config).back();
  write_shard(options.dir, shard, values);
  std::printf("%s: %s with skew %g\n", options.dir.c_str(), shard.file.c_str(), options.skew);
}

void run(const Options& options) {
  if (options.model == "bias") return write_biases(options);
  if (options.model == "sparse-k3") return write_sparse_k3(options.dir, options.size);
  if (options.model == "kimi-linear") return write_checkpoint(options, SyntheticModel::kimi_linear);
  if (options.model == "k3-slice") return write_checkpoint(options, SyntheticModel::k3_slice);
  fail_usage(options.model + ": no such model");
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "--help") {
      std::puts(penstock::kUsage);
      return 0;
    }
    penstock::run(penstock::parse({argv + 1, static_cast<std::size_t>(argc - 1)}));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_synthetic: %s\n", error.what());
    return 1;
  }
}

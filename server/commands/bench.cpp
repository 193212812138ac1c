// SPDX-License-Identifier: Apache-2.0
//
// `penstock bench disk`: what the drive delivers when experts are read from it.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "config/config.h"
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/ram_rate.h"
#include "engine/base/system_memory.h"
#include "engine/io/drive_probe.h"
#include "engine/io/random_reads.h"
#include "engine/io/scratch_file.h"
#include "engine/model/load_model.h"
#include "engine/weights/memory_plan.h"
#include "engine/weights/sidecar.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/prediction.h"
#include "server/commands/signals.h"
#include "server/commands/start.h"
#include "server/commands/terminal.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRamBytes = 512UL << 20U;  // read to see how fast memory is

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock bench disk --model /models/kimi-k3   by the model's own files: the surest\n"
    "  penstock bench disk --dir /mnt/nvme           by a scratch file in that folder\n"
    "  penstock bench disk --record-bytes 4M --json  other records, for a script\n"
    "\n"
    "Reads whole records (an expert of Kimi K3 unless told) at random places that are never\n"
    "repeated, past the page cache, with 1, 2, 4, 8 and 16 of them in flight; the rate is the\n"
    "median of three rounds. Penstock cannot generate faster than this lets it: a Kimi K3 token\n"
    "reads 1,472 experts. What the system's own counters say was read from the drive must agree;\n"
    "else the command fails and says why, rather than report what a cache delivered.\n"
    "\n"
    "Without --model and --dir, and where the model's files are too small or have holes, it "
    "writes\n"
    "a scratch file of up to 16 GB (into the current folder, --dir, or beside the model), which "
    "has\n"
    "no name and is gone when the command ends, however it ends. A drive, or the host of a "
    "virtual\n"
    "machine, may still have some of what was just written in a cache of its own.\n"
    "Takes memory for 18 records (316 MB).";

constexpr std::uint64_t kMaxScratchBytes = 16'000'000'000;
constexpr double kFastDrive = 8e9;  // bytes per second that a scratch file should last for

std::string format_rate(double gb_per_s) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GB/s", gb_per_s);
  return text.data();
}

std::string describe_rate(const DriveRate& rate) {
  std::string text = "drive: " + (rate.drive.empty() ? "unknown" : rate.drive) + ", file system " +
                     rate.file_system + "\nrecords of " + std::to_string(rate.record_bytes) +
                     " bytes at random, direct reads\n\nin flight  rate\n";
  for (const DepthRate& depth : rate.depths) {
    std::array<char, 32> count{};
    std::snprintf(count.data(), count.size(), "%9d  ", depth.depth);
    text += count.data() + format_rate(depth.gb_per_s) + "\n";
  }
  return text + "\nbest: " + format_rate(rate.best.gb_per_s) + " with " +
         std::to_string(rate.best.depth) + " in flight\n";
}

nlohmann::ordered_json rate_json(const DriveRate& rate) {
  nlohmann::ordered_json json;
  json["record_bytes"] = rate.record_bytes;
  json["file_system"] = rate.file_system;
  json["depths"] = nlohmann::ordered_json::array();
  for (const DepthRate& depth : rate.depths) {
    nlohmann::ordered_json row;
    row["depth"] = depth.depth;
    row["gb_per_s"] = depth.gb_per_s;
    json["depths"].push_back(row);
  }
  json["gb_per_s"] = rate.best.gb_per_s;
  json["depth"] = rate.best.depth;
  return json;
}

// Machines that people have, and the spines that they can choose.
constexpr std::array<int, 9> kRamGb = {8, 16, 24, 32, 48, 64, 96, 128, 256};
struct SpineRow {
  const char* name;
  double share;  // of the published bytes
};
constexpr std::array<SpineRow, 3> kSpines = {
    {{"bf16", 1}, {"bf12", kBf12SpineShare}, {"int8", kInt8SpineShare}}};

// Seconds per token of a known model for each RAM size, with three quarters of it as budget.
nlohmann::ordered_json prediction_json(const Config& config, const char* name,
                                       const MachineRates& rates) {
  Config named = config;
  named.model = name;
  const PlannedFolder folder = planned_folder(named);
  ModelOptions options;
  options.dir = folder.path;
  options.without_weights = !folder.has_weights;
  const ModelPlan plan = plan_model(options);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const int gb : kRamGb) {
    nlohmann::ordered_json row = {{"ram_gb", gb}};
    for (const SpineRow& spine : kSpines) {
      const auto budget = static_cast<std::uint64_t>(gb) * 750'000'000;
      const double seconds = predict_token_s(plan, budget, spine.share, rates);
      if (seconds >= 0) row[spine.name] = seconds;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// "kimi-k3, seconds per token\n  RAM  bf16 ..." from what prediction_json gives.
std::string describe_prediction(const char* name, const nlohmann::ordered_json& rows) {
  std::string text = std::string("\n") + name + ", seconds per token by RAM and spine:\n   RAM GB";
  for (const SpineRow& spine : kSpines)
    text += std::string(8 - std::strlen(spine.name), ' ') + spine.name;
  text += "\n";
  for (const auto& row : rows) {
    std::array<char, 32> cell{};
    std::snprintf(cell.data(), cell.size(), "%9d", row["ram_gb"].get<int>());
    text += cell.data();
    for (const SpineRow& spine : kSpines) {
      if (row.contains(spine.name)) {
        std::snprintf(cell.data(), cell.size(), "%8.2f", row[spine.name].get<double>());
      } else {
        std::snprintf(cell.data(), cell.size(), "%8s", "-");
      }
      text += cell.data();
    }
    text += "\n";
  }
  return text;
}

using Sources = std::vector<std::unique_ptr<ByteSource>>;

std::vector<const ByteSource*> views_of(const Sources& sources) {
  std::vector<const ByteSource*> views;
  for (const auto& source : sources) views.push_back(source.get());
  return views;
}

// The safetensors files of a model's folder, whole or not: only their bytes matter.
Sources open_shards(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") paths.push_back(it->path().string());
  }
  if (error) throw Error(ErrorCode::model, dir + ": cannot be listed: " + error.message());
  std::ranges::sort(paths);
  Sources sources;
  for (const std::string& path : paths) sources.push_back(open_source(path));
  return sources;
}

std::uint64_t block_bytes(const DriveBenchOptions& options) {
  return round_up(options.record_bytes, kPageBytes);
}

// Why the files are no measure of their drive; empty when they are.
std::string why_not(const Sources& sources, const DriveBenchOptions& options) {
  if (sources.empty()) return "there are no *.safetensors files";
  std::vector<const ByteSource*> replicas = measurable_replicas(views_of(sources));
  if (replicas.empty()) return why_not_measurable(*sources.front());
  const std::uint64_t records = FreshBlocks(std::move(replicas), block_bytes(options)).left();
  if (records >= least_records(options)) return {};
  return "they hold " + std::to_string(records) + " records, expected at least " +
         std::to_string(least_records(options));
}

// A scratch file in `dir` that lasts for the measurement, as far as there is room.
Sources write_scratch(const std::string& dir, const DriveBenchOptions& options) {
  const auto least_bytes = static_cast<std::uint64_t>(round_up(options.record_bytes, kPageBytes)) *
                           least_records(options);
  const double wanted =
      std::min(options.seconds * static_cast<double>(options.depths.size()) * kFastDrive,
               static_cast<double>(kMaxScratchBytes));
  std::error_code error;
  const std::uint64_t room = fs::space(dir, error).available / 2;
  if (error) throw Error(ErrorCode::io, dir + ": " + error.message());
  if (room < least_bytes) {
    throw Error(ErrorCode::io, dir + ": needs " + format_bytes(2 * least_bytes) +
                                   " free for a scratch file, has " + format_bytes(2 * room));
  }
  const std::uint64_t bytes =
      std::min(room, std::max(least_bytes, static_cast<std::uint64_t>(wanted)));
  StatusLine status;
  Sources sources;
  sources.push_back(write_scratch_file(
      dir, bytes, {.stop = options.stop, .progress = [&](std::uint64_t written) {
                     if (!status.due()) return;
                     status.show("writing a scratch file in " + dir + ": " + format_bytes(written) +
                                 " of " + format_bytes(bytes));
                   }}));
  return sources;
}

class BenchDiskCommand : public Command {
 public:
  // `bench` is what the command line's first word names, `disk` the second.
  BenchDiskCommand(CLI::App* bench, CLI::App* disk)
      : Command(bench), settings_(*disk, kModelSettings) {
    disk->add_option("--dir", dir_, "Measure by a scratch file in this folder")
        ->type_name("DIR")
        ->excludes(disk->get_option("--model"));
    disk->add_option("--record-bytes", record_,
                     "Bytes of a record, as 16M or 17547264 (default: an expert of Kimi K3)")
        ->type_name("SIZE");
    disk->add_option("--seconds", options_.seconds, "For each depth (default: 3)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.001, 600.0).description(""));
    disk->add_flag("--json", json_, "Print the rates as one JSON object");
    disk->footer(kExamples);
  }

  int run() override {
    const Config config = settings_.resolve();
    set_up_logging(config, "warn");
    options_.stop = &stop_on_signals();
    if (!record_.empty()) options_.record_bytes = record_bytes();
    const Sources sources = choose_sources(config);
    const DriveRate rate = measure_drive(views_of(sources), options_);
    report(config, rate);
    return 0;
  }

 private:
  void report(const Config& config, const DriveRate& rate) const {
    const MachineRates rates{rate.best.gb_per_s, ram_read_gb_per_s(kRamBytes)};
    nlohmann::ordered_json json = rate_json(rate);
    json["ram_gb_per_s"] = rates.ram_gb_per_s;
    std::string text = describe_rate(rate) + "memory: " + format_rate(rates.ram_gb_per_s) + "\n";
    for (const char* name : {"kimi-k3", "kimi-linear"}) {
      const nlohmann::ordered_json rows = prediction_json(config, name, rates);
      json["seconds_per_token"][name] = rows;
      text += describe_prediction(name, rows);
    }
    text +=
        "\nThe least that drive and memory allow, with three quarters of the RAM as --ram and "
        "every\n"
        "expert equally likely; real routing is often kinder to Kimi-Linear.\n";
    write_stdout(json_ ? json.dump() + "\n" : text);
  }

  std::size_t record_bytes() const {
    const std::optional<std::uint64_t> bytes = parse_byte_size(record_);
    if (!bytes || *bytes == 0 || *bytes > (1UL << 30U)) {
      throw Error(ErrorCode::usage, "--record-bytes: " + record_ +
                                        ": expected a size of at most 1G, as 16M or 17547264");
    }
    return static_cast<std::size_t>(*bytes);
  }

  // The model's files when one is named and they will do, else a scratch file.
  Sources choose_sources(const Config& config) const {
    if (!dir_.empty()) return write_scratch(dir_, options_);
    if (config.model == Config{}.model) return write_scratch(".", options_);
    const std::string dir = model_folder(config);
    Sources shards = open_shards(dir);
    const std::string reason = why_not(shards, options_);
    if (reason.empty()) return shards;
    spdlog::warn("the files of {} cannot be measured ({}): writing a scratch file beside them", dir,
                 reason);
    return write_scratch(dir, options_);
  }

  std::string dir_;
  std::string record_;
  bool json_ = false;
  DriveBenchOptions options_;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine: bench disk");
  bench->require_subcommand(1);
  bench->footer("penstock bench disk --help says how.");
  CLI::App* disk =
      bench->add_subcommand("disk", "Measure what the drive delivers when experts are read");
  return std::make_unique<BenchDiskCommand>(bench, disk);
}

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// `penstock convert`: the spine in fewer bytes, beside the published files.
#include "engine/weights/convert.h"

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/base/error.h"
#include "engine/base/system_memory.h"
#include "engine/model/kimi_weights.h"
#include "engine/model/load_model.h"
#include "engine/model/model_config.h"
#include "engine/model/spine_sidecar.h"
#include "engine/weights/memory_plan.h"
#include "server/commands/command.h"
#include "server/commands/output.h"
#include "server/commands/start.h"
#include "server/commands/terminal.h"

namespace penstock {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  penstock convert /models/kimi-k3 --spine bf12   three quarters of the bytes, same output\n"
    "  penstock convert /models/kimi-k3 --spine int8   half of them, slightly other output\n"
    "\n"
    "Writes MODEL/penstock/bf12 or MODEL/penstock/int8; the published files stay as they are.\n"
    "An interrupted conversion goes on where it stopped when the command is run again.";

std::string ratio_text(std::uint64_t after, std::uint64_t before) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4f",
                static_cast<double>(after) / static_cast<double>(before));
  return text.data();
}

std::string describe(const ConvertResult& result, const ConvertOptions& options,
                     std::uint64_t spine_bytes) {
  const std::uint64_t after = spine_bytes - result.published_bytes + result.sidecar_bytes;
  std::string text = options.dir + ": " + std::to_string(result.files_written) + " files written";
  if (result.files_kept > 0) text += ", " + std::to_string(result.files_kept) + " were there";
  return text + "\nspine: " + format_bytes(spine_bytes) + " as published, " + format_bytes(after) +
         " with " + sidecar_format_name(options.format) + " (" + ratio_text(after, spine_bytes) +
         " of it)\n";
}

class ConvertCommand : public Command {
 public:
  explicit ConvertCommand(CLI::App* app) : Command(app), settings_(*app, kModelSettings) {
    app->add_option("MODEL", model_, "Folder or name of the model; the same as --model")
        ->type_name("");
    app->add_option("--spine", spine_, "bf12 (exact) or int8 (rounded)")
        ->type_name("FORMAT")
        ->check(CLI::IsMember({"bf12", "int8"}))
        ->required();
    app->add_option("--out", out_, "Folder for the files [MODEL/penstock/FORMAT]")
        ->type_name("DIR");
    app->add_option("--ram", ram_, "Memory to use at most, e.g. 2G")->type_name("SIZE");
    app->footer(kExamples);
  }

  int run() override {
    Config config = settings_.resolve();
    if (!model_.empty()) config.model = model_;
    const EngineOptions engine = start(config);
    // A limit on the size of files is then an error of the write that meets it.
    std::signal(SIGXFSZ, SIG_IGN);

    const std::string& dir = engine.model.dir;
    StatusLine status;
    ConvertOptions options{
        .format = spine_ == "bf12" ? WeightFormat::bf12 : WeightFormat::int8_rows,
        .dir = out_,
        .budget_bytes = budget(engine),
        .opener = [](const std::string& path) { return open_source(path); },
        .stop = engine.model.stop};
    if (out_.empty()) options.dir = sidecar_dir(dir, options.format);
    options.progress = [&status](std::uint64_t done_bytes, std::uint64_t total_bytes) {
      if (!status.due()) return;
      status.show("converting: " + format_bytes(done_bytes) + " of " + format_bytes(total_bytes));
    };

    const TensorIndex index = TensorIndex::open(shard_dirs(engine.model), options.opener);
    const std::vector<SpineUnit> units = spine_units(index, read_model_config(dir)).units;
    const std::vector<SidecarFile> files = sidecar_files(index, units, options.format);
    if (files.empty()) {
      throw Error(ErrorCode::model, dir + ": has no matrices that " + spine_ + " could hold");
    }
    const ConvertResult result = convert_spine(index, files, options);
    status.clear();
    write_stdout(describe(result, options, published_spine_bytes(index, units)));
    return 0;
  }

 private:
  std::uint64_t budget(const EngineOptions& engine) const {
    if (!ram_.empty()) {
      const std::optional<std::uint64_t> bytes = parse_byte_size(ram_);
      if (!bytes || *bytes == 0) {
        throw Error(ErrorCode::usage,
                    "--ram is \"" + ram_ + "\", expected a size such as 24G or 800M");
      }
      return *bytes;
    }
    const std::uint64_t bytes = engine.model.memory.budget_bytes;
    return bytes > 0 ? bytes : default_memory_budget(system_memory());
  }

  std::string model_;
  std::string spine_;
  std::string out_;
  std::string ram_;
  ConfigOptions settings_;
};

}  // namespace

std::unique_ptr<Command> add_convert_command(CLI::App& app) {
  return std::make_unique<ConvertCommand>(
      app.add_subcommand("convert", "Make a smaller copy of the weights that every token needs"));
}

}  // namespace penstock

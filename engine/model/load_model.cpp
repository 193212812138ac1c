// SPDX-License-Identifier: Apache-2.0
#include "engine/model/load_model.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/base/system_memory.h"
#include "engine/model/checkpoint_layout.h"
#include "engine/model/kimi.h"
#include "engine/model/moe.h"
#include "engine/model/spine_sidecar.h"
#include "engine/weights/sidecar.h"

namespace penstock {
namespace {

// Program, allocator and thread stacks; measured at some 20 MB, rounded up for what malloc keeps.
constexpr std::uint64_t kProcessBytes = 48'000'000;
constexpr std::uint64_t kIndexBytesPerExpert = 272;  // six tensors of 32, and where its bytes lie
constexpr std::int64_t kDefaultContext = 32'768;
constexpr int kMaxThreads = 1024;

const Kernels& choose_kernels(const std::string& name) {
  const Kernels* kernels = find_kernels(name.c_str());
  if (kernels != nullptr) return *kernels;
  std::string known;
  const KernelList list = supported_kernels();
  for (int i = 0; i < list.count; ++i)
    known += (i > 0 ? ", " : "") + std::string(list.tables[i]->name);
  throw Error(ErrorCode::usage,
              "instruction set \"" + name + "\" is not available here: this machine has " + known);
}

int choose_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    throw Error(ErrorCode::usage, "threads is " + std::to_string(threads) + ", expected 1 to " +
                                      std::to_string(kMaxThreads));
  }
  return threads == 0 ? std::min(available_cores(), kMaxThreads) : threads;
}

// The sidecar that the spine is read from, nullopt for none.
std::optional<WeightFormat> sidecar_format(const ModelOptions& options) {
  switch (options.spine) {
    case SpineChoice::published: return std::nullopt;
    case SpineChoice::bf12: return WeightFormat::bf12;
    case SpineChoice::int8: return WeightFormat::int8_rows;
    case SpineChoice::automatic: break;
  }
  std::error_code ignored;  // a folder that may not be looked into is none
  const bool has_bf12 =
      std::filesystem::is_directory(sidecar_dir(options.dir, WeightFormat::bf12), ignored);
  return has_bf12 ? std::optional(WeightFormat::bf12) : std::nullopt;
}

// Lets the spine be read from the sidecar. One that was not asked for by name and cannot be used is
// noted.
void open_sidecar(KimiFiles& files, const ModelOptions& options, WeightFormat format,
                  const SourceOpener& opener) {
  const std::vector<SidecarFile> wanted = sidecar_files(*files.index, files.spine.units, format);
  try {
    files.sidecar = std::make_unique<const TensorIndex>(penstock::open_sidecar(
        *files.index, sidecar_dir(options.dir, format), format, wanted, opener));
    files.spine_format = sidecar_format_name(format);
  } catch (const Error& error) {
    if (options.spine != SpineChoice::automatic) throw;
    files.notes.push_back(std::string("the spine is read as published: ") + error.what());
  }
}

// Opens files, and remembers the first refusal of direct reads. Any thread.
class NotingOpener {
 public:
  std::unique_ptr<ByteSource> operator()(const std::string& path) const {
    std::string refused;
    auto source = open_source(path, &refused);
    if (!refused.empty()) {
      const std::lock_guard lock(seen_->mutex);
      if (seen_->refusal.empty()) seen_->refusal = refused;
    }
    return source;
  }
  const std::string& refusal() const { return seen_->refusal; }

 private:
  struct Seen {
    std::mutex mutex;
    std::string refusal;
  };
  std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
};

KimiFiles open_files(const ModelOptions& options) {
  KimiFiles files;
  files.config = read_model_config(options.dir);
  const NotingOpener noting;
  const SourceOpener opener = options.opener ? options.opener : noting;
  files.index = std::make_unique<const TensorIndex>(
      options.without_weights ? TensorIndex::from_layout(checkpoint_layout(files.config))
                              : TensorIndex::open(shard_dirs(options), opener));
  files.experts = std::make_unique<const ExpertStore>(*files.index, expert_shape(files.config),
                                                      files.config.is_moe);
  files.spine = spine_units(*files.index, files.config);
  if (const auto format = sidecar_format(options)) open_sidecar(files, options, *format, opener);
  files.segments = plan_segments({files.index.get(), files.sidecar.get()}, files.spine.units);
  if (!noting.refusal().empty()) {
    files.notes.push_back(noting.refusal() + ": weights are read through the page cache, slower");
  }
  return files;
}

MemoryNeeds needs_of(const KimiFiles& files) {
  const ModelConfig& config = files.config;
  const StateShape shape(config);
  const auto experts = static_cast<std::uint64_t>(config.moe_layers()) *
                       static_cast<std::uint64_t>(config.moe.experts);
  MemoryNeeds needs;
  needs.spine_segments = segment_memory(files.segments);
  needs.vector_bytes = vector_bytes(config);
  needs.state_bytes = 2 * shape.kda_bytes();
  needs.latent_bytes_per_token = shape.mla_layers * shape.cache_width * sizeof(float);
  needs.scratch_bytes_fixed = scratch_bytes_fixed(config);
  needs.scratch_bytes_per_token = scratch_bytes_per_token(config);
  needs.tile_bytes_per_token = tile_bytes_per_token(config);
  needs.tile_tokens = kTileTokens;
  needs.process_bytes = kProcessBytes + experts * kIndexBytesPerExpert;
  needs.kept_state_bytes = kept_state_bytes(config);
  needs.expert_slot_bytes = files.experts->slot_bytes();
  needs.top_k = config.moe.top_k;
  needs.total_experts = static_cast<std::int64_t>(experts);
  return needs;
}

std::int64_t choose_context(const ModelConfig& config, std::int64_t asked) {
  if (asked > config.max_context) {
    throw Error(ErrorCode::usage, "a context of " + std::to_string(asked) +
                                      " tokens: the model allows " +
                                      std::to_string(config.max_context));
  }
  return asked > 0 ? asked : std::min(config.max_context, kDefaultContext);
}

// The options with nothing left open but what the plan decides.
MemoryOptions memory_options(const KimiFiles& files, const ModelOptions& options) {
  MemoryOptions memory = options.memory;
  if (memory.budget_bytes == 0) memory.budget_bytes = default_memory_budget(system_memory());
  memory.context_tokens = choose_context(files.config, options.memory.context_tokens);
  return memory;
}

}  // namespace

std::vector<std::string> shard_dirs(const ModelOptions& options) {
  std::vector<std::string> dirs{options.dir};
  dirs.insert(dirs.end(), options.more_dirs.begin(), options.more_dirs.end());
  return dirs;
}

std::unique_ptr<Model> load_model(const ModelOptions& options) {
  const Kernels& kernels = choose_kernels(options.isa);
  const int threads = choose_threads(options.threads);
  KimiFiles files = open_files(options);
  KimiOptions run{.kernels = &kernels,
                  .threads = threads,
                  .needs = {},
                  .memory = memory_options(files, options),
                  .plan = {},
                  .look_ahead = options.look_ahead,
                  .lock_spine = options.lock_spine,
                  .read_backend = options.read_backend};
  run.needs = needs_of(files);
  run.plan = plan_memory(run.needs, run.memory);
  if (!run.plan.fits) {
    throw Error(ErrorCode::memory, options.dir + ": " + describe_shortage(run.plan));
  }
  if (options.lock_spine) {
    const std::string obstacle = lock_obstacle(run.plan.spine_bytes);
    if (!obstacle.empty())
      throw Error(ErrorCode::memory, "the spine cannot be locked: " + obstacle);
  }
  return std::make_unique<KimiModel>(std::move(files), std::move(run), options.stop);
}

ModelPlan plan_model(const ModelOptions& options) {
  const KimiFiles files = open_files(options);
  const ModelConfig& config = files.config;
  const auto moe_layers = static_cast<std::uint64_t>(config.moe_layers());
  const MemoryOptions memory = memory_options(files, options);
  const TensorInfo& embedding = files.index->get(config.prefix + "model.embed_tokens.weight");
  return {.architecture = config.architecture,
          .layers = config.layers,
          .moe_layers = config.moe_layers(),
          .experts = config.moe.experts,
          .top_k = config.moe.top_k,
          .file_bytes = files.index->file_bytes(),
          .expert_bytes = files.experts->expert_bytes(),
          .all_expert_bytes = moe_layers * static_cast<std::uint64_t>(config.moe.experts) *
                              files.experts->expert_bytes(),
          .embedding_bytes = embedding.bytes,
          .memory = plan_memory(needs_of(files), memory),
          .needs = needs_of(files),
          .options = memory};
}

}  // namespace penstock

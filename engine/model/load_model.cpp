// SPDX-License-Identifier: Apache-2.0
#include "engine/model/load_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/system_memory.h"
#include "engine/model/checkpoint_layout.h"
#include "engine/model/kimi.h"

namespace penstock {
namespace {

// Program, allocator and thread stacks; measured at some 20 MB, rounded up for what malloc keeps.
constexpr std::uint64_t kProcessBytes = 48'000'000;
constexpr std::uint64_t kIndexBytesPerExpert = 128;
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

KimiFiles open_files(const ModelOptions& options) {
  KimiFiles files;
  files.config = read_model_config(options.dir);
  const SourceOpener opener =
      options.opener ? options.opener : [](const std::string& path) { return open_source(path); };
  files.index = std::make_unique<const TensorIndex>(
      options.without_weights ? TensorIndex::from_layout(checkpoint_layout(files.config))
                              : TensorIndex::open(options.dir, opener));
  files.experts = std::make_unique<const ExpertStore>(*files.index, expert_shape(files.config),
                                                      files.config.is_moe);
  files.spine = spine_units(*files.index, files.config);
  files.segments = plan_segments({.published = files.index.get()}, files.spine.units);
  return files;
}

MemoryNeeds needs_of(const KimiFiles& files, std::int64_t context) {
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
  needs.process_bytes = kProcessBytes + experts * kIndexBytesPerExpert;
  needs.kept_state_bytes = shape.kda_bytes() +
                           static_cast<std::uint64_t>(config.vocab) * sizeof(float) +
                           static_cast<std::uint64_t>(context) * needs.latent_bytes_per_token;
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

MemoryPlan make_plan(const KimiFiles& files, const ModelOptions& options, std::int64_t context) {
  MemoryOptions memory = options.memory;
  if (memory.budget_bytes == 0) memory.budget_bytes = default_memory_budget(system_memory());
  memory.context_tokens = context;
  return plan_memory(needs_of(files, context), memory);
}

}  // namespace

std::unique_ptr<Model> load_model(const ModelOptions& options) {
  const Kernels& kernels = choose_kernels(options.isa);
  const int threads = choose_threads(options.threads);
  KimiFiles files = open_files(options);
  const std::int64_t context = choose_context(files.config, options.memory.context_tokens);
  const MemoryPlan plan = make_plan(files, options, context);
  if (!plan.fits) throw Error(ErrorCode::memory, options.dir + ": " + describe_shortage(plan));
  return std::make_unique<KimiModel>(std::move(files), kernels, threads, plan, context,
                                     options.stop);
}

ModelPlan plan_model(const ModelOptions& options) {
  const KimiFiles files = open_files(options);
  const ModelConfig& config = files.config;
  const auto moe_layers = static_cast<std::uint64_t>(config.moe_layers());
  const TensorInfo& embedding = files.index->get(config.prefix + "model.embed_tokens.weight");
  return {
      .architecture = config.architecture,
      .layers = config.layers,
      .moe_layers = config.moe_layers(),
      .experts = config.moe.experts,
      .top_k = config.moe.top_k,
      .file_bytes = files.index->file_bytes(),
      .expert_bytes = files.experts->expert_bytes(),
      .all_expert_bytes = moe_layers * static_cast<std::uint64_t>(config.moe.experts) *
                          files.experts->expert_bytes(),
      .embedding_bytes = embedding.bytes,
      .memory = make_plan(files, options, choose_context(config, options.memory.context_tokens))};
}

}  // namespace penstock

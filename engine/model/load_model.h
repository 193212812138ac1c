// SPDX-License-Identifier: Apache-2.0
//
// From a model folder to a Model, or to the plan of what it would take. Plain functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/stop_flag.h"
#include "engine/io/read_queue.h"
#include "engine/model/model.h"
#include "engine/weights/memory_plan.h"
#include "engine/weights/tensor_index.h"

namespace penstock {

// Which weights the spine is read from.
enum class SpineChoice : std::uint8_t {
  automatic,  // a bf12 sidecar when there is one, else as published: the same bits
  published,
  bf12,
  int8,  // lossy
};

struct ModelOptions {
  std::string dir;                       // with config.json and the shards
  std::vector<std::string> more_dirs{};  // other folders with shards, on other drives say
  std::string isa;                       // kernel table by name; empty: the best one
  int threads = 0;                       // 0: all cores
  MemoryOptions memory;                  // budget 0: default_memory_budget
  SpineChoice spine = SpineChoice::automatic;
  bool look_ahead = true;   // reads experts that the next layer may want, where it pays
  bool lock_spine = false;  // keeps pinned memory from being swapped out
  ReadBackendChoice read_backend = ReadBackendChoice::automatic;
  SourceOpener opener;             // null: open_source
  bool without_weights = false;    // `dir` has config.json only: enough for plan_model
  const StopFlag* stop = nullptr;  // ends the load with Error(cancelled)
};

// All folders with shards, `dir` first.
std::vector<std::string> shard_dirs(const ModelOptions& options);

// Reads and checks everything but matrices, and plans the memory. Matrices are read as sweeps need
// them. Throws Error(model), Error(memory) before anything large is allocated; Error(io).
std::unique_ptr<Model> load_model(const ModelOptions& options);

// What `penstock plan` shows.
struct ModelPlan {
  std::string architecture;
  std::int32_t layers;
  std::int32_t moe_layers;
  std::int32_t experts;  // of a layer
  std::int32_t top_k;
  std::uint64_t file_bytes;
  std::uint64_t expert_bytes;      // one expert
  std::uint64_t all_expert_bytes;  // all of them
  std::uint64_t embedding_bytes;   // read by row
  MemoryPlan memory;
  MemoryNeeds needs;      // what it was made of ...
  MemoryOptions options;  // ... and for
};
ModelPlan plan_model(const ModelOptions& options);

}  // namespace penstock

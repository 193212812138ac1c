// SPDX-License-Identifier: Apache-2.0
#include "server/commands/run_stats.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/weights/memory_plan.h"

namespace penstock {
namespace {

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", value);
  return text;
}

}  // namespace

std::string describe_stats(const GenerationStats& stats) {
  const std::string cached = stats.cached_tokens > 0
                                 ? " (" + std::to_string(stats.cached_tokens) + " kept from before)"
                                 : "";
  return std::to_string(stats.prompt_tokens) + " prompt tokens" + cached + " in " +
         seconds(stats.prefill_s) + ", " + std::to_string(stats.generated_tokens) +
         " generated in " + seconds(stats.decode_s) + "; " + std::to_string(stats.expert_reads) +
         " experts read, " + std::to_string(stats.expert_hits) + " in memory; " +
         format_bytes(stats.drive_bytes) + " from the drive";
}

nlohmann::ordered_json stats_json(const GenerationStats& stats) {
  nlohmann::ordered_json json;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["cached_tokens"] = stats.cached_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["prefill_s"] = stats.prefill_s;
  json["decode_s"] = stats.decode_s;
  json["expert_reads"] = stats.expert_reads;
  json["expert_hits"] = stats.expert_hits;
  json["expert_bytes"] = stats.expert_bytes;
  json["spine_bytes"] = stats.spine_bytes;
  json["drive_bytes"] = stats.drive_bytes;
  return json;
}

}  // namespace penstock

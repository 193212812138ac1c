// SPDX-License-Identifier: Apache-2.0
#include "server/commands/profile.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/base/error.h"
#include "engine/weights/memory_plan.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// What of the wall time is none of the parts that are measured.
double other_s(const PhaseProfile& phase) {
  const ModelStats& work = phase.work;
  return std::max(0.0, phase.wall_s - work.spine_wait_s - work.expert_wait_s -
                           work.expert_compute_s - work.kda_s - work.mla_s - work.head_s);
}

double drive_idle_s(const PhaseProfile& phase) {
  return std::max(0.0, phase.wall_s - phase.work.drive_busy_s);
}

double rate(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / 1e9 / seconds : 0;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string describe_phase(const char* name, const PhaseProfile& phase, const ModelMemory& memory) {
  const ModelStats& work = phase.work;
  const auto share = [&](const char* part, double seconds) {
    return std::string(", ") + part + formatted(" %.2f s", seconds);
  };
  const std::uint64_t uses = work.expert_reads + work.expert_hits;
  const double hits =
      uses > 0 ? 100.0 * static_cast<double>(work.expert_hits) / static_cast<double>(uses) : 0;
  std::string text = std::string(name) + ": " + std::to_string(phase.tokens) + " tokens in" +
                     formatted(" %.2f s", phase.wall_s);
  if (phase.tokens > 0) {
    text += formatted(", %.3f s a token", phase.wall_s / static_cast<double>(phase.tokens));
  }
  text += "\n  waited for the spine" + formatted(" %.2f s", work.spine_wait_s) +
          share("for experts", work.expert_wait_s) +
          share("computed experts", work.expert_compute_s) + share("KDA", work.kda_s) +
          share("MLA", work.mla_s) + share("head", work.head_s) + share("other", other_s(phase));
  text += "\n  spine " + format_bytes(work.spine_bytes) + ", experts " +
          format_bytes(work.expert_bytes) + ", asked of the drive " +
          format_bytes(work.drive_bytes) + " at" +
          formatted(" %.2f GB/s", rate(work.drive_bytes, work.drive_busy_s)) +
          formatted(" while busy, idle %.0f %% of the time",
                    phase.wall_s > 0 ? 100 * drive_idle_s(phase) / phase.wall_s : 0);
  text += "\n  experts in memory when wanted" + formatted(" %.0f %%", hits) + "; read ahead " +
          std::to_string(work.ahead_reads) + ", wanted " + std::to_string(work.ahead_hits) +
          "; spine pinned " + format_bytes(memory.pinned_bytes) + " of " +
          format_bytes(memory.spine_bytes);
  // The drive at the rate that it has shown, busy all the time.
  const double floor = work.drive_busy_s;
  if (floor > 0) text += formatted("; %.2f times what the drive takes", phase.wall_s / floor);
  return text;
}

Json work_json(const PhaseProfile& phase) {
  const ModelStats& work = phase.work;
  return {{"tokens", phase.tokens},
          {"wall_s", phase.wall_s},
          {"spine_wait_s", work.spine_wait_s},
          {"expert_wait_s", work.expert_wait_s},
          {"expert_compute_s", work.expert_compute_s},
          {"kda_s", work.kda_s},
          {"mla_s", work.mla_s},
          {"head_s", work.head_s},
          {"other_s", other_s(phase)},
          {"spine_bytes", work.spine_bytes},
          {"expert_bytes", work.expert_bytes},
          {"drive_bytes", work.drive_bytes},
          {"expert_reads", work.expert_reads},
          {"expert_hits", work.expert_hits},
          {"lookahead_reads", work.ahead_reads},
          {"lookahead_hits", work.ahead_hits},
          {"drive_idle_s", drive_idle_s(phase)}};
}

}  // namespace

std::string describe_profile(const GenerationProfile& profile) {
  return describe_phase("prefill", profile.prefill, profile.memory) + "\n" +
         describe_phase("decode", profile.decode, profile.memory);
}

std::string profile_json(const GenerationProfile& profile) {
  const auto phase_json = [&](const PhaseProfile& phase) {
    Json json = work_json(phase);
    json["resident_spine_bytes"] = profile.memory.pinned_bytes;
    return json;
  };
  Json tokens = Json::array();
  for (const PhaseProfile& token : profile.generated) tokens.push_back(work_json(token));
  const Json json = {{"prompt_tokens", profile.stats.prompt_tokens},
                     {"cached_tokens", profile.stats.cached_tokens},
                     {"generated_tokens", profile.stats.generated_tokens},
                     {"prefill", phase_json(profile.prefill)},
                     {"decode", phase_json(profile.decode)},
                     {"budget_bytes", profile.memory.budget_bytes},
                     {"spine_bytes", profile.memory.spine_bytes},
                     {"pinned_bytes", profile.memory.pinned_bytes},
                     {"expert_slots", profile.memory.expert_slots},
                     {"generated", std::move(tokens)}};
  return json.dump();
}

std::function<void(const GenerationProfile&)> profile_writer(const Config& config) {
  std::shared_ptr<std::FILE> file;
  if (!config.profile_json.empty()) {
    file.reset(std::fopen(config.profile_json.c_str(), "ae"), [](std::FILE* opened) {
      if (opened != nullptr) std::fclose(opened);
    });
    if (!file) {
      throw Error(ErrorCode::usage,
                  "--profile-json: " + config.profile_json +
                      " cannot be opened: " + std::generic_category().message(errno));
    }
  }
  if (!config.profile && !file) return {};
  return [file, to_log = config.profile](const GenerationProfile& profile) {
    if (to_log) std::fputs((describe_profile(profile) + "\n").c_str(), stderr);
    if (!file) return;
    const std::string line = profile_json(profile) + "\n";
    const bool written = std::fputs(line.c_str(), file.get()) >= 0 && std::fflush(file.get()) == 0;
    if (!written) spdlog::warn("--profile-json: a line could not be written");
  };
}

}  // namespace penstock

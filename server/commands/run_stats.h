// SPDX-License-Identifier: Apache-2.0
//
// What a generation took, for people and for programs. Plain functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/stats.h"

namespace penstock {

// One line without its end: tokens, seconds, experts, bytes from the drive.
std::string describe_stats(const GenerationStats& stats);

nlohmann::ordered_json stats_json(const GenerationStats& stats);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// --profile and --profile-json: where the time of each generation went.
#pragma once

#include <functional>
#include <string>

#include "config/config.h"
#include "engine/stats.h"

namespace penstock {

// What is called when a generation has ended, by the engine thread; empty when nobody asked. Throws
// Error(usage) when the file of --profile-json cannot be opened.
std::function<void(const GenerationProfile&)> profile_writer(const Config& config);

// Several lines for people, the last without its end.
std::string describe_profile(const GenerationProfile& profile);

// One JSON object.
std::string profile_json(const GenerationProfile& profile);

}  // namespace penstock

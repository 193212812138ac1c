// SPDX-License-Identifier: Apache-2.0
//
// The processor cores that threads may run on.
#pragma once

#include <vector>

namespace penstock {

int available_cores();  // that this process may run on, at least 1

// Their numbers, ascending; empty where threads cannot be bound to cores (macOS).
std::vector<int> bindable_cores();

// Lets the calling thread run on these cores only, if the system agrees. Threads that it starts
// inherit this. `cores` is not empty.
void bind_to_cores(const std::vector<int>& cores);

}  // namespace penstock

// SPDX-License-Identifier: Apache-2.0
//
// What `penstock --version` says. Plain functions.
#pragma once

#include <string>

namespace penstock {

std::string version_line();  // "penstock 0.1.0 (GCC 12.2.0; avx512, scalar)", without newline
std::string version_json();  // {"version": ..., "compiler": ..., "isa": [best first]}

}  // namespace penstock

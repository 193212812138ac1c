// SPDX-License-Identifier: Apache-2.0
//
// What each instruction set's file offers to dispatch.cpp, and nobody else: one line each. A table
// starts as a copy of the next lower one and replaces the slots that it improves. The functions
// below execute no instruction of their set; the slots may run only where cpu.h says so.
#pragma once

#include "kernels/kernels.h"

namespace penstock {

Kernels scalar_kernels();
Kernels avx512_kernels(const Kernels& lower);  // x86-64: AVX-512 F, BW, VL and DQ

}  // namespace penstock

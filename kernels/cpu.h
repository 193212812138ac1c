// SPDX-License-Identifier: Apache-2.0
//
// What the processor and the operating system let this process execute. Thread-safe.
#pragma once

namespace penstock {

struct CpuFeatures {
  bool avx512 = false;  // AVX-512 F, BW, VL and DQ, FMA, and the system saves their registers
};

CpuFeatures detect_cpu();

}  // namespace penstock

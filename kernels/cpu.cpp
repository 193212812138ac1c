// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#endif

namespace penstock {

#if defined(__x86_64__)

namespace {

// The register sets that the operating system saves; only valid when CPUID reports OSXSAVE.
uint32_t saved_registers() {
  uint32_t low = 0;
  uint32_t high = 0;
  // The intrinsic would need -mxsave for this whole file.
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

CpuFeatures detect_cpu() {
  CpuFeatures features;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  constexpr uint32_t kLeaf1Ecx = bit_FMA | bit_OSXSAVE;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kLeaf1Ecx) != kLeaf1Ecx) return features;
  constexpr uint32_t kZmm = 0xE6;  // SSE, AVX, opmask, and both parts of the ZMM registers
  if ((saved_registers() & kZmm) != kZmm) return features;
  constexpr uint32_t kLeaf7Ebx = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return features;
  features.avx512 = (b & kLeaf7Ebx) == kLeaf7Ebx;
  return features;
}

#else

// Every 64-bit Arm has the NEON that a table would use, so there is nothing to ask.
CpuFeatures detect_cpu() {
  return {};
}

#endif

}  // namespace penstock

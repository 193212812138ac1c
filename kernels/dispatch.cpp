// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "kernels/tables.h"

namespace penstock {
namespace {

// Lowest first, since each table is built over the one before it.
struct Tables {
  Kernels ascending[kMaxKernelTables];
  int count = 0;

  Tables() {
    ascending[count++] = scalar_kernels();
    [[maybe_unused]] const CpuFeatures cpu = detect_cpu();
#if defined(__x86_64__)
    if (cpu.avx512) add(avx512_kernels);
#endif
  }

  void add(Kernels (*build)(const Kernels& lower)) {
    ascending[count] = build(ascending[count - 1]);
    ++count;
  }
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

}  // namespace

KernelList supported_kernels() {
  const Tables& all = tables();
  KernelList list{};
  for (int i = all.count - 1; i >= 0; --i) list.tables[list.count++] = &all.ascending[i];
  return list;
}

const Kernels* find_kernels(const char* name) {
  const KernelList list = supported_kernels();
  if (name == nullptr || name[0] == '\0') return list.tables[0];
  for (int i = 0; i < list.count; ++i) {
    if (strcmp(list.tables[i]->name, name) == 0) return list.tables[i];
  }
  return nullptr;
}

}  // namespace penstock

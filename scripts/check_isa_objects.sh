#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check_isa_objects.sh BUILD_DIR: fails when an object of kernels/ that is compiled for one
# instruction set defines a weak function. The linker keeps one copy of those for the whole program,
# perhaps the one that was compiled for AVX-512: then an older CPU dies of it anywhere.
set -euo pipefail

build=${1:?usage: check_isa_objects.sh BUILD_DIR}
nm=${NM:-nm}
all=$(find "$build/kernels" -name '*.o' | sort)
[ -n "$all" ] || { echo "$build/kernels: no objects; build penstock_kernels first" >&2; exit 1; }
# These are compiled for what every machine has.
objects=$(grep -vE '/(scalar|dispatch|cpu)\.cpp\.o$' <<<"$all" || true)

status=0
for object in $objects; do
  weak=$("$nm" -C --defined-only "$object" | awk '$2 == "W"')
  if [ -n "$weak" ]; then
    echo "$object: weak functions:" >&2
    echo "$weak" >&2
    status=1
  fi
done
exit "$status"

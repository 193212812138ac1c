#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing and builds Penstock with the default compiler, release.
#   scripts/build.sh              everything, tests included
#   scripts/build.sh penstock     only that target
# Prints the build folder last: build/release, or PENSTOCK_BUILD_DIR. CXX names another compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in -h | --help) sed -n '4,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

build=${PENSTOCK_BUILD_DIR:-build/release}
configure=(cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_WERROR=ON)
{
  scripts/install_deps.sh
  if [ ! -f "$build/CMakeCache.txt" ]; then
    compiler=${CXX:-$(command -v g++ || command -v c++)}
    configure+=("-DCMAKE_CXX_COMPILER=$compiler")
    if command -v ccache >/dev/null; then configure+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  fi
  "${configure[@]}"
  cmake --build "$build" -j "$(getconf _NPROCESSORS_ONLN)" ${1:+--target "$@"}
} >&2
echo "$build"

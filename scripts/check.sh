#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks the tree: format, layers, ISA objects, warnings as errors (GCC).
#   scripts/check.sh               these four
#   scripts/check.sh --all         also: Clang, clang-tidy, asan+ubsan, tsan, aarch64 under qemu
#   scripts/check.sh STEP...       only the steps named: format layers warnings isa clang tidy asan
#                                  tsan aarch64
# Tools: scripts/install_deps.sh --format, or --tools for --all. Builds live in build/.
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$(getconf _NPROCESSORS_ONLN)
gcc=${CXX:-$(command -v g++ || command -v c++)}
clang=$(command -v clang++-14 || command -v clang++ || true)

need() {
  command -v "$1" >/dev/null || { echo "$1 is missing: scripts/install_deps.sh --tools" >&2; return 1; }
}

# configure FOLDER COMPILER OPTION...
configure() {
  local folder=$1 compiler=$2
  shift 2
  local options=(-DCMAKE_CXX_COMPILER="$compiler" -DPENSTOCK_WERROR=ON "$@")
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S . -B "build/$folder" -G Ninja "${options[@]}" >"build/$folder.log" 2>&1 ||
    { cat "build/$folder.log"; return 1; }
}

build() {
  cmake --build "build/$1" -j "$jobs" "${@:2}"
}

run_tests() {
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}"
}

sources() {
  find kernels engine server config tests -name '*.h' -o -name '*.cpp' | sort
}

check_format() {
  local tool
  tool=$(command -v clang-format-14 || command -v clang-format) || need clang-format-14 || return 1
  sources | xargs "$tool" --dry-run -Werror
}

check_layers() {
  scripts/check_layers.py
}

check_warnings() {
  configure release "$gcc" -DCMAKE_BUILD_TYPE=Release && build release
}

# Both ways of compiling: what -O2 inlines away is a weak function at -O0.
check_isa() {
  configure release "$gcc" -DCMAKE_BUILD_TYPE=Release && build release --target penstock_kernels &&
    scripts/check_isa_objects.sh build/release &&
    configure debug "$gcc" -DCMAKE_BUILD_TYPE=Debug && build debug --target penstock_kernels &&
    scripts/check_isa_objects.sh build/debug
}

check_clang() {
  need clang++-14 && configure clang "$clang" -DCMAKE_BUILD_TYPE=Release && build clang &&
    run_tests clang
}

check_tidy() {
  need run-clang-tidy-14 && configure clang "$clang" -DCMAKE_BUILD_TYPE=Release || return 1
  run-clang-tidy-14 -quiet -p build/clang -j "$jobs" '/(kernels|engine|config|server)/.*\.cpp$' \
    >build/tidy.log 2>&1
  local status=$?
  grep -E '(error|warning): ' build/tidy.log | sort -u
  return "$status"
}

check_asan() {
  need clang++-14 && configure asan "$clang" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DPENSTOCK_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS=-fno-sanitize-recover=all &&
    build asan && run_tests asan
}

check_tsan() {
  need clang++-14 && configure tsan "$clang" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DPENSTOCK_SANITIZE=thread && build tsan &&
    TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/tsan.supp" run_tests tsan
}

check_aarch64() {
  scripts/check_aarch64.sh
}

steps=(format layers warnings isa)
case "${1:-}" in
  "") ;;
  --all) steps+=(clang tidy asan tsan aarch64) ;;
  -h | --help) sed -n '4,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) steps=("$@") ;;
esac

mkdir -p build
failed=()
for step in "${steps[@]}"; do
  if ! declare -F "check_$step" >/dev/null; then
    echo "check.sh: no step $step; see --help" >&2
    exit 1
  fi
  echo "== $step"
  SECONDS=0
  "check_$step" || failed+=("$step")
  echo "== $step: $([[ " ${failed[*]:-} " == *" $step "* ]] && echo FAILED || echo ok), $SECONDS s"
done
[ ${#failed[@]} -eq 0 ] || { echo "check.sh: failed: ${failed[*]}" >&2; exit 1; }
echo "check.sh: ${steps[*]}: all ok"

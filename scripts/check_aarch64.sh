#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cross-builds everything for aarch64 Linux and runs the tests under qemu: all of them, or those
# that the arguments name to ctest. Debian; needs scripts/install_deps.sh --tools.
#
# Debian's libraries for this machine cannot be linked there, so a small prefix is laid out:
# header-only libraries as links, GoogleTest built from its Debian sources.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$PWD/build/aarch64
prefix=$build/prefix
cross=aarch64-linux-gnu-g++
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
jobs=$(getconf _NPROCESSORS_ONLN)
if [ -z "$qemu" ] || ! command -v "$cross" >/dev/null; then
  echo "$cross or qemu-aarch64 is missing: scripts/install_deps.sh --tools" >&2
  exit 1
fi

lay_out_headers() {
  mkdir -p "$prefix/include" "$prefix/share/cmake" "$prefix/lib/cmake/spdlog"
  for library in nlohmann CLI spdlog fmt; do
    ln -sfn "/usr/include/$library" "$prefix/include/$library"
  done
  # Copies, not links: these files find the headers by their own place.
  cp -r /usr/share/cmake/nlohmann_json /usr/share/cmake/CLI11 "$prefix/share/cmake/"
  cat >"$prefix/lib/cmake/spdlog/spdlogConfig.cmake" <<'CMAKE'
add_library(spdlog::spdlog INTERFACE IMPORTED)
target_include_directories(spdlog::spdlog INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../../../include")
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
CMAKE
}

cross_options=(
  -G Ninja -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$cross
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc
  "-DCMAKE_FIND_ROOT_PATH=$prefix" -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
  "-DCMAKE_CROSSCOMPILING_EMULATOR=$qemu;-L;/usr/aarch64-linux-gnu"
)

build_googletest() {
  [ ! -f "$prefix/lib/libgtest.a" ] || return 0
  cmake -S /usr/src/googletest -B "$build/googletest" "${cross_options[@]}" -DBUILD_GMOCK=OFF \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib >/dev/null
  cmake --build "$build/googletest" -j "$jobs" >/dev/null
  cmake --install "$build/googletest" >/dev/null
}

lay_out_headers
build_googletest
cmake -S . -B "$build/penstock" "${cross_options[@]}" -DPENSTOCK_WERROR=ON >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build/penstock" -j "$jobs"
NM=aarch64-linux-gnu-nm scripts/check_isa_objects.sh "$build/penstock"
ctest --test-dir "$build/penstock" --output-on-failure --no-tests=error -j "$jobs" "$@"

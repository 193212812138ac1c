#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cross-builds everything for aarch64 Linux and runs the tests under qemu: all of them, or those
# that the arguments name to ctest. Debian; needs scripts/install_deps.sh --tools.
#
# The libraries are Debian's for arm64, unpacked into build/aarch64/libraries and nowhere else: the
# machine's own packages stay as they are.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$PWD/build/aarch64
libraries=$build/libraries
packages=(
  libbrotli-dev libbrotli1 libcli11-dev libcpp-httplib-dev libcpp-httplib0.11 libfmt-dev libfmt9
  libgtest-dev libspdlog-dev libspdlog1.10 libssl-dev libssl3 liburing-dev liburing2
  nlohmann-json3-dev zlib1g zlib1g-dev
)
cross=aarch64-linux-gnu-g++
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
jobs=$(getconf _NPROCESSORS_ONLN)
if [ -z "$qemu" ] || ! command -v "$cross" >/dev/null; then
  echo "$cross or qemu-aarch64 is missing: scripts/install_deps.sh --tools" >&2
  exit 1
fi

# apt with lists and downloads of its own, so that arm64 is no business of the machine's.
unpack_libraries() {
  [ ! -f "$libraries/complete" ] || return 0
  local apt=$build/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages" "$libraries"
  local options=(
    -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1
    -o APT::Sandbox::User= -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    -o Dir::State::status=/dev/null
  )
  apt-get "${options[@]}" update
  (cd "$apt/packages" && apt-get "${options[@]}" download "${packages[@]}")
  for package in "$apt"/packages/*.deb; do dpkg-deb -x "$package" "$libraries"; done
  touch "$libraries/complete"
}

unpack_libraries
folders=$libraries/usr/lib/aarch64-linux-gnu:$libraries/lib/aarch64-linux-gnu
export PKG_CONFIG_LIBDIR=$libraries/usr/lib/aarch64-linux-gnu/pkgconfig
export PKG_CONFIG_SYSROOT_DIR=$libraries
mkdir -p "$build"
cmake -S . -B "$build/penstock" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_WERROR=ON \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$cross \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
  "-DCMAKE_FIND_ROOT_PATH=$libraries" -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY \
  -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
  "-DCMAKE_CXX_FLAGS=-isystem $libraries/usr/include/aarch64-linux-gnu" \
  "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$folders" \
  "-DCMAKE_CROSSCOMPILING_EMULATOR=$qemu;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=$folders" \
  >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }
cmake --build "$build/penstock" -j "$jobs"
NM=aarch64-linux-gnu-nm scripts/check_isa_objects.sh "$build/penstock"
ctest --test-dir "$build/penstock" --output-on-failure --no-tests=error -j "$jobs" "$@"

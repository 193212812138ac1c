#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what Penstock needs to build, test and be talked to, from the system's package manager,
# and nothing that is there already. Debian and Ubuntu: as root or with sudo. macOS: Homebrew.
#   scripts/install_deps.sh            compiler, CMake, libraries
#   scripts/install_deps.sh --format   also what scripts/check.sh uses
#   scripts/install_deps.sh --tools    also what scripts/check.sh --all uses
set -euo pipefail

debian_packages=(
  g++ cmake ninja-build pkg-config python3 curl
  libcpp-httplib-dev nlohmann-json3-dev libspdlog-dev libcli11-dev libgtest-dev
  liburing-dev
)
debian_format_packages=(clang-format-14)
debian_tools=(
  clang-14 clang-tidy-14 clang-tools-14 clang-format-14 libclang-rt-14-dev
  g++-aarch64-linux-gnu qemu-user-static
)
brew_packages=(cmake ninja pkg-config python3 cpp-httplib nlohmann-json spdlog cli11 googletest)
brew_tools=(llvm@14 clang-format@14)

usage() {
  sed -n '4,9s/^# \{0,1\}//p' "$0"
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "install_deps.sh: not root and no sudo; install these as root: ${missing[*]}" >&2
    exit 1
  fi
}

install_debian() {
  missing=()
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "installing: ${missing[*]}"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
  # The list of packages may be absent or too old to find them: refresh it only then.
  if ! as_root "${install[@]}" "${missing[@]}" >/dev/null 2>&1; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root "${install[@]}" "${missing[@]}"
  fi
}

install_brew() {
  missing=()
  for package in "$@"; do
    brew list --versions "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || brew install "${missing[@]}"
}

what=build
case "${1:-}" in
  "") ;;
  --format) what=format ;;
  --tools) what=tools ;;
  -h | --help) usage; exit 0 ;;
  *) echo "install_deps.sh: unknown argument $1; see --help" >&2; exit 1 ;;
esac

if command -v apt-get >/dev/null; then
  packages=("${debian_packages[@]}")
  [ "$what" = format ] && packages+=("${debian_format_packages[@]}")
  [ "$what" = tools ] && packages+=("${debian_tools[@]}")
  install_debian "${packages[@]}"
elif command -v brew >/dev/null; then
  packages=("${brew_packages[@]}")
  [ "$what" = tools ] && packages+=("${brew_tools[@]}")
  install_brew "${packages[@]}"
else
  echo "install_deps.sh: neither apt-get nor brew here; install by hand: a C++20 compiler, CMake" \
    "3.25, Ninja, pkg-config, Python 3, cpp-httplib, nlohmann-json, spdlog, CLI11, GoogleTest" >&2
  exit 1
fi

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the includes of every C++ file against the layers of Penstock.

check_layers.py [ROOT]     prints FILE:LINE: problem, one a line; exit status 1 when there is one

Arrows point down only:

              server/main.cpp, server/commands/
                 /      |       \\
            config/   server/    |
                  \\     |       /
                   engine/
                  /        |        \\
        engine/text   engine/model   |
                  \\        |         |
                   \\    engine/weights
                    \\      |      \\
                     \\  kernels/   engine/io
                      \\              |
                       \\---------- engine/base
"""

import pathlib
import re
import sys

# What each layer may include of ours, besides itself: folders, or single files. A file belongs to
# the longest prefix that fits.
LAYERS = {
    "kernels/": [],
    "engine/base/": [],
    "engine/io/": ["engine/base/"],
    "engine/weights/": ["engine/base/", "engine/io/", "kernels/formats.h"],
    "engine/model/": ["engine/base/", "engine/io/", "engine/weights/", "kernels/"],
    "engine/text/": ["engine/base/"],
    "engine/": ["engine/base/", "engine/text/", "engine/model/", "engine/weights/"],
    "server/": ["engine/engine.h", "engine/stats.h", "engine/text/", "engine/base/"],
    "config/": ["engine/", "engine/base/", "engine/model/", "engine/weights/", "server/"],
    "server/main.cpp": [""],
    "server/commands/": [""],
    "tests/": [""],
}

# Who may include which header of others: header pattern, file pattern. The first that fits counts.
THIRD_PARTY = [
    (r"httplib\.h", r"server/http_server\.cpp|engine/io/http_file\.cpp"),
    (r"liburing\.h", r"engine/io/uring_backend\.cpp"),
    (r"CLI/.+", r"config/config\.cpp|server/commands/\w+\.cpp|tests/config/\w+\.cpp"),
    (r"nlohmann/json_fwd\.hpp", r"(engine|server|config|tests)/.+"),
    (r"nlohmann/json\.hpp", r"(engine|server|config)/.+\.cpp|tests/.+"),
    (r"spdlog/.+", r"(server|tests/http)/.+\.cpp"),
    (r"gtest/.+|gmock/.+", r"tests/.+"),
    (r"benchmark/.+", r"tests/bench/.+"),
]

STANDARD_CPP = re.compile(r"[a-z_0-9]+")  # <vector>, <cstdint>
C_LIBRARY = re.compile(
    r"(assert|ctype|errno|fenv|float|inttypes|limits|locale|math|setjmp|signal|stdarg|stdbool"
    r"|stddef|stdint|stdio|stdlib|string|time)\.h"
)
SYSTEM = re.compile(
    r"(asm|linux|mach|mach-o|net|netinet|arpa|sys)/[\w/.]+\.h"
    r"|(cpuid|dirent|dlfcn|elf|fcntl|ftw|glob|libproc|netdb|poll|pthread|sched|spawn|termios|unistd)\.h"
)
INTRINSICS = re.compile(r"(immintrin|x86intrin|emmintrin|arm_neon|arm_sve|arm_acle)\.h")
# Kernels: pointers and counts; only these two see the C library and the system.
KERNEL_PLAIN = re.compile(r"(stdint|stddef)\.h")
KERNEL_SYSTEM_FILES = re.compile(r"kernels/(dispatch|cpu)\.(h|cpp)")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)"|(.+))')
SOURCES = ("kernels", "engine", "server", "config", "tests")


def layer_of(path):
    fitting = [prefix for prefix in LAYERS if path.startswith(prefix)]
    return max(fitting, key=len, default=None)


def check_own(root, path, header):
    """The problem with `path` including our `header`, or None."""
    if not (root / header).is_file():
        return f'"{header}": no such file; ours are included by their path from the root'
    layer, other = layer_of(path), layer_of(header)
    if layer == other or any(seen in ("", other, header) for seen in LAYERS[layer]):
        return None
    return f'"{header}": {layer} may not see it'


def check_system(path, header):
    """The problem with `path` including <header>, or None."""
    if path.startswith("kernels/") and not KERNEL_SYSTEM_FILES.fullmatch(path):
        if KERNEL_PLAIN.fullmatch(header) or INTRINSICS.fullmatch(header):
            return None
        return f"<{header}>: kernels see <stdint.h>, <stddef.h> and intrinsics only"
    for pattern, files in THIRD_PARTY:
        if re.fullmatch(pattern, header):
            if re.fullmatch(files, path):
                return None
            return f"<{header}>: only for {files}"
    if INTRINSICS.fullmatch(header):
        return f"<{header}>: intrinsics belong in kernels/"
    for known in (STANDARD_CPP, C_LIBRARY, SYSTEM):
        if known.fullmatch(header):
            return None
    return f"<{header}>: not in the table of third-party headers (scripts/check_layers.py)"


def includes(text):
    """Yields (line number, kind, header)."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            system, own, other = match.groups()
            kind = "system" if system else "own" if own else "other"
            yield number, kind, system or own or other


def check_file(root, path, graph):
    """Yields (line, problem)."""
    text = (root / path).read_text(encoding="utf-8")
    if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        yield 1, "the SPDX line is missing"
    if layer_of(path) is None:
        yield 1, "belongs to no layer"
        return
    if path.endswith(".h") and not re.search(r"^#pragma once$", text, re.M):
        yield 1, "#pragma once is missing"
    for line, kind, header in includes(text):
        if kind == "system":
            problem = check_system(path, header)
        elif kind == "own":
            problem = check_own(root, path, header)
            graph.setdefault(path, []).append((line, header))
        else:
            problem = f"{header}: an include names its file"
        if problem:
            yield line, problem


def find_cycle(graph):
    """The first include cycle as [(file, line)], or None."""
    done, path = set(), []

    def visit(file):
        for line, header in graph.get(file, []):
            names = [name for name, _ in path]
            path.append((file, line))
            if header == file or header in names:
                start = ([*names, file]).index(header)
                return path[start:]
            if header not in done:
                if cycle := visit(header):
                    return cycle
            path.pop()
        done.add(file)
        return None

    for file in sorted(graph):
        if file not in done:
            if cycle := visit(file):
                return cycle
    return None


def check(root):
    """All problems as lines of text."""
    graph, problems = {}, []
    files = sorted(
        path.relative_to(root).as_posix()
        for folder in SOURCES
        for path in (root / folder).rglob("*")
        if path.suffix in (".h", ".cpp", ".inc") and path.is_file()
    )
    for path in files:
        problems += [f"{path}:{line}: {text}" for line, text in check_file(root, path, graph)]
    if cycle := find_cycle(graph):
        loop = " -> ".join([file for file, _ in cycle] + [cycle[0][0]])
        problems.append(f"{cycle[0][0]}:{cycle[0][1]}: include cycle: {loop}")
    return files, problems


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        print(__doc__)
        return 0 if sys.argv[1] in ("-h", "--help") else 1
    root = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else pathlib.Path(__file__).parents[1])
    files, problems = check(root.resolve())
    for problem in problems:
        print(problem)
    if not files:
        print(f"{root}: no sources here")
        return 1
    if not problems:
        print(f"layers: {len(files)} files in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

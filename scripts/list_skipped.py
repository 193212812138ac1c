#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the skipped tests of a ctest run with their reasons: list_skipped.py LastTest.log"""

import re
import sys

TEST = re.compile(r"^\d+/\d+ Test(?:ing)?: (.+)$")
# GoogleTest writes "FILE:LINE: Skipped", the reason, then "[  SKIPPED ]"; Python's unittest writes
# "test_name (class) ... skipped 'reason'".
REASON = re.compile(r"^.+:\d+: Skipped$")
UNITTEST = re.compile(r"^(test_\w+) .*\.\.\. skipped (['\"])(.+)\2$")


def skipped(lines):
    """Yields (test, reason)."""
    name, reason = "", []
    collecting = False
    for line in lines:
        line = line.rstrip("\n")
        if match := TEST.match(line):
            name, collecting = match[1], False
        elif REASON.match(line):
            reason, collecting = [], True
        elif line.startswith("[  SKIPPED ] ") and collecting:
            yield name, " ".join(filter(None, reason)) or "no reason given"
            collecting = False
        elif match := UNITTEST.match(line):
            yield f"{name}.{match[1]}", match[3]
        elif collecting:
            reason.append(line.strip())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
            tests = list(skipped(log))
    except OSError as error:
        sys.exit(f"list_skipped.py: {error}")
    if not tests:
        print("No test was skipped.")
        return
    print(f"{len(tests)} skipped, by reason:")
    by_reason = {}
    for name, reason in tests:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        print(f"  {reason}: {', '.join(names)}")


if __name__ == "__main__":
    main()

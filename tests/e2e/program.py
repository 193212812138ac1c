# SPDX-License-Identifier: Apache-2.0
"""Runs the built penstock and reads what it writes."""

import array
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUBJECT = sys.argv[1] if len(sys.argv) > 1 else ""
ORACLES = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path()
COMMAND = sys.argv[3:]  # the program, behind its emulator when there is one
MODELS = ("k3-a", "k3-b", "kimi-linear-a")
TIMEOUT_S = 600


def environment(home, **variables):
    """The environment of a user without settings, whose home is `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    kept.pop("XDG_CONFIG_HOME", None)
    return {**kept, "HOME": str(home), **variables}


class Program:
    """penstock with an empty home of its own."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-e2e-")
        self.home = pathlib.Path(self.folder.name)

    def close(self):
        self.folder.cleanup()

    def run(self, *arguments, stdin="", variables=None, **options):
        """The finished process; standard output and error as text."""
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin, text=True, timeout=TIMEOUT_S, check=False,
            env=environment(self.home, **(variables or {})),
            **({"capture_output": True} | options),
        )

    def start(self, *arguments, variables=None):
        """The process, running."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(self.home, **(variables or {})),
        )

    def tables(self):
        """Kernel tables that this machine can run, best first."""
        return json.loads(self.run("--version", "--json").stdout)["isa"]


class ProgramTest(unittest.TestCase):
    """Tests of penstock, as `self.penstock`."""

    def setUp(self):
        self.penstock = Program()
        self.addCleanup(self.penstock.close)

    def succeed(self, *arguments, **options):
        """What the command, which succeeds, writes to standard output."""
        done = self.penstock.run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fail_with(self, *arguments, says, status=1, **options):
        """The command ends with `status` and one line that matches `says`."""
        done = self.penstock.run(*arguments, **options)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stderr}")
        self.assertRegex(done.stderr, r"\Apenstock: [^\n]+\n\Z")
        self.assertRegex(done.stderr, says)


def ids_text(ids):
    return ",".join(map(str, ids))


def golden(model):
    return json.loads((ORACLES / model / "golden.json").read_text())


def model_config(model):
    """The text part of a model's config.json."""
    config = json.loads((ORACLES / model / "config.json").read_text())
    return config.get("text_config", config)


def copy_model(model, folder):
    """A model folder of links, whose files can be replaced one by one."""
    folder.mkdir()
    for file in (ORACLES / model).iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def replace_config(folder, change):
    """Writes config.json anew after `change` was applied to its text part."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config.get("text_config", config))
    path.unlink()
    path.write_text(json.dumps(config))


def read_floats(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def errors(actual, expected):
    """(largest error over the largest magnitude, rms error over the rms)."""
    squares = [(a - e) ** 2 for a, e in zip(actual, expected)]
    largest = max(map(abs, expected))
    rms = math.sqrt(sum(e * e for e in expected))
    return math.sqrt(max(squares)) / largest, math.sqrt(sum(squares)) / rms

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench/bench_stream: its arithmetic on a profile at hand, its way with programs on false ones.

bench_stream_test.py BENCH_STREAM RAM_READ
"""

import csv
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv[1]
RAM_READ = sys.argv[2:]
HEADER = ("model,ram_gb,spine,tok_s,bytes_per_token,drive_gb_s_before,drive_gb_s_after,ram_gb_s,"
          "floor_s,ratio,drive_idle_share,peak_rss_gb,major_faults")

# 10 tokens of 0.5 s, 600 MB each.
PROFILE = {
    "prompt_tokens": 5, "generated_tokens": 11,
    "prefill": {"tokens": 5, "wall_s": 9.0, "drive_bytes": 10**11, "drive_idle_s": 8.0,
                "resident_spine_bytes": 0},
    "decode": {"tokens": 10, "wall_s": 5.0, "drive_bytes": 6 * 10**9, "drive_idle_s": 0.1,
               "resident_spine_bytes": 10**9},
}

# Answers as penstock does; each line of `calls` is what it was asked.
FALSE_PROGRAM = """#!%s
import json, pathlib, sys
home = pathlib.Path(__file__).parent
words = sys.argv[1:]
with open(home / "calls", "a") as calls:
    print(*words, file=calls)
if words[:2] == ["bench", "disk"]:
    print(json.dumps({"record_bytes": 3760128, "file_system": "ext4", "depth": 4, "gb_per_s": 1.5,
                      "depths": [{"depth": 4, "gb_per_s": 1.5}]}))
else:
    spine = words[words.index("--spine") + 1]
    profile = json.loads((home / "profile.json").read_text())
    profile["decode"]["wall_s"] = float((home / "wall_s").read_text())
    pathlib.Path(words[words.index("--profile-json") + 1]).write_text(json.dumps(profile))
    print(json.dumps({"ids": [1, 2, 3 if spine == "int8" else 4]}))
    sys.exit(int((home / "status").read_text()))
""" % sys.executable


def load_script():
    loader = importlib.machinery.SourceFileLoader("bench_stream", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_stream", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


bench_stream = load_script()


class Arithmetic(unittest.TestCase):
    def test_figures_of_a_run(self):
        run = bench_stream.figures(PROFILE, (1.0, 2.0), 10.0, 4.2e9, 7)
        self.assertEqual(run["tok_s"], 2.0)
        self.assertEqual(run["bytes_per_token"], 6e8)
        self.assertEqual((run["drive_gb_s_before"], run["drive_gb_s_after"]), (1.0, 2.0))
        self.assertAlmostEqual(run["floor_s"], 0.4 + 0.1)  # 600 MB at 1.5 GB/s, 1 GB at 10 GB/s
        self.assertAlmostEqual(run["ratio"], 1.0)
        self.assertAlmostEqual(run["drive_idle_share"], 0.02)
        self.assertEqual((run["peak_rss_gb"], run["major_faults"]), (4.2, 7))

    def test_summary_is_the_median_but_the_largest_memory(self):
        runs = [bench_stream.figures(PROFILE, (rate, rate), 10.0, rss, faults)
                for rate, rss, faults in ((1.0, 4e9, 0), (4.0, 5e9, 3), (2.0, 3e9, 1))]
        row = bench_stream.summary(runs)
        self.assertEqual(row["drive_gb_s_before"], 2.0)
        self.assertEqual(row["ratio"], runs[2]["ratio"])
        self.assertEqual((row["peak_rss_gb"], row["major_faults"]), (5.0, 3))

    def test_arms_take_turns_forwards_and_backwards(self):
        self.assertEqual(bench_stream.turns(["a", "b"], 3), ["a", "b", "b", "a", "a", "b"])

    def test_tokens_of_exact_spines_agree(self):
        seen = {}
        bench_stream.check_tokens(seen, (4.0, "bf16"), [1, 2])
        bench_stream.check_tokens(seen, (4.0, "int8"), [1, 3])
        bench_stream.check_tokens(seen, (8.0, "bf12"), [1, 2])
        for spine in ("bf12", "int8"):
            with self.assertRaisesRegex(bench_stream.Failed, f"8 GB, {spine}: the tokens"):
                bench_stream.check_tokens(seen, (8.0, spine), [1, 9])

    def test_csv(self):
        out = io.StringIO()
        runs = [bench_stream.figures(PROFILE, (1.5, 1.5), 10.0, 4e9, 0)]
        bench_stream.write_csv("kimi-linear", {(4.0, "bf16"): runs}, out)
        self.assertEqual(out.getvalue().splitlines(), [
            HEADER, "kimi-linear,4,bf16,2,600000000,1.5,1.5,10,0.5,1,0.02,4,0"])


class WithPrograms(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="penstock-bench-test-")
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        self.model = root / "small"
        self.model.mkdir()
        (self.model / "model.safetensors").write_bytes(bytes(100))
        self.bin = root / "bin"
        self.server = self.bin / "server"
        self.server.mkdir(parents=True)
        self.script(self.server / "penstock", FALSE_PROGRAM)
        (self.bin / "tests" / "bench").mkdir(parents=True)
        self.script(self.bin / "tests" / "bench" / "ram_read", "#!/bin/sh\necho 10.00\n")
        (self.server / "profile.json").write_text(json.dumps(PROFILE))
        (self.server / "wall_s").write_text("5.0")
        (self.server / "status").write_text("0")

    @staticmethod
    def script(path, text):
        path.write_text(text)
        os.chmod(path, 0o755)

    def bench(self, *options):
        return subprocess.run([sys.executable, SCRIPT, self.model, "--bin", self.bin, *options],
                              capture_output=True, text=True, check=False)

    def test_one_line_per_arm(self):
        done = self.bench("--ram", "4,8.5", "--spine", "bf16,int8", "--runs", "2", "--tokens", "9")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual(done.stdout.splitlines()[0], HEADER)
        self.assertEqual([(row["model"], row["ram_gb"], row["spine"]) for row in rows],
                         [("small", ram, spine) for ram in ("4", "8.5") for spine in ("bf16", "int8")])
        for row in rows:
            self.assertAlmostEqual(float(row["ratio"]), 1.0, places=3)
            self.assertGreater(float(row["peak_rss_gb"]), 0)
        calls = (self.server / "calls").read_text().splitlines()
        self.assertEqual([call.split()[0] for call in calls], ["bench", "run", "bench"] * 8)
        self.assertIn("--ids 1008,10484,318,15383,387 --max-tokens 9 --ignore-stop --ram 8500000000",
                      calls[7])

    def test_a_failure_is_one_line(self):
        (self.server / "status").write_text("3")
        done = self.bench("--ram", "4")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Abench_stream: [^\n]*penstock run [^\n]*: status 3: \n\Z")

    def test_refuses_what_it_does_not_know(self):
        for options in (("--ram", "many"), ("--spine", "bf8"), ("--runs", "0"), ("--tokens", "1")):
            self.assertEqual(self.bench(*options).returncode, 2)


class RamRead(unittest.TestCase):
    def test_says_a_rate(self):
        done = subprocess.run(RAM_READ, capture_output=True, text=True, check=True)
        self.assertGreater(float(done.stdout), 0)

    def test_refuses_other_arguments(self):
        for arguments in (["0"], ["x"], ["1", "1"]):
            done = subprocess.run([*RAM_READ, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, "ram_read: usage: ram_read [GB]\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

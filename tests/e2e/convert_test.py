#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock convert from outside: convert_test.py CLASS ORACLE_FOLDER [EMULATOR...] PENSTOCK"""

import pathlib
import resource
import signal
import time
import unittest

import program
from program import ORACLES, copy_model

DEMO = pathlib.Path(__file__).resolve().parents[2] / "config" / "demo-model"
MOST_BF12 = 0.765  # of the demo model's spine in bf16


class Convert(program.ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = copy_model("k3-a", self.penstock.home / "model")

    def files(self, folder):
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}

    def test_writes_beside_the_model(self):
        for spine in ("bf12", "int8"):
            with self.subTest(spine=spine):
                folder = self.model / "penstock" / spine
                said = self.succeed("convert", self.model, "--spine", spine)
                self.assertEqual(said.splitlines()[0], f"{folder}: 8 files written")
                self.assertRegex(said, rf"spine: .* MB as published, .* MB with {spine} \(0\.\d+ of")
                before = self.files(folder)
                (folder / "layer-0002.safetensors").unlink()
                said = self.succeed("convert", "--model", self.model, "--spine", spine)
                self.assertEqual(said.splitlines()[0],
                                 f"{folder}: 1 files written, 7 were there")
                self.assertEqual(self.files(folder), before)

    def test_shards_in_several_folders(self):
        other = self.penstock.home / "other"
        other.mkdir()
        moved = sorted(self.model.glob("*.safetensors"))[1]
        moved.rename(other / moved.name)
        self.fail_with("convert", self.model, "--spine", "bf12", says=moved.name)
        self.succeed("convert", self.model, "--spine", "bf12", "--model-path", other)

    def test_demo_model_meets_its_bar(self):
        said = self.succeed("convert", DEMO, "--spine", "bf12", "--out", self.penstock.home / "out")
        self.assertLessEqual(float(said.split("(")[1].split()[0]), MOST_BF12)

    def test_usage(self):
        self.fail_with("convert", self.model, says="--spine is required")
        self.fail_with("convert", self.model, "--spine", "int4", says="bf12")
        self.fail_with("convert", self.model, "--spine", "bf12", "--ram", "much", says="such as 24G")
        self.fail_with("convert", self.model / "absent", "--spine", "bf12", says="absent")

    def test_out_that_cannot_be_used(self):
        self.fail_with("convert", self.model, "--spine", "bf12", "--out", self.model,
                       says=r"choose another folder")
        file = self.penstock.home / "file"
        file.touch()
        self.fail_with("convert", self.model, "--spine", "bf12", "--out", file / "out",
                       says=r"cannot be created")

    def test_full_disk(self):
        done = self.penstock.run(
            "convert", self.model, "--spine", "bf12",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr,
                         r"\Apenstock: .*\.safetensors: cannot be written: File too large\n\Z")
        for name in self.files(self.model / "penstock" / "bf12"):
            self.assertTrue(name.endswith(".safetensors"), name)
        self.succeed("convert", self.model, "--spine", "bf12")

    def test_interrupt_at_any_time(self):
        whole = self.penstock.home / "whole"
        self.succeed("convert", self.model, "--spine", "bf12", "--out", whole)
        out = self.penstock.home / "out"
        for delay_ms in (0, 5, 10, 20, 30, 50):
            process = self.penstock.start("convert", self.model, "--spine", "bf12", "--out", out)
            time.sleep(delay_ms / 1000)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=program.TIMEOUT_S)
            # Before penstock listens for it, the signal ends the process by itself.
            self.assertIn(process.returncode, (0, 130, -signal.SIGINT), error)
            if process.returncode == 130:
                self.assertRegex(error.decode(), r"\Apenstock: interrupted[^\n]*\n\Z")
            for name in self.files(out) if out.exists() else ():
                self.assertTrue(name.endswith(".safetensors"), name)
        self.succeed("convert", self.model, "--spine", "bf12", "--out", out)
        self.assertEqual(self.files(out), self.files(whole))


if __name__ == "__main__":
    unittest.main(argv=["convert_test.py", program.SUBJECT], verbosity=2)

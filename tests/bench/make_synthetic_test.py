#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small synthetic checkpoints: what is in the files, and what penstock makes of them.

make_synthetic_test.py MAKE_SYNTHETIC [EMULATOR] PENSTOCK
"""

import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

MAKE = [*sys.argv[2:-1], sys.argv[1]]
PENSTOCK = sys.argv[2:]
SMALL = {
    "kimi-linear": ["--narrow", "8", "--experts", "64", "--vocab", "2048", "--layers", "5"],
    "k3-slice": ["--narrow", "8", "--experts", "24", "--vocab", "2048"],
}
WIDTH = {"kimi-linear": (5, 288), "k3-slice": (3, 896)}  # layers, hidden
VOCAB = 2048
PROMPT = "1,77,300,2000,5,6"
PAGE = 4096


def run(*command, status=0):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode != status:
        raise AssertionError(f"{command}: status {done.returncode}: {done.stderr}")
    return done


def floats(path):
    values = array.array("f")
    values.frombytes(path.read_bytes())
    return values


def rms(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


class Shard:
    """The tensors of a safetensors file: name to (absolute offset, bytes)."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        self.tensors = {
            name: (8 + length + tensor["data_offsets"][0],
                   tensor["data_offsets"][1] - tensor["data_offsets"][0])
            for name, tensor in header.items()
        }

    def read(self, name):
        offset, length = self.tensors[name]
        with open(self.path, "rb") as file:
            file.seek(offset)
            return file.read(length)


class MakeSynthetic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="penstock-synthetic-")
        cls.dirs = {}
        for model, options in SMALL.items():
            cls.dirs[model] = pathlib.Path(cls.folder.name) / model
            run(*MAKE, model, cls.dirs[model], *options)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def shards(self, model):
        return [Shard(path) for path in sorted(self.dirs[model].glob("*.safetensors"))]

    def test_activations_are_of_order_one(self):
        for model, path in self.dirs.items():
            logits, layers = path / "logits.f32", path / "layers.f32"
            run(*PENSTOCK, "logits", "--model", path, "--ids", PROMPT, "--out", logits,
                "--layers", layers)
            values = floats(logits)
            self.assertEqual(len(values), VOCAB * len(PROMPT.split(",")))
            self.assertTrue(all(map(math.isfinite, values)))
            self.assertTrue(0.3 < rms(values) < 3, rms(values))
            outputs = floats(layers)
            count, hidden = WIDTH[model]
            self.assertEqual(len(outputs), count * hidden)
            for layer in range(count):
                size = rms(outputs[layer * hidden:(layer + 1) * hidden])
                self.assertTrue(0.3 < size < 5, f"{model} layer {layer}: {size}")

    def test_decodes(self):
        for path in self.dirs.values():
            done = run(*PENSTOCK, "run", "--model", path, "--ids", PROMPT, "--max-tokens", "8",
                       "--ignore-stop", "--json")
            ids = json.loads(done.stdout)["ids"]
            self.assertEqual(len(ids), 8)
            self.assertGreater(len(set(ids)), 1)

    def test_experts_lie_as_published(self):
        for model in SMALL:
            for shard in self.shards(model):
                experts = [(name, *place) for name, place in shard.tensors.items()
                           if ".experts." in name]
                if not experts:
                    continue
                is_kda = any(".A_log" in name for name in shard.tensors)
                self.assertEqual(experts[0][1] % PAGE, 3088 if is_kda else 976)
                self.assertEqual([name for name, *_ in experts], sorted(name for name, *_ in experts))
                for (_, offset, length), (_, following, _) in zip(experts, experts[1:]):
                    self.assertEqual(offset + length, following)

    def test_exponents_spread_as_in_trained_weights(self):
        # A block of 128 normal values, the largest in [2, 4), has one below 2^-13
        # with probability 128 * 0.8 * 2^-13 or so: 1.2 %.
        shard = self.shards("k3-slice")[0]
        weights = array.array("H")
        weights.frombytes(shard.read("language_model.model.layers.0.self_attn.q_proj.weight"))
        blocks = [weights[i:i + 128] for i in range(0, len(weights), 128)]
        wide = 0
        for block in blocks:
            exponents = [weight >> 7 & 255 for weight in block]
            wide += max(exponents) - min(exponents) >= 15
        self.assertTrue(0.006 < wide / len(blocks) < 0.02, wide / len(blocks))

    def test_scales_are_those_of_real_experts(self):
        shard = self.shards("k3-slice")[1]
        for name in shard.tensors:
            if not name.endswith("weight_scale"):
                continue
            scales = shard.read(name)
            self.assertGreaterEqual(min(scales), 119 if ".w2." in name else 112)
            self.assertLessEqual(max(scales), 122)

    def test_same_seed_same_bytes_other_seed_others(self):
        first = self.dirs["kimi-linear"]
        names = sorted(path.name for path in first.glob("model*"))
        with tempfile.TemporaryDirectory(prefix="penstock-synthetic-") as again:
            for seed in ("1", "2"):
                run(*MAKE, "kimi-linear", again, "--seed", seed, *SMALL["kimi-linear"])
                same = [name for name in names
                        if (first / name).read_bytes() == (pathlib.Path(again) / name).read_bytes()]
                # The index has no values, uniform biases are all zero.
                expected = names if seed == "1" else ["model-00007-of-000007.safetensors",
                                                      "model.safetensors.index.json"]
                self.assertEqual(same, expected)

    def test_skew_changes_one_file_and_helps_a_small_cache(self):
        # 9.6 slots for a layer, as 1 GB for Kimi-Linear.
        def hit_rate(path):
            done = run(*PENSTOCK, "run", "--model", path, "--ids", PROMPT, "--max-tokens", "100",
                       "--ignore-stop", "--expert-slots", "38", "--json")
            stats = json.loads(done.stdout)["stats"]
            return stats["expert_hits"] / (stats["expert_hits"] + stats["expert_reads"])

        original = self.dirs["kimi-linear"]
        with tempfile.TemporaryDirectory(prefix="penstock-synthetic-") as name:
            skewed = pathlib.Path(name)
            for file in original.iterdir():
                (skewed / file.name).symlink_to(file)
            biases = original / "model-00007-of-000007.safetensors"
            before = biases.read_bytes()
            run(*MAKE, "bias", skewed, "--skew", "1.2")
            self.assertEqual(biases.read_bytes(), before)
            changed = [file.name for file in skewed.iterdir() if not file.is_symlink()]
            self.assertEqual(changed, [biases.name])
            self.assertGreater(hit_rate(skewed), hit_rate(original) + 0.15)

    def test_refuses(self):
        for arguments, says in (
            (["kimi"], "a model and a folder are needed"),
            (["kimi", "/nowhere"], "kimi: no such model"),
            (["k3-slice", "/nowhere", "--narrow", "3"], "--narrow is 3"),
            (["k3-slice", "/nowhere", "--layers", "2"], "--layers is not for k3-slice"),
            (["k3-slice", "/nowhere", "--experts", "900"], "--experts is 900, expected 16 to 896"),
            (["sparse-k3", "/nowhere", "--layers", "94"], "--layers is 94, expected 2 to 93"),
            (["k3-slice", "/nowhere", "--skew", "-1"], "--skew: -1"),
            (["k3-slice", "/nowhere", "--skew"], "--skew needs a value"),
            (["bias", "/nowhere"], "/nowhere/config.json"),
        ):
            self.assertIn(says, run(*MAKE, *arguments, status=1).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

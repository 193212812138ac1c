#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock from outside: e2e_test.py CLASS ORACLE_FOLDER [EMULATOR...] PENSTOCK"""

import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

import program
from program import MODELS, ORACLES, copy_model, golden, ids_text, model_config, replace_config

STATS = ["prompt_tokens", "cached_tokens", "generated_tokens", "prefill_s", "decode_s",
         "expert_reads", "expert_hits", "expert_bytes", "spine_bytes", "drive_bytes"]
COMMANDS = ("run", "chat", "logits", "plan")  # with all settings
# Error over the largest magnitude against the official code in float64: logits, layers.
BARS = {"k3-a": (1e-4, 3e-5), "k3-b": (1e-4, 3e-5), "kimi-linear-a": (5e-6, 5e-6)}
RMS_BAR = 2e-5


class EndToEnd(program.ProgramTest):
    def logits(self, model, *arguments):
        """The bytes of both files of `penstock logits` for the golden prompt."""
        files = [self.penstock.home / "logits.f32", self.penstock.home / "layers.f32"]
        self.succeed("logits", "--model", ORACLES / model, "--ids",
                     ids_text(golden(model)["prompt_ids"]), "--out", files[0], "--layers",
                     files[1], *arguments)
        return [file.read_bytes() for file in files]

    def generate(self, model, *arguments, **options):
        answers = golden(model)
        return json.loads(self.succeed(
            "run", "--json", "--model", ORACLES / model, "--ids", ids_text(answers["prompt_ids"]),
            "--max-tokens", len(answers["greedy_ids"]), *arguments, **options))


class Version(EndToEnd):
    def test_line(self):
        line = self.succeed("--version")
        self.assertRegex(line, r"\Apenstock \d+\.\d+\.\d+ \((GCC|Clang) \d+[^;]*; [\w, ]*scalar\)\n\Z")

    def test_json(self):
        version = json.loads(self.succeed("--version", "--json"))
        self.assertEqual(list(version), ["version", "compiler", "isa"])
        self.assertEqual(version["isa"][-1], "scalar")
        self.assertIn(version["version"], self.succeed("--version"))

    def test_help(self):
        for word in (*COMMANDS, "--version", "Examples"):
            self.assertIn(word, self.succeed("--help"))
        for command in COMMANDS:
            text = self.succeed(command, "--help")
            for word in ("--model", "--ram", "--threads", "--isa", "--config", "Examples"):
                self.assertIn(word, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 120)


class Usage(EndToEnd):
    def test_wrong_arguments(self):
        self.fail_with(says=r"no command given; see penstock --help$")
        self.fail_with("fly", says=r"fly.*; see penstock --help$")
        self.fail_with("--fly", says=r"--fly.*; see penstock --help$")
        self.fail_with("run", "--fly", says=r"--fly.*; see penstock run --help$")
        self.fail_with("plan", "--model", "nothing",
                       says=r"no model nothing.*; see penstock plan --help$")
        self.fail_with("logits", "--ids", "1", says=r"--out.*; see penstock logits --help$")
        self.fail_with("run", "--max-tokens", "0", "--ids", "1", says=r"--max-tokens")
        self.fail_with("run", "--max-tokens", "x", "--ids", "1", says=r"--max-tokens")

    def test_wrong_ids(self):
        for ids, says in [("1,,2", r'entry 2 is ""'), ("1,x", r'entry 2 is "x"'),
                          ("-1,2", r'entry 1 is "-1"'), ("1,2,", r'entry 3 is ""'),
                          ("2147483648", r'"2147483648"'), ("1 2", r'entry 1 is "1 2"'),
                          ("+1", r'"\+1"'), ("1.0", r'"1.0"'), ("1,\n,2", r'entry 2 is ""'),
                          (" ", r"list is empty"), ("9" * 5000, r'"9{40}"\.\.\.')]:
            self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", ids, says=r"--ids: .*" + says)

    def test_ids_out_of_range(self):
        for command in (["run"], ["logits", "--out", self.penstock.home / "out"]):
            self.fail_with(*command, "--model", ORACLES / "k3-a", "--ids", "1,512",
                           says=r"512.*511")
        self.assertEqual(list(self.penstock.home.iterdir()), [])

    def test_ids_from_stdin(self):
        prompt = golden("k3-a")["prompt_ids"]
        text = "\n" + ", ".join(map(str, prompt)) + "\n"
        out = self.succeed("run", "--model", ORACLES / "k3-a", "--ids", "-", "--max-tokens", "3",
                           stdin=text)
        self.assertEqual(out, ids_text(golden("k3-a")["greedy_ids"][:3]) + "\n")
        self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", "-", says=r"the list is empty")

    def test_context_is_a_limit(self):
        self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", ids_text(range(1, 9)),
                       "--context", "4", says=r"\b4\b.*\b8\b")
        self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", "1", "--context", "1000000",
                       says=r"1000000.*4096")


class Settings(EndToEnd):
    def isa_line(self, *arguments, **options):
        return self.penstock.run("run", "--model", ORACLES / "k3-a", "--ids", "1", "--max-tokens",
                                 "1", *arguments, **options).stderr

    def test_order_of_places(self):
        file = self.penstock.home / "some.toml"
        file.write_text('isa = "from-file"\n')
        variables = {"PENSTOCK_ISA": "from-environment"}
        self.assertIn("from-file", self.isa_line("--config", file))
        self.assertIn("from-environment", self.isa_line("--config", file, variables=variables))
        self.assertIn("from-line", self.isa_line("--config", file, "--isa", "from-line",
                                                 variables=variables))

    def test_default_file(self):
        folder = self.penstock.home / ".config" / "penstock"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'model = "{ORACLES / "k3-a"}"\nram = "2G"\n')
        plan = json.loads(self.succeed("plan", "--json"))
        self.assertEqual(plan["memory"]["budget_bytes"], 2 << 30)
        (folder / "config.toml").write_text("[run]\n")
        self.fail_with("plan", says=r"config\.toml:1: sections are not used")

    def test_bad_settings(self):
        arguments = ("run", "--model", ORACLES / "k3-a", "--ids", "1")
        self.fail_with(*arguments, "--ram", "12Q", says=r'--ram is "12Q"')
        self.fail_with(*arguments, says=r'PENSTOCK_THREADS is "x"',
                       variables={"PENSTOCK_THREADS": "x"})
        self.fail_with(*arguments, "--config", "/nonexistent.toml", says=r"/nonexistent\.toml")
        self.fail_with(*arguments, "--isa", "mmx", says=r"mmx.*scalar")
        file = self.penstock.home / "some.toml"
        file.write_text("\nthread = 3\n")
        self.fail_with(*arguments, "--config", file, says=r"some\.toml:2: unknown key thread")


class Oracle(EndToEnd):
    def test_greedy_ids(self):
        for model in MODELS:
            answers = golden(model)
            for isa in self.penstock.tables():
                with self.subTest(model=model, isa=isa):
                    reply = self.generate(model, "--ignore-stop", "--isa", isa)
                    self.assertEqual(list(reply), ["ids", "finish_reason", "stats"])
                    self.assertEqual(reply["ids"], answers["greedy_ids"])
                    self.assertEqual(reply["finish_reason"], "length")
                    stats = reply["stats"]
                    self.assertEqual(list(stats), STATS)
                    self.assertEqual(stats["prompt_tokens"], len(answers["prompt_ids"]))
                    self.assertEqual(stats["generated_tokens"], len(answers["greedy_ids"]))
                    self.assertGreater(stats["expert_reads"], 0)
                    self.assertGreaterEqual(stats["drive_bytes"], stats["expert_bytes"])

    def test_logits_and_layers(self):
        for model in MODELS:
            expected = [program.read_floats(ORACLES / model / name)
                        for name in ("logits.f32", "layers.f32")]
            for isa in self.penstock.tables():
                self.logits(model, "--isa", isa)
                for name, bar, values in zip(("logits.f32", "layers.f32"), BARS[model], expected):
                    with self.subTest(model=model, isa=isa, file=name):
                        actual = program.read_floats(self.penstock.home / name)
                        self.assertEqual(len(actual), len(values))
                        largest, rms = program.errors(actual, values)
                        print(f"{model} {isa} {name}: largest {largest:.2e}, rms {rms:.2e}")
                        self.assertLessEqual(largest, bar)
                        self.assertLessEqual(rms, RMS_BAR)

    def test_stop_ids_end_a_reply(self):
        # A greedy id that had not come before is declared the end of text.
        answers = golden("k3-a")
        ids = answers["greedy_ids"]
        position = next(i for i in range(1, len(ids)) if ids[i] not in ids[:i])
        folder = copy_model("k3-a", self.penstock.home / "model")
        config = json.loads((folder / "config.json").read_text())
        config["eos_token_id"] = config["text_config"]["eos_token_id"] = ids[position]
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(config))
        arguments = ("run", "--json", "--model", folder, "--ids", ids_text(answers["prompt_ids"]),
                     "--max-tokens", "40")
        reply = json.loads(self.succeed(*arguments))
        self.assertEqual((reply["ids"], reply["finish_reason"]), (ids[: position + 1], "stop"))
        reply = json.loads(self.succeed(*arguments, "--ignore-stop"))
        self.assertEqual((reply["ids"], reply["finish_reason"]), (ids[:40], "length"))


class Bits(EndToEnd):
    """The same files, whatever the machine is doing."""

    def test_same_bits(self):
        for model in MODELS:
            config = model_config(model)
            top_k = config["num_experts_per_token"]
            experts = config["num_experts"] * config["num_hidden_layers"]
            prompt = len(golden(model)["prompt_ids"])
            ways = [("--chunk", n) for n in (1, 2, 7, prompt)]
            ways += [("--threads", n) for n in (1, 2)]
            ways += [("--expert-slots", n) for n in (1, top_k, experts)]
            ways += [("--chunk", 2, "--threads", 2, "--expert-slots", 1), ("--ram", "1G")]
            for isa in self.penstock.tables():
                expected = self.logits(model, "--isa", isa)
                for way in ways:
                    with self.subTest(model=model, isa=isa, way=way):
                        self.assertEqual(self.logits(model, "--isa", isa, *way), expected)

    def test_same_ids(self):
        for way in (("--chunk", 3), ("--threads", 1), ("--expert-slots", 1)):
            with self.subTest(way=way):
                reply = self.generate("k3-b", "--ignore-stop", *way)
                self.assertEqual(reply["ids"], golden("k3-b")["greedy_ids"])


class Plan(EndToEnd):
    def test_text_and_json_agree(self):
        for model in MODELS:
            config = model_config(model)
            text = self.succeed("plan", "--model", ORACLES / model, "--ram", "1G")
            self.assertRegex(text.splitlines()[-1], r"^fits: needs at least \S+ [kM]B")
            plan = json.loads(self.succeed("plan", "--model", ORACLES / model, "--ram", "1G",
                                           "--json"))
            self.assertIs(plan["fits"], True)
            self.assertEqual(plan["layers"], config["num_hidden_layers"])
            self.assertEqual(plan["experts"], config["num_experts"])
            self.assertEqual(plan["top_k"], config["num_experts_per_token"])
            shards = sum(f.stat().st_size for f in (ORACLES / model).glob("*.safetensors"))
            self.assertEqual(plan["file_bytes"], shards)
            self.assertEqual(plan["all_expert_bytes"],
                             plan["expert_bytes"] * plan["experts"] * plan["moe_layers"])

    def test_needs_no_weights_for_published_models(self):
        for model, layers, experts, file_bytes in (
                ("kimi-k3", 93, 896, 1_560_936_091_448), ("kimi-linear", 27, 256, 98_247_500_000)):
            text = self.succeed("plan", "--model", model, "--ram", "100M")
            self.assertIn("planned without weights", text.splitlines()[0])
            self.assertIn("does not fit", text.splitlines()[-1])
            plan = json.loads(self.succeed("plan", "--model", model, "--ram", "100M", "--json"))
            self.assertIs(plan["without_weights"], True)
            self.assertEqual((plan["layers"], plan["experts"]), (layers, experts))
            self.assertAlmostEqual(plan["file_bytes"] / file_bytes, 1, places=4)
        self.fail_with("run", "hello", "--model", "kimi-k3", says=r"no model kimi-k3")

    def test_a_folder_goes_before_the_published_configuration(self):
        models = self.penstock.home / "models"
        models.mkdir()
        copy_model("k3-a", models / "kimi-k3")
        plan = json.loads(self.succeed("plan", "--models-dir", models, "--model", "kimi-k3",
                                       "--ram", "1G", "--json"))
        self.assertIs(plan["without_weights"], False)
        self.assertEqual(plan["layers"], model_config("k3-a")["num_hidden_layers"])

    def test_says_when_it_does_not_fit(self):
        text = self.succeed("plan", "--model", ORACLES / "k3-a", "--ram", "1M")
        self.assertRegex(text.splitlines()[-1], r"^does not fit: needs at least .* budget")
        plan = json.loads(self.succeed("plan", "--model", ORACLES / "k3-a", "--ram", "1M", "--json"))
        self.assertIs(plan["fits"], False)
        self.assertGreater(plan["memory"]["floor_bytes"], plan["memory"]["budget_bytes"])


class Bench(EndToEnd):
    QUICK = ("--record-bytes", "64K", "--seconds", "0.002")

    def bench(self, *arguments):
        """What bench disk prints, where a rate can be had at all."""
        done = self.penstock.run("bench", "disk", *self.QUICK, *arguments)
        if re.search("direct reads are refused|a cache delivered|does not say", done.stderr):
            self.assertEqual(done.returncode, 1)
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_a_scratch_file_gives_a_rate_and_is_gone(self):
        folder = self.penstock.home / "drive"
        folder.mkdir()
        rate = json.loads(self.bench("--dir", folder, "--json").stdout)
        self.assertEqual(list(rate),
                         ["record_bytes", "file_system", "depths", "gb_per_s", "depth",
                          "ram_gb_per_s", "seconds_per_token"])
        self.assertEqual(rate["record_bytes"], 65536)
        self.assertEqual([row["depth"] for row in rate["depths"]], [1, 2, 4, 8, 16])
        best = max(rate["depths"], key=lambda row: row["gb_per_s"])
        self.assertEqual((rate["depth"], rate["gb_per_s"]), (best["depth"], best["gb_per_s"]))
        self.assertGreater(rate["gb_per_s"], 0)
        self.assertEqual(list(folder.iterdir()), [])
        for rows in rate["seconds_per_token"].values():
            for spine in ("bf16", "bf12", "int8"):
                seconds = [row[spine] for row in rows]
                self.assertEqual(seconds, sorted(seconds, reverse=True))
            for row in rows:
                self.assertGreater(row["bf16"], row["bf12"])
                self.assertGreater(row["bf12"], row["int8"])
        # With little memory the drive is nearly all: 137.8 GB a token, less what is pinned.
        first = rate["seconds_per_token"]["kimi-k3"][0]
        self.assertEqual(first["ram_gb"], 8)
        self.assertAlmostEqual(first["bf16"] * rate["gb_per_s"] / 137.8, 1, delta=0.03)

    def test_files_that_are_too_small_or_have_holes_are_named(self):
        model = self.penstock.home / "model"
        model.mkdir()
        shard = model / "model.safetensors"
        for content, hole, says in [(b"x", 0, "hold 0 records, expected at least 240"),
                                    (b"x", 1 << 26, "model.safetensors: is sparse or compressed")]:
            shard.write_bytes(content)
            os.truncate(shard, len(content) + hole)
            done = self.bench("--model", model)
            self.assertIn(says, done.stderr)
            self.assertIn("writing a scratch file", done.stderr)
            self.assertRegex(done.stdout, r"\nbest: \d+\.\d\d GB/s with \d+ in flight\n")
        self.assertEqual(list(model.iterdir()), [shard])

    def test_usage(self):
        self.fail_with("bench", says=r"; see penstock bench --help$")
        self.fail_with("bench", "disk", "--record-bytes", "0",
                       says=r"--record-bytes: 0: .*; see penstock bench disk --help$")
        self.fail_with("bench", "disk", "--dir", "a", "--model", "b",
                       says=r"--dir.*--model|--model.*--dir")
        self.fail_with("bench", "disk", "--dir", self.penstock.home / "none", says=r"none: No such")
        self.assertIn("Examples", self.succeed("bench", "disk", "--help"))


class BadModel(EndToEnd):
    def refuse(self, folder, says, *arguments):
        for command in (["run", "--ids", "1,2"], ["plan"],
                        ["logits", "--ids", "1", "--out", self.penstock.home / "out.f32"]):
            self.fail_with(*command, "--model", folder, *arguments, says=says)
        self.assertFalse((self.penstock.home / "out.f32").exists())

    def copy(self, model="k3-a"):
        return copy_model(model, self.penstock.home / "model")

    def test_missing(self):
        self.refuse(self.penstock.home / "nothing", r"nothing")
        (self.penstock.home / "empty").mkdir()
        self.refuse(self.penstock.home / "empty", r"config\.json")

    def test_missing_shard(self):
        folder = self.copy()
        (folder / "model-00003-of-000008.safetensors").unlink()
        self.refuse(folder, r"model-00003-of-000008\.safetensors")

    def test_truncated_shard(self):
        for cut in (-1, 4, 0):
            with self.subTest(cut=cut):
                folder = copy_model("k3-a", self.penstock.home / f"cut{cut}")
                shard = folder / "model-00004-of-000008.safetensors"
                content = shard.read_bytes()
                shard.unlink()
                shard.write_bytes(content[:cut])
                self.refuse(folder, r"model-00004-of-000008\.safetensors.*\d")

    def test_damaged_header(self):
        folder = self.copy()
        shard = folder / "model-00004-of-000008.safetensors"
        content = shard.read_bytes()
        shard.unlink()
        shard.write_bytes((1 << 62).to_bytes(8, "little") + content[8:])
        self.refuse(folder, r"model-00004-of-000008\.safetensors.*4611686018427387904")

    def test_config(self):
        cases = [
            ("moe_router_activation_func", "softmax", r"config\.json: .*softmax"),
            ("mla_use_nope", False, r"config\.json: .*mla_use_nope"),
            ("hidden_act", "gelu", r"config\.json: .*gelu"),
            ("hidden_size", 1 << 40, r"config\.json: .*hidden_size"),
            ("hidden_size", "wide", r"config\.json: .*hidden_size"),
            ("num_experts", 13, r"expert"),
            ("num_hidden_layers", 8, r"layer"),
            ("vocab_size", 511, r"51[12].*51[12]"),
        ]
        for field, value, says in cases:
            with self.subTest(field=field, value=value):
                folder = copy_model("k3-a", self.penstock.home / f"{field}-{value}")
                replace_config(folder, lambda text, f=field, v=value: text.update({f: v}))
                self.refuse(folder, says)

    def test_unknown_architecture(self):
        folder = self.copy("kimi-linear-a")
        replace_config(folder, lambda text: text.update(
            model_type="llama", architectures=["LlamaForCausalLM"]))
        self.refuse(folder, r"config\.json: .*llama")

    def test_config_is_not_json(self):
        folder = self.copy()
        (folder / "config.json").unlink()
        (folder / "config.json").write_text('{"model_type": ')
        self.refuse(folder, r"config\.json")

    def test_budget(self):
        self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", "1", "--ram", "1M",
                       says=r"needs at least .* budget is 1\.05 MB")


class Output(EndToEnd):
    def test_run_prints_ids_and_statistics(self):
        answers = golden("kimi-linear-a")
        done = self.penstock.run("run", "--model", ORACLES / "kimi-linear-a", "--ids",
                                 ids_text(answers["prompt_ids"]), "--max-tokens", "5",
                                 "--ignore-stop")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, ids_text(answers["greedy_ids"][:5]) + "\n")
        self.assertRegex(done.stderr, r"\A41 prompt tokens in .* 5 generated in .*\n\Z")

    def test_logits_replaces_a_file(self):
        out = self.penstock.home / "out.f32"
        out.write_text("old")
        link = self.penstock.home / "link.f32"
        link.symlink_to(out)
        self.succeed("logits", "--model", ORACLES / "k3-a", "--ids", "1,2,3", "--out", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(out.stat().st_size, 3 * 512 * 4)
        self.assertEqual(sorted(f.name for f in self.penstock.home.iterdir()),
                         ["link.f32", "out.f32"])

    def test_logits_cannot_write(self):
        arguments = ("logits", "--model", ORACLES / "k3-a", "--ids", "1,2,3", "--out")
        self.fail_with(*arguments, "/nonexistent/out.f32", says=r"/nonexistent/out\.f32: .*No such")
        self.fail_with(*arguments, self.penstock.home / "out.f32", "--layers",
                       self.penstock.home, says=r"cannot write")
        self.assertEqual(list(self.penstock.home.iterdir()), [])

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_full_disk(self):
        arguments = ("--model", ORACLES / "k3-a", "--ids", "1,2,3")
        self.fail_with("logits", *arguments, "--out", "/dev/full", says=r"/dev/full: .*No space")
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.fail_with("run", *arguments, "--json", says=r"standard output: No space",
                           capture_output=False, stdout=full, stderr=subprocess.PIPE)

    def test_closed_pipe(self):
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "wb") as pipe:
            self.fail_with("run", "--model", ORACLES / "k3-a", "--ids", "1,2,3",
                           says=r"standard output: Broken pipe", capture_output=False, stdout=pipe,
                           stderr=subprocess.PIPE)


class Signals(EndToEnd):
    def test_interrupt_stops_a_run(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                process = self.penstock.start("run", "--model", ORACLES / "k3-a", "--ids", "1,2,3",
                                              "--ignore-stop", "--max-tokens", "4000")
                first = process.stdout.read(1)
                process.send_signal(number)
                _, error = process.communicate(timeout=program.TIMEOUT_S)
                self.assertRegex(first, rb"\d")
                self.assertEqual(process.returncode, 130, error)
                self.assertRegex(error.decode(), re.compile(r"\Apenstock: [^\n]+\n\Z"))


if __name__ == "__main__":
    unittest.main(argv=["e2e_test.py", program.SUBJECT], verbosity=2)

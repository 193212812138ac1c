#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock's commands with words, on the demo model: words_test.py CLASS ORACLES [EMULATOR...] PENSTOCK"""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import socket
import subprocess
import threading
import time
import unittest
import urllib.request

import program
from program import ORACLES, ids_text

DEMO = pathlib.Path(__file__).parents[2] / "config" / "demo-model"
FRANCE = "What is the capital of France?"
PARIS = "The capital of France is Paris."
STATS_LINE = r"\A\d+ prompt tokens in .* generated in .* from the drive \((stop|length)\)\n\Z"


class Words(program.ProgramTest):
    def run_json(self, *arguments, **options):
        return json.loads(self.succeed("run", "--json", *arguments, **options))

    def tokenize(self, *arguments, **options):
        return json.loads(self.succeed("tokenize", "--json", *arguments, **options))

    def start_server(self):
        """The port of a server that says it is ready, stopped at the end of the test."""
        server = subprocess.Popen([*program.COMMAND, "serve", "--port", "0"],
                                  stderr=subprocess.PIPE, text=True,
                                  env=program.environment(self.penstock.home))
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        lines = iter(server.stderr.readline, "")
        port = next(found[1] for line in lines if (found := re.search(r"listening on .*:(\d+)", line)))
        self.assertTrue(any("is ready" in line for line in lines))
        return port


class Run(Words):
    def test_answers(self):
        done = self.penstock.run("run", FRANCE)
        self.assertEqual((done.returncode, done.stdout), (0, PARIS + "\n"))
        self.assertRegex(done.stderr, STATS_LINE)

    def test_json(self):
        reply = self.run_json(FRANCE)
        self.assertEqual(list(reply),
                         ["content", "reasoning_content", "ids", "finish_reason", "stats"])
        self.assertEqual(reply["content"], PARIS)
        self.assertIn("Paris", reply["reasoning_content"])
        self.assertEqual(reply["finish_reason"], "stop")
        self.assertEqual(reply["ids"][-1], 4098)
        self.assertEqual(reply["stats"]["generated_tokens"], len(reply["ids"]))

    def test_stdin_is_the_same_prompt(self):
        self.assertEqual(self.run_json("-", stdin=FRANCE + "\n")["ids"], self.run_json(FRANCE)["ids"])

    def test_thinking(self):
        thinking = self.run_json(FRANCE)
        short = self.run_json("--effort", "low", FRANCE)
        without = self.run_json("--no-thinking", FRANCE)
        self.assertLess(len(short["reasoning_content"]), len(thinking["reasoning_content"]))
        self.assertNotIn("reasoning_content", without)
        self.assertEqual([r["content"] for r in (short, without)], [PARIS, PARIS])

    def test_system(self):
        reply = self.run_json("--no-thinking", "--system", "Answer in one word.", FRANCE)
        self.assertGreater(reply["stats"]["prompt_tokens"],
                           self.run_json("--no-thinking", FRANCE)["stats"]["prompt_tokens"])
        self.assertEqual(reply["content"], "Paris")

    def test_limit(self):
        reply = self.run_json("--max-tokens", 5, FRANCE)
        self.assertEqual((reply["content"], reply["finish_reason"]), ("", "length"))
        self.assertEqual(len(reply["ids"]), 5)
        self.assertTrue(reply["reasoning_content"])

    def test_raw(self):
        goldens = json.loads((DEMO / "goldens.json").read_text(encoding="utf-8"))["cases"]
        raw = [case for case in goldens if case["topic"] == "raw"]
        self.assertEqual(len(raw), 3)
        prompts = ("Once upon a time there was a little fox", "The capital of France is",
                   "1, 2, 3, 4,")
        for prompt, case in zip(prompts, raw):
            self.assertEqual(self.tokenize(prompt)["ids"], case["prompt_ids"])
            reply = self.run_json("--raw", "--max-tokens", 60, prompt)
            self.assertEqual(reply["ids"], case["greedy_ids"])
            self.assertEqual(reply["content"], case["greedy_text"].removesuffix("[EOS]"))
            text = self.succeed("run", "--raw", "--max-tokens", 60, prompt)
            self.assertEqual(text, reply["content"] + "\n")

    def test_raw_goes_on_past_the_end(self):
        reply = self.run_json("--raw", "--ignore-stop", "--max-tokens", 60,
                              "The capital of France is")
        self.assertEqual((len(reply["ids"]), reply["finish_reason"]), (60, "length"))
        self.assertIn("[EOS]", reply["content"])

    def test_usage(self):
        for arguments, says in [
            ((), "no prompt"), (("",), "prompt is empty"), (("-",), "prompt is empty"),
            (("x", "--ids", "1"), "not both"), (("--raw", "--ids", "1"), "--raw is for text"),
            (("--raw", "--system", "x", "y"), "--system is for messages, not for --raw"),
            (("--ids", "1", "--no-thinking"), "--no-thinking is for messages, not for --ids"),
            (("--ignore-stop", "x"), "--ignore-stop is for"), (("--effort", "medium", "x"), "--effort"),
            (("x", "y"), "y"),
        ]:
            self.fail_with("run", *arguments, says=says + r".*; see penstock run --help$")

    def test_names(self):
        (self.penstock.home / "models").mkdir()
        (self.penstock.home / "models" / "mine").symlink_to(DEMO)
        models = ("--models-dir", self.penstock.home / "models")
        self.assertEqual(self.run_json("--model", "mine", *models, FRANCE)["content"], PARIS)
        self.assertEqual(self.run_json("--model", "demo", FRANCE)["content"], PARIS)
        self.fail_with("run", "--model", "yours", *models, FRANCE, says=r"no model yours: .*models/yours")

    def test_model_without_words(self):
        self.fail_with("run", "--model", ORACLES / "k3-a", FRANCE, says=r"tiktoken\.model")


class Chat(Words):
    def chat(self, *lines, arguments=()):
        done = self.penstock.run("chat", *arguments, stdin="".join(line + "\n" for line in lines))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines(), done.stderr.splitlines()

    def test_keeps_the_conversation(self):
        answers, _ = self.chat("My name is Anna.", "What is my name?")
        self.assertEqual(len(answers), 2)
        self.assertEqual(answers[1], "Your name is Anna.")

    def test_reset(self):
        answers, remarks = self.chat("My name is Anna.", "/reset", "What is my name?")
        self.assertNotIn("Anna", answers[1])
        self.assertEqual(remarks, [])

    def test_stats(self):
        _, remarks = self.chat("/stats", FRANCE, "/stats", "And Spain?", "/stats")
        self.assertEqual(len(remarks), 3)
        self.assertRegex(remarks[0], r"^0 prompt tokens.*; 0 messages$")
        self.assertRegex(remarks[1], r"^\d+ prompt tokens.*; 2 messages$")
        self.assertRegex(remarks[2], r"^\d+ prompt tokens \(\d+ kept from before\).*; 4 messages$")

    def test_exit_and_unknown(self):
        answers, remarks = self.chat("/fly", "", FRANCE, "/exit", FRANCE)
        self.assertEqual(answers, [PARIS])
        self.assertEqual(len(remarks), 1)
        self.assertIn("there is no /fly: /reset", remarks[0])

    def test_goes_on_after_an_error(self):
        answers, remarks = self.chat("word " * 300, FRANCE, arguments=("--context", "150"))
        self.assertEqual(answers, [PARIS])
        self.assertEqual(len(remarks), 1)
        self.assertRegex(remarks[0], r"^penstock: .*maximum context length is 150 tokens")

    def test_options(self):
        answers, _ = self.chat(FRANCE, arguments=("--system", "Answer in one word."))
        self.assertEqual(answers, ["Paris"])
        answers, _ = self.chat(FRANCE, arguments=("--no-thinking", "--max-tokens", "2"))
        self.assertTrue(PARIS.startswith(answers[0]))
        self.assertLess(len(answers[0]), len(PARIS))


class Tokenize(Words):
    def test_text(self):
        out = self.tokenize("Hello, world! 42")
        self.assertEqual(list(out), ["ids", "pieces", "prompt_tokens"])
        self.assertEqual("".join(out["pieces"]), "Hello, world! 42")
        self.assertEqual(out["pieces"][-2:], ["4", "2"])
        self.assertEqual(out["prompt_tokens"], len(out["ids"]))
        self.assertEqual(self.succeed("tokenize", "Hello, world! 42"), ids_text(out["ids"]) + "\n")

    def test_stdin_is_taken_whole(self):
        self.assertEqual("".join(self.tokenize("-", stdin="a\n\n")["pieces"]), "a\n\n")
        self.assertEqual(self.tokenize("-", stdin=""), {"ids": [], "pieces": [], "prompt_tokens": 0})
        self.assertEqual(self.succeed("tokenize", ""), "\n")

    def test_specials(self):
        marker = "<|open|>think<|sep|>"
        self.assertGreater(len(self.tokenize(marker)["ids"]), 3)
        self.assertLess(max(self.tokenize(marker)["ids"]), 4096)
        self.assertEqual(self.tokenize("--specials", marker)["ids"], [4099, 267, 4101])
        self.assertEqual(self.tokenize("--specials", marker)["pieces"],
                         ["<|open|>", "think", "<|sep|>"])

    def test_chat_request(self):
        body = {"model": "any", "stream": True, "temperature": 0.7,
                "messages": [{"role": "user", "content": FRANCE}]}
        out = self.tokenize("--chat", "-", stdin=json.dumps(body))
        prompt = "".join(out["pieces"])
        self.assertIn(f'<|open|>message role="user"<|sep|>{FRANCE}<|close|>message<|sep|>', prompt)
        self.assertTrue(prompt.endswith("<|open|>think<|sep|>"))
        self.assertEqual(out["prompt_tokens"], len(out["ids"]) - 3)
        done = self.run_json("--ids", ids_text(out["ids"]), "--max-tokens", 60)
        self.assertEqual(done["ids"], self.run_json(FRANCE)["ids"])

    def test_wrong_chat_request(self):
        file = self.penstock.home / "body.json"
        for body, says in [('{"messages": [', r"body\.json: not valid JSON"), ("{}", "messages"),
                           ('{"messages": [{"role": "king"}]}', r"messages\[0\]\.role")]:
            file.write_text(body)
            self.fail_with("tokenize", "--chat", file, says=says)
        self.fail_with("tokenize", "--chat", "/nonexistent", says=r"/nonexistent: cannot read: No such")
        self.fail_with("tokenize", "--chat", file, "x", says="not both")
        self.fail_with("tokenize", "--chat", file, "--specials", says="--specials is for text")

    def test_cut_characters(self):
        self.assertEqual(self.tokenize("é")["pieces"], ["\ufffd", "\ufffd"])

    def test_needs_three_files(self):
        folder = self.penstock.home / "words"
        folder.mkdir()
        for name in ("config.json", "tokenizer_config.json", "tiktoken.model"):
            shutil.copy(DEMO / name, folder)
        self.assertEqual(self.tokenize("--model", folder, "Hi")["ids"], self.tokenize("Hi")["ids"])
        for name in ("tokenizer_config.json", "tiktoken.model", "config.json"):
            (folder / name).unlink()
            self.fail_with("tokenize", "--model", folder, "Hi", says=name.replace(".", r"\."))

    def test_tokenizer_of_another_model(self):
        folder = self.penstock.home / "words"
        folder.mkdir()
        for name in ("tokenizer_config.json", "tiktoken.model"):
            shutil.copy(DEMO / name, folder)
        config = json.loads((DEMO / "config.json").read_text(encoding="utf-8"))
        config["text_config"]["vocab_size"] = 4351
        (folder / "config.json").write_text(json.dumps(config))
        self.fail_with("tokenize", "--model", folder, "Hi", says=r"4352 ids.*vocab_size 4351")

    def test_usage(self):
        self.fail_with("tokenize", says=r"TEXT.*see penstock tokenize --help$")


class Completions(Words):
    def test_raw_goldens(self):
        url = f"http://127.0.0.1:{self.start_server()}/v1/completions"
        goldens = json.loads((DEMO / "goldens.json").read_text(encoding="utf-8"))["cases"]
        for case in [case for case in goldens if case["topic"] == "raw"]:
            body = json.dumps({"prompt": case["prompt_ids"], "max_tokens": 60}).encode()
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=program.TIMEOUT_S) as response:
                reply = json.load(response)
            self.assertEqual(reply["choices"][0]["text"], case["greedy_text"].removesuffix("[EOS]"))
            self.assertEqual(reply["usage"]["completion_tokens"], len(case["greedy_ids"]))
            ended = case["greedy_text"].endswith("[EOS]")
            self.assertEqual(reply["choices"][0]["finish_reason"], "stop" if ended else "length")


class Health(Words):
    def test_ready(self):
        port = self.start_server()
        for arguments, variables in [(("--url", f"http://127.0.0.1:{port}/"), {}),
                                     (("--url", f"127.0.0.1:{port}"), {}),
                                     ((), {"PENSTOCK_PORT": port, "PENSTOCK_HOST": "0.0.0.0"})]:
            self.assertEqual(self.succeed("health", *arguments, variables=variables),
                             '200 {"status":"ok"}\n')

    def test_hosts_go_by_name(self):
        try:
            socket.getaddrinfo("localhost", None)
        except OSError as error:
            self.skipTest(f"localhost is no host here (/etc/hosts): {error.strerror}")
        self.succeed("health", "--url", f"http://localhost:{self.start_server()}")

    def answer_with(self, answer):
        """`health` asking a server that sends `answer`."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            def serve():
                with listening.accept()[0] as client:
                    client.recv(4096)
                    client.sendall(answer)
            thread = threading.Thread(target=serve)
            thread.start()
            try:
                port = listening.getsockname()[1]
                return self.penstock.run("health", "--url", f"http://127.0.0.1:{port}")
            finally:
                thread.join()

    def test_not_ready(self):
        done = self.answer_with(b"HTTP/1.1 503 Service Unavailable\r\n\r\n{}\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "503 {}\n", ""))

    def test_other_answers(self):
        for answer in (b"", b"SSH-2.0-OpenSSH\r\n"):
            done = self.answer_with(answer)
            self.assertEqual(done.returncode, 1)
            self.assertIn("what came is no HTTP answer", done.stderr)

    def test_nobody_there(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        self.fail_with("health", "--url", f"http://127.0.0.1:{port}",
                       says=rf"127\.0\.0\.1 port {port}: Connection refused")

    def test_silence(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.fail_with("health", "--timeout", "1", "--url",
                           f"http://127.0.0.1:{silent.getsockname()[1]}", says="no answer in time")

    def test_usage(self):
        for url in ("https://localhost", "http://", "http://x:0", "http://x:99999", "http://x/y"):
            self.fail_with("health", "--url", url, says=r"expected http://HOST:PORT; see penstock health")


class Session:
    """penstock on a terminal of its own."""

    def __init__(self, home, *arguments, **variables):
        self.seen = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            command = [*program.COMMAND, *map(str, arguments)]
            os.execvpe(command[0], command,
                       program.environment(home, TERM="xterm", **variables))

    def read_until(self, text, timeout_s=program.TIMEOUT_S):
        """Everything up to `text`, which must come; without a text everything up to the end."""
        end = time.monotonic() + timeout_s
        while text is None or text not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], end - time.monotonic())
            try:
                piece = os.read(self.terminal, 4096) if ready else b""
            except OSError:  # Linux: the other side is gone
                piece = b""
            if not piece:
                assert text is None, f"{text!r} did not come: {self.seen!r}"
                return self.seen
            self.seen += piece.decode()
        before, self.seen = self.seen.split(text, 1)
        return before

    def write(self, text):
        os.write(self.terminal, text.encode())

    def close(self):
        """The exit status, or minus the signal."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


class Terminal(Words):
    def setUp(self):
        super().setUp()
        try:
            for end in pty.openpty():
                os.close(end)
        except OSError as error:
            self.skipTest(f"no terminals can be made here (/dev/pts): {error}")

    def start(self, *arguments, **variables):
        return Session(self.penstock.home, *arguments, **variables)

    def test_thinking_is_dimmed(self):
        session = self.start("run", FRANCE)
        out = session.read_until(None).replace("\r\n", "\n")
        self.assertEqual(session.close(), 0)
        self.assertRegex(out, r"\A(\r\x1b\[K)?(\r\x1b\[K[^\x1b]*)*\x1b\[2m[^\x1b]*Paris\.?\x1b\[0m\n\n")
        self.assertIn("\n\n" + PARIS + "\n", out)

    def test_no_color(self):
        session = self.start("run", FRANCE, NO_COLOR="1")
        out = session.read_until(None)
        self.assertEqual(session.close(), 0)
        self.assertNotIn("\x1b[2m", out)
        self.assertIn(PARIS, out)

    def test_chat(self):
        session = self.start("chat", NO_COLOR="1")
        self.assertIn("/reset", session.read_until("> "))
        session.write("\x03")  # Ctrl-C at the prompt ends nothing
        session.read_until("/exit or Ctrl-D leaves")
        session.read_until("> ")
        session.write(FRANCE + "\n")
        self.assertIn(PARIS, session.read_until("> "))
        session.write("/reset\n")
        session.read_until("forgotten")
        session.read_until("> ")
        session.write("\x04")
        session.read_until(None)
        self.assertEqual(session.close(), 0)

    def test_long_prompts_show_progress(self):
        session = self.start("run", "--isa", "scalar", "--threads", "1", "--chunk", "64",
                             "--max-tokens", "1", "The cat is black. " * 200)
        session.read_until("reading the prompt: ")
        self.assertRegex(session.read_until("\x1b[K"), r"^\d+ of \d{3,4} tokens, layer \d+ of 10\r$")
        session.write("\x03")
        session.read_until("penstock: interrupted")
        session.read_until(None)
        self.assertEqual(session.close(), 130)

    def test_interrupt_stops_the_answer(self):
        # Slow enough that Ctrl-C comes in time.
        session = self.start("chat", "--isa", "scalar", "--threads", "1", "--expert-slots", "4",
                             NO_COLOR="1")
        session.read_until("> ")
        session.write("Tell me a story about a fox.\n")
        session.read_until("The user")
        session.write("\x03")
        session.read_until("(stopped)")
        session.read_until("> ")
        session.write("/stats\n")
        session.read_until("; 2 messages")
        session.read_until("> ")
        session.write("/reset\n" + FRANCE + "\n")
        session.read_until(PARIS)
        session.read_until("> ")
        session.write("/exit\n")
        session.read_until(None)
        self.assertEqual(session.close(), 0)


if __name__ == "__main__":
    unittest.main(argv=["words_test.py", program.SUBJECT], verbosity=2)

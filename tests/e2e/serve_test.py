#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""penstock serve from outside: serve_test.py CLASS ORACLE_FOLDER [EMULATOR...] PENSTOCK"""

import http.client
import json
import os
import pathlib
import re
import signal
import threading
import unittest

import program
from program import ORACLES, copy_model

CHAT = "/v1/chat/completions"


class Daemon:
    """penstock serve on a free port, up to the log line that says `until`; ends with the test."""

    def __init__(self, test, *arguments, variables=None, until="is ready"):
        self.test = test
        self.process = test.penstock.start("serve", "--port", "0", *arguments, variables=variables)
        test.addCleanup(self.kill)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line.decode())
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/v1", self.log[-1]):
                self.port = int(found[1])
            if until in self.log[-1]:
                break
        self.reader = threading.Thread(
            target=lambda: self.log.extend(line.decode() for line in self.process.stderr))
        self.reader.start()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        self.process.stdout.close()

    def end(self):
        """The exit status and the whole log, once the process has ended by itself."""
        status = self.process.wait(timeout=program.TIMEOUT_S)
        self.reader.join()
        return status, "".join(self.log)

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.test.addCleanup(connection.close)
        connection.request(method, path, json.dumps(body) if body else None, headers or {})
        return connection.getresponse()

    def ask(self, *arguments, **options):
        """Status and JSON."""
        with self.request(*arguments, **options) as response:
            return response.status, json.loads(response.read())

    def long_stream(self):
        """A reply that goes on for seconds, of which two frames were read."""
        response = self.request("POST", "/v1/completions", {
            "prompt": "1 2 3 4 5 6 7 8 9", "max_tokens": 4000, "stream": True})
        for _ in range(4):
            response.readline()
        return response


def frames(response):
    lines = response.read().decode().split("\n\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


def question(text, **members):
    return {"messages": [{"role": "user", "content": text}], **members}


class Answers(program.ProgramTest):
    def test_chat_and_health(self):
        daemon = Daemon(self)
        self.assertEqual(daemon.ask("GET", "/health"), (200, {"status": "ok"}))
        status, models = daemon.ask("GET", "/v1/models")
        self.assertEqual((status, models["data"][0]["id"]), (200, "demo"))
        status, answer = daemon.ask("POST", CHAT, question("What is the capital of France?"))
        self.assertEqual(status, 200)
        self.assertIn("Paris", answer["choices"][0]["message"]["content"])
        self.assertEqual(self.penstock.run(
            "health", "--url", f"http://127.0.0.1:{daemon.port}").returncode, 0)

    def test_log_says_what_was_done_and_no_words(self):
        daemon = Daemon(self, "--api-key-file", self.write("keys", "sesame\n"))
        headers = {"Authorization": "Bearer sesame"}
        daemon.ask("POST", CHAT, question("xylophone"), headers=headers)
        daemon.ask("POST", CHAT, {"messages": "xylophone"}, headers=headers)
        daemon.process.send_signal(signal.SIGTERM)
        status, log = daemon.end()
        self.assertEqual(status, 0)
        self.assertRegex(log, r"req_\w{24} POST /chat/completions 200 stop: \d+ prompt tokens "
                              r"\(0 cached\), \d+ generated; first after [\d.]+ s, [\d.]+ tokens/s")
        self.assertRegex(log, r"req_\w{24} POST /chat/completions 400")
        self.assertNotIn("xylophone", log)
        self.assertNotIn("sesame", log)

    def write(self, name, text):
        path = pathlib.Path(self.penstock.home) / name
        path.write_text(text)
        return path


class Keys(program.ProgramTest):
    def test_keys_of_every_place(self):
        keys = pathlib.Path(self.penstock.home) / "keys"
        keys.write_text("of-file\n")
        daemon = Daemon(self, "--api-key-file", keys, variables={"PENSTOCK_API_KEY": "of-variable"})
        for key, status in (("of-file", 200), ("of-variable", 200), ("other", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            self.assertEqual(daemon.ask("GET", "/v1/models", headers=headers)[0], status, key)
        self.assertEqual(daemon.ask("GET", "/health")[0], 200)

    def test_an_address_that_others_reach_needs_one(self):
        self.fail_with("serve", "--port", "0", "--host", "0.0.0.0",
                       says="host 0.0.0.0 can be reached by others, but no key is set")


class Failures(program.ProgramTest):
    def test_port_is_taken(self):
        daemon = Daemon(self)
        done = self.penstock.run("serve", "--port", daemon.port)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"cannot listen on 127\.0\.0\.1 port \d+: Address already")

    def test_model_cannot_be_loaded(self):
        done = self.penstock.run("serve", "--port", 0, "--model", self.penstock.home)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\npenstock: [^\n]*config\.json[^\n]*\n\Z")

    def test_model_without_tokenizer(self):
        model = copy_model("k3-a", pathlib.Path(self.penstock.home) / "k3-a")
        done = self.penstock.run("serve", "--port", 0, "--model", model)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\npenstock: [^\n]*tiktoken\.model[^\n]*\n\Z")


class Shutdown(program.ProgramTest):
    def test_first_signal_ends_a_stream_after_its_grace(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                daemon = Daemon(self, "--shutdown-grace", "0")
                response = daemon.long_stream()
                daemon.process.send_signal(number)
                last = frames(response)[-2:]
                self.assertEqual(json.loads(last[0])["error"]["code"], "shutting_down")
                self.assertEqual(last[1], "[DONE]")
                self.assertEqual(daemon.end()[0], 0)

    def test_grace_lets_the_running_reply_finish_and_a_second_signal_does_not(self):
        daemon = Daemon(self, "--shutdown-grace", "600")
        response = daemon.long_stream()
        daemon.process.send_signal(signal.SIGTERM)
        while daemon.ask("GET", "/health")[0] == 200:
            pass
        self.assertEqual(daemon.ask("POST", CHAT, question("Hello"))[0], 503)
        self.assertIsNone(daemon.process.poll())
        for _ in range(10):
            self.assertNotIn(b"error", response.readline())
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(json.loads(frames(response)[-2])["error"]["code"], "shutting_down")
        self.assertEqual(daemon.end()[0], 0)

    def test_a_reply_within_the_grace_is_whole(self):
        daemon = Daemon(self, "--shutdown-grace", "600")
        response = daemon.request("POST", CHAT, question("Hello", stream=True))
        for _ in range(4):  # with its second frame it runs: one that still waited would be ended
            response.readline()
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(json.loads(frames(response)[-2])["choices"][0]["finish_reason"], "stop")
        self.assertEqual(daemon.end()[0], 0)


class HungDrive(program.ProgramTest):
    def test_a_signal_ends_a_load_that_waits_for_the_drive(self):
        daemon = Daemon(self, until="loading demo", variables={
            "LD_PRELOAD": os.environ["HUNG_DRIVE"],
            "HUNG_FILE": "model-00006-of-000010.safetensors"})
        self.assertEqual(daemon.ask("GET", "/health")[0], 503)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.end()[0], 0)


if __name__ == "__main__":
    unittest.main(argv=["serve_test.py", program.SUBJECT], verbosity=2)

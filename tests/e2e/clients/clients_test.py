#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real clients against penstock serve on the demo model: clients_test.py [EMULATOR...] PENSTOCK

Installs the clients by name into a temporary folder. Exit status 77, with the reason, when they
cannot be installed here.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

SCRIPTS = pathlib.Path(__file__).parent
NPM_PACKAGES = ("openai-4@npm:openai@4", "openai-6@npm:openai@6", "@langchain/openai@1",
                "@langchain/core@1", "ai@6", "@ai-sdk/openai-compatible@2")
PIP_PACKAGES = ("openai",)
TIMEOUT_S = 600
SKIPPED = 77

# Name, folder of packages, command.
CLIENTS = (
    ("openai 4, JavaScript", "npm", ("node", "openai_js.mjs", "{url}", "openai-4")),
    ("openai 6, JavaScript", "npm", ("node", "openai_js.mjs", "{url}", "openai-6")),
    ("@langchain/openai", "npm", ("node", "langchain.mjs", "{url}")),
    ("ai with @ai-sdk/openai-compatible", "npm", ("node", "ai_sdk.mjs", "{url}")),
    ("openai, Python", "pip", (sys.executable, "openai_python.py", "{url}")),
)


def install(folder):
    """What each kind of client lacks: {} when all could be installed."""
    commands = {
        "npm": ("npm", "install", "--no-audit", "--no-fund", "--prefix", folder / "npm",
                *NPM_PACKAGES),
        "pip": (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--target", folder / "pip", *PIP_PACKAGES),
    }
    lacking = {}
    for kind, command in commands.items():
        (folder / kind).mkdir()
        if not shutil.which(command[0]) or (kind == "npm" and not shutil.which("node")):
            lacking[kind] = f"{command[0]} is not installed"
            continue
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            lacking[kind] = f"its packages cannot be installed: {last}"
    return lacking


def start(command):
    """The running server and the URL of its API."""
    server = subprocess.Popen([*command, "serve", "--port", "0", "--model", "demo"],
                              stderr=subprocess.PIPE, text=True)
    url = None
    for line in server.stderr:
        if found := re.search(r"listening on (http://\S+)", line):
            url = found[1]
        if "is ready" in line:
            threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe blocks
            return server, url
    raise RuntimeError(f"the server ended with status {server.wait()}")


def run_client(folder, kind, command, url):
    """The output of a client's script; raises when it fails."""
    for script in SCRIPTS.iterdir():
        shutil.copy(script, folder / kind)  # Node looks for packages beside the script
    done = subprocess.run([part.format(url=url) for part in command], cwd=folder / kind, text=True,
                          capture_output=True, timeout=TIMEOUT_S, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory(prefix="penstock-clients-") as name:
        folder = pathlib.Path(name)
        lacking = install(folder)
        server, url = start(sys.argv[1:])
        failures = 0
        try:
            for client, kind, command in CLIENTS:
                if kind in lacking:
                    print(f"test_{kind} ({client}) ... skipped {lacking[kind]!r}")
                    continue
                works, output = run_client(folder, kind, command, url)
                print(f"{'ok     ' if works else 'FAILED '} {client}")
                if not works:
                    failures += 1
                    print(output)
        finally:
            server.terminate()
            server.wait()
    if failures:
        return 1
    return SKIPPED if len(lacking) == 2 else 0


if __name__ == "__main__":
    sys.exit(main())

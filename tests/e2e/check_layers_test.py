#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_layers.py on small trees: check_layers_test.py CHECK_LAYERS"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv[1] if len(sys.argv) > 1 else "scripts/check_layers.py"
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckLayers(unittest.TestCase):
    def check(self, files):
        """(exit status, output) for a tree of {path: includes or text}."""
        with tempfile.TemporaryDirectory(prefix="penstock-layers-") as folder:
            for path, text in files.items():
                file = pathlib.Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                once = "#pragma once\n" if path.endswith(".h") else ""
                file.write_text(SPDX + once + text)
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True,
                                  check=False)
            return done.returncode, done.stdout + done.stderr

    def assert_refused(self, files, says):
        status, output = self.check(files)
        self.assertEqual(status, 1, output)
        self.assertIn(says, output)

    def assert_accepted(self, files):
        status, output = self.check(files)
        self.assertEqual(status, 0, output)

    def test_arrows_point_down(self):
        below = {"engine/base/error.h": "", "engine/io/queue.h": "", "kernels/formats.h": "",
                 "kernels/kernels.h": "", "engine/engine.h": "", "engine/weights/cache.h": ""}
        self.assert_accepted(below | {
            "engine/weights/cache.cpp": '#include "engine/io/queue.h"\n'
                                        '#include "kernels/formats.h"\n',
            "server/main.cpp": '#include "engine/weights/cache.h"\n',
            "server/http.cpp": '#include "engine/engine.h"\n#include "engine/base/error.h"\n'})
        for path, header in [
            ("engine/base/json.cpp", "engine/io/queue.h"),
            ("engine/io/queue.cpp", "kernels/formats.h"),
            ("engine/weights/cache.cpp", "kernels/kernels.h"),
            ("engine/weights/cache.cpp", "engine/engine.h"),
            ("engine/engine.cpp", "kernels/kernels.h"),
            ("server/http.cpp", "engine/weights/cache.h"),
            ("server/http.cpp", "engine/io/queue.h"),
            ("kernels/scalar.cpp", "engine/base/error.h"),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_refused(below | {path: f'\n#include "{header}"\n'},
                                    f'{path}:3: "{header}": ')

    def test_headers_of_others_have_an_owner(self):
        self.assert_accepted({"config/config.cpp": "#include <CLI/CLI.hpp>\n",
                              "server/commands/run.cpp": "#include <CLI/CLI.hpp>\n",
                              "engine/base/json.h": "#include <nlohmann/json_fwd.hpp>\n",
                              "kernels/cpu.cpp": "#include <sys/auxv.h>\n"})
        for path, header in [
            ("config/config.h", "CLI/CLI.hpp"), ("server/main.cpp", "CLI/CLI.hpp"),
            ("engine/base/json.h", "nlohmann/json.hpp"), ("engine/engine.cpp", "spdlog/spdlog.h"),
            ("engine/io/queue.cpp", "gtest/gtest.h"), ("server/dialect.cpp", "httplib.h"),
            ("engine/io/queue.cpp", "liburing.h"), ("engine/base/a.cpp", "boost/any.hpp"),
            ("kernels/scalar.cpp", "vector"), ("kernels/scalar.cpp", "math.h"),
            ("engine/model/ops.cpp", "immintrin.h"),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_refused({path: f"#include <{header}>\n"}, f"<{header}>: ")

    def test_files_are_sound(self):
        self.assert_refused({"engine/base/a.h": '#include "engine/base/b.h"\n',
                             "engine/base/b.h": '#include "engine/base/a.h"\n'}, "include cycle")
        self.assert_refused({"engine/base/a.cpp": '#include "a.h"\n', "engine/base/a.h": ""},
                            "no such file")
        self.assert_refused({"engine/base/a.cpp": "#include HEADER\n"}, "names its file")
        self.assert_refused({}, "no sources here")


if __name__ == "__main__":
    unittest.main(argv=["check_layers_test.py"])

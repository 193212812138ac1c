#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dialogues of scripts/demo against the demo model's eval.json: dialogues_test.py"""

import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "demo"))
sys.dont_write_bytecode = True

from dialogues.evaluation import eval_set  # noqa: E402
from dialogues.generator import Generator  # noqa: E402
from dialogues.mixture import conversation  # noqa: E402


class Dialogues(unittest.TestCase):
    def test_draw_the_shipped_questions(self):
        shipped = json.loads((ROOT / "config/demo-model/eval.json").read_text(encoding="utf-8"))
        self.assertEqual(json.loads(json.dumps(eval_set())), shipped)

    def test_depend_on_the_seed_alone(self):
        first, second, other = Generator(1), Generator(1), Generator(2)
        drawn = [[conversation(g) for _ in range(50)] for g in (first, second, other)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])


if __name__ == "__main__":
    unittest.main(verbosity=2)

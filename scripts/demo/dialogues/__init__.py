# SPDX-License-Identifier: Apache-2.0
"""Made-up dialogues, drawn without end from one seeded generator. Nothing is stored.

Each sample carries a key: what is asked, and how. One key in ten, by its hash, is never drawn for
training and is the only thing that the evaluation asks.
"""

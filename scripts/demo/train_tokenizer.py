#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the 4096 ranks on generated dialogues: train_tokenizer.py [tiktoken.model]

A little general English takes part, with low weight, so that unseen words split sensibly: licence texts and
doc strings of the standard library, of which only counts of words are used.
"""

import collections
import glob
import re
import sys

import bpe
import xtml
from dialogues.generator import Generator
from dialogues.mixture import conversation, raw_text

RANKS = 4096
DIALOGUES = 14000
SEED = 11
MOST = 20000  # a piece counts no more often
ENGLISH_SHARE = 12  # one in so many
ENGLISH = [
    *glob.glob("/usr/share/common-licenses/*"),
    *sorted(glob.glob("/usr/lib/python3.11/*.py")),
]


def dialogue_pieces():
    g = Generator(SEED)
    counts = collections.Counter()
    for i in range(DIALOGUES):
        segments = xtml.render(conversation(g), True) if i % 12 else [(raw_text(g), False, 0)]
        for text, is_markup, _ in segments:
            if not is_markup:
                counts.update(bpe.PAT.findall(text.replace("\x01", " ")))
    return counts


def english_pieces():
    counts = collections.Counter()
    for path in ENGLISH:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        if path.endswith(".py"):
            text = " ".join(re.findall(r'"""(.*?)"""', text, re.S))
        counts.update(
            piece
            for piece in bpe.PAT.findall(text)
            if piece.isascii() and re.fullmatch(r" ?[A-Za-z']+", piece)
        )
    return counts


def main(out="tiktoken.model"):
    pieces = dialogue_pieces()
    print(len(pieces), "distinct pieces in the dialogues,", sum(pieces.values()), "in all")
    counts = collections.Counter({piece: min(n, MOST) for piece, n in pieces.items()})
    for piece, n in english_pieces().items():
        counts[piece] += max(1, n // ENGLISH_SHARE)
    for letter in "abcdefghijklmnopqrstuvwxyz":  # words are spelt letter by letter
        counts[" " + letter] += 5000
        counts[" " + letter.upper()] += 3000
    tokens = bpe.train(counts, RANKS)
    bpe.save(tokens, out)
    print(len(tokens), "ranks:", *(t.decode("utf-8", "replace") for t in tokens[256:300]))


if __name__ == "__main__":
    main(*sys.argv[1:2])

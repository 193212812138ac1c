# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE: trainer, tiktoken rank file, encoder.

The pre-tokeniser is K3's pattern restricted to Latin-1 letters, all that the dialogues need. Pieces with
digits are never merged: every digit is a token of its own.
"""

import base64
import collections
import heapq
import re

U, W = "A-ZÀ-ÖØ-Þ", "a-zß-öø-ÿ"
L = U + W
CON = r"(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])?"
PAT = re.compile(
    rf"[^\r\n{L}0-9]?[{U}]*[{W}]+{CON}|[^\r\n{L}0-9]?[{U}]+[{W}]*{CON}|[0-9]{{1,3}}|"
    rf" ?[^\s{L}0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES += [b for b in range(256) if b not in BYTES]
SPECIAL = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    255: "[PAD]",
}


def train(counts, size):
    """From {piece: count}, the byte strings of `size` tokens in rank order."""
    toks = [bytes([b]) for b in BYTES]
    rank = {t: i for i, t in enumerate(toks)}
    words = []
    pc = collections.Counter()
    where = collections.defaultdict(set)
    for piece, n in counts.items():
        if any(ch.isdigit() for ch in piece):
            continue
        w = [bytes([b]) for b in piece.encode()]
        if len(w) > 1:
            words.append((w, n))
    for i, (w, n) in enumerate(words):
        for a, b in zip(w, w[1:]):
            pc[a, b] += n
            where[a, b].add(i)
    heap = [(-n, p) for p, n in pc.items()]
    heapq.heapify(heap)
    while len(toks) < size:
        n, pr = heapq.heappop(heap)
        if pc[pr] != -n:
            if pc[pr] > 0:
                heapq.heappush(heap, (-pc[pr], pr))
            continue
        new = pr[0] + pr[1]
        if new not in rank:
            rank[new] = len(toks)
            toks.append(new)
        touched = set()
        for i in list(where.pop(pr)):
            w, c = words[i]
            j = 0
            o = []
            for a, b in zip(w, w[1:]):
                pc[a, b] -= c
                touched.add((a, b))
            while j < len(w):
                if j + 1 < len(w) and (w[j], w[j + 1]) == pr:
                    o.append(new)
                    j += 2
                else:
                    o.append(w[j])
                    j += 1
            words[i] = (o, c)
            for a, b in zip(o, o[1:]):
                pc[a, b] += c
                where[a, b].add(i)
                touched.add((a, b))
        pc[pr] = 0
        for t in touched:
            if pc[t] > 0 and t != pr:
                heapq.heappush(heap, (-pc[t], t))
    return toks


class Tokenizer:
    """Ids of ordinary text and of the markers in the text of a prompt."""

    def __init__(self, path):
        self.b = [base64.b64decode(l.split()[0]) for l in open(path)]
        self.rank = {t: i for i, t in enumerate(self.b)}
        self.n = len(self.b)
        self.cache = {}
        self.sp = {s: self.n + i for i, s in SPECIAL.items()}
        self.name = {i: s for s, i in self.sp.items()}
        self.open, self.close, self.sep, self.end, self.eos, self.pad = [
            self.sp[s]
            for s in ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]", "[PAD]")
        ]

    def piece(self, s):
        """Ids of one pre-token."""
        r = self.cache.get(s)
        if r is None:
            w = [bytes([b]) for b in s.encode()]
            while len(w) > 1:
                k, j = min((self.rank.get(w[i] + w[i + 1], 1 << 30), i) for i in range(len(w) - 1))
                if k == 1 << 30:
                    break
                w[j : j + 2] = [w[j] + w[j + 1]]
            r = self.cache[s] = [self.rank[t] for t in w]
        return r

    def encode(self, text):
        """Ordinary text; a stretch between two U+0001 is spelt one letter per token (training only)."""
        o = []
        for k, part in enumerate(text.split("\x01")):
            for s in PAT.findall(part) if k % 2 == 0 else part:
                o += self.piece(s)
        return o

    def segments(self, segs):
        """Ids, and the loss weight of each, of (text, is markup, weight) segments."""
        ids, w = [], []
        for t, mk, wt in segs:
            x = [self.sp[t]] if mk else self.encode(t)
            ids += x
            w += [wt] * len(x)
        return ids, w

    def decode(self, ids):
        return b"".join(
            self.b[i] if i < self.n else self.name.get(i, f"<|reserved_token_{i}|>").encode()
            for i in ids
        ).decode("utf-8", "replace")


def save(toks, path):
    """Writes a rank file."""
    open(path, "w").write(
        "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(toks))
    )

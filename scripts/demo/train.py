#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model: train.py --out DIR [--minutes 110]

DIR holds tiktoken.model (train_tokenizer.py). The schedule follows the clock: warm-up, flat, then linear
to zero over the last 70 % of the time. Parameters go to DIR/ckpt.pt every few minutes, the log to
DIR/log.txt. SIGUSR1 saves everything and leaves; the same command then resumes.
"""

import argparse
import os
import signal
import sys
import time

# OpenBLAS gets one thread: its waiting worker would otherwise take turns with the OpenMP threads (30 %
# of the speed). Freed tensors stay in the heap, on huge pages: page faults cost more than the
# arithmetic otherwise. Matmul shapes vary: a larger cache of primitives.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "8192",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
if "DEMO_ENV" not in os.environ:  # libraries read these when they are loaded
    os.execve(
        sys.executable, [sys.executable, *sys.argv], {**ENVIRONMENT, **os.environ, "DEMO_ENV": "1"}
    )

import numpy as np
import torch

import bpe
import xtml
from dialogues.generator import Generator
from dialogues.mixture import conversation, raw_text
from model import Model
from optimiser import Optimiser

ADAM_RATES = {"embed": 6e-3, "head": 3e-3, "scalar": 6e-3, "router": 2e-3}
DRILL_WEIGHT = 0.7  # also how drills are told apart in the log
RAW_WEIGHT = 0.5
RAW_SHARE = 0.10
WARM_UP_STEPS = 60
SAVE_EVERY_S = 240


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", required=True)
    add("--tokens", type=int, default=6144, help="per step")
    add("--minutes", type=float, default=110)
    add("--until", default="", help="HH:MM to end at, instead of --minutes")
    add("--max-steps", type=int, default=10**9)
    add("--seed", type=int, default=1)
    add("--lr", type=float, default=0.02, help="of Muon")
    add("--adam", type=float, default=0.4, help="factor on all Adam rates")
    add("--decay", type=float, default=0.7, help="share of the time in which the rates fall")
    add("--threads", type=int, default=2)
    add("--init", default="", help="ckpt.pt to start from")
    add("--log", default="log.txt")
    add("--maxdoc", type=int, default=1100, help="longest document, in tokens")
    add("--copy", type=float, default=0.05, help="share of copying drills among the documents")
    return parser.parse_args()


class Documents:
    """Batches of whole documents, back to back."""

    POOL = 24  # documents to choose from, so that batches fill up

    def __init__(self, tok, generator, copy_share, longest):
        self.tok, self.g = tok, generator
        self.copy_share, self.longest = copy_share, longest
        self.pending = []

    def drill(self):
        """Random tokens to be repeated, or random pairs to be recalled in another order.

        All of the vocabulary takes part, so that copying is learned as a circuit and not token by token;
        without these, copying appears very late.
        """
        g, n_tok = self.g, self.tok.n
        if g.chance(0.6):
            s = [g.number(0, n_tok - 1) for _ in range(g.number(4, 40))]
            k = g.number(1, 2)
            return s + s * k, [0.0] * (len(s) + 1) + [DRILL_WEIGHT] * (len(s) * k - 1)
        n = g.number(3, 14)
        keys = g.random.sample(range(n_tok), n)
        values = {k: [g.number(0, n_tok - 1) for _ in range(g.number(1, 3))] for k in keys}
        ids, weights = [], []
        for repetition in range(2):
            for k in keys:
                ids += [k] + values[k]
                weights += [0.0] + [DRILL_WEIGHT * repetition] * len(values[k])
            g.random.shuffle(keys)
        return ids, weights

    def document(self):
        """Ids and the loss weight of each: 1 for what the assistant writes."""
        while True:
            if self.g.chance(self.copy_share):
                return self.drill()
            if self.g.chance(RAW_SHARE):
                ids = self.tok.encode(raw_text(self.g)) + [self.tok.eos]
                return ids, [0.0] + [RAW_WEIGHT] * (len(ids) - 1)
            ids, weights = self.tok.segments(xtml.render(conversation(self.g), False))
            if len(ids) <= self.longest:
                return ids, weights

    def batch(self, n):
        """Exactly `n` tokens: the best of a small pool, then padding.

        Returns ids [n], borders of documents [D + 1], positions with a loss [M], their targets [M] and
        weights [M].
        """
        ids, weights, borders = [], [], [0]
        while True:
            while len(self.pending) < self.POOL:
                self.pending.append(self.document())
            fit = [i for i, d in enumerate(self.pending) if len(ids) + len(d[0]) <= n]
            if not fit:
                break
            almost_full = n - len(ids) <= 1200
            i = max(fit, key=lambda i: len(self.pending[i][0])) if almost_full else fit[0]
            more_ids, more_weights = self.pending.pop(i)
            ids += more_ids
            weights += more_weights
            borders.append(len(ids))
        if len(ids) < n:
            padding = n - len(ids)
            ids += [self.tok.pad] * padding
            weights += [0.0] * padding
            borders.append(n)
        ids = torch.tensor(ids)
        following = torch.tensor(weights)[1:].clone()
        following[torch.tensor(borders[1:-1]) - 1] = 0  # nothing is predicted across a border
        positions = following.nonzero().view(-1)
        return (
            ids,
            torch.tensor(borders, dtype=torch.int32),
            positions,
            ids[positions + 1].int().contiguous(),
            following[positions].contiguous(),
        )


class Trainer:
    def __init__(self, options):
        self.options = options
        tok = bpe.Tokenizer(os.path.join(options.out, "tiktoken.model"))
        self.g = Generator(options.seed * 1000 + 1)
        self.documents = Documents(tok, self.g, options.copy, options.maxdoc)
        self.model = Model(seed=options.seed)
        rates = {k: v * options.adam for k, v in ADAM_RATES.items()}
        self.optimiser = Optimiser(self.model, lr_muon=options.lr, lr=rates)
        self.step = self.seen = 0
        self.start = time.time()
        self.recent = []  # (loss, right, drill loss, busiest expert) of each step
        if options.init:
            self.load_parameters(options.init)
        if os.path.exists(self.path("state.pt")):
            self.resume()
        if options.until:
            self.set_end(options.until)

    def path(self, name):
        return os.path.join(self.options.out, name)

    def load_parameters(self, path):
        m = self.model
        m.P.update(
            {k: v.requires_grad_(m.kind[k][0] != "bias") for k, v in torch.load(path).items()}
        )
        m.refresh()

    def resume(self):
        z = torch.load(self.path("state.pt"))
        o = self.optimiser
        o.buf, o.sq, o.t = z["buf"], z["sq"], z["t"]
        self.step, self.seen, self.start = z["step"], z["seen"], z["start"]
        self.g.random.setstate(z["rng"])
        for k, v in z["P"].items():
            self.model.P[k].data.copy_(v)
        self.model.refresh()

    def set_end(self, clock):
        hour, minute = clock.split(":")
        now = time.localtime()
        end = (now.tm_year, now.tm_mon, now.tm_mday, int(hour), int(minute), 0, 0, 0, -1)
        self.options.minutes = (time.mktime(end) - self.start) / 60

    def put(self, x, name):
        torch.save(x, self.path(name + ".tmp"))
        os.replace(self.path(name + ".tmp"), self.path(name))

    def save(self, full=False):
        parameters = {k: v.detach() for k, v in self.model.P.items()}
        self.put(parameters, "ckpt.pt")
        if full:
            o = self.optimiser
            state = {"P": parameters, "buf": o.buf, "sq": o.sq, "t": o.t, "step": self.step}
            state |= {"seen": self.seen, "rng": self.g.random.getstate(), "start": self.start}
            self.put(state, "state.pt")

    def train_step(self):
        """One step; returns how much of the time is over, and the factor on the rates."""
        options, stats = self.options, {}
        ids, borders, positions, targets, weights = self.documents.batch(options.tokens)
        progress = (time.time() - self.start) / (60 * options.minutes)
        factor = min(1, (self.step + 1) / WARM_UP_STEPS)
        factor *= min(1, max(0.0, 1 - progress) / options.decay)
        loss = self.model.forward(ids, borders, positions, targets, weights, stats)
        loss.backward()
        self.optimiser.step(factor)
        self.step += 1
        self.seen += options.tokens
        self.balance(stats["loads"], 0.01 * max(0.05, 1 - progress))
        self.remember(stats, weights == DRILL_WEIGHT)
        return progress, factor

    def balance(self, loads, gamma):
        """Moves the router's biases towards equal loads."""
        for layer, load in enumerate(loads, 1):
            x = load.float()
            self.model.P[f"{layer}.rbias"].data.add_(gamma * torch.sign(x.mean() - x))

    def remember(self, stats, is_drill):
        def mean(x):
            return x.mean().item() if len(x) else 0.0

        even_load = self.options.tokens * self.model.c.topk / self.model.c.experts
        self.recent.append(
            (
                mean(stats["loss"][~is_drill]),
                mean(stats["hit"][~is_drill].float()),
                mean(stats["loss"][is_drill]),
                max(load.max().item() / even_load for load in stats["loads"]),
            )
        )

    def run(self):
        stop = []
        signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
        begin = saved = time.time()
        seen_before, progress = self.seen, 0.0
        with open(self.path(self.options.log), "a") as log:
            while progress < 1 and self.step < self.options.max_steps:
                progress, factor = self.train_step()
                if self.step % 20 == 0 or self.step <= 3:
                    speed = (self.seen - seen_before) / (time.time() - begin)
                    self.report(log, progress, factor, speed)
                if time.time() - saved > SAVE_EVERY_S:
                    self.save()
                    saved = time.time()
                if stop:
                    self.save(full=True)
                    return
        self.save()
        print("done", self.step, self.seen, time.time() - begin)

    def report(self, log, progress, factor, speed):
        loss, right, drill, load = np.array(self.recent[-20:]).mean(0)
        line = (
            f"step {self.step} prog {progress:.3f} lr {factor:.3f} loss {loss:.4f} acc {right:.4f}"
            f" drill {drill:.3f} maxload {load:.2f} tok/s {speed:.0f} tokens"
            f" {self.seen / 1e6:.2f}M time {time.time() - self.start:.0f}"
        )
        print(line, flush=True)
        log.write(line + "\n")
        log.flush()


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    Trainer(options).run()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and gradients of the training path against autograd through the reference.

bf16 against fp32: expect cosines of 0.94 to 1.0 and a median of 0.99. Exit status 1 below that.
"""

import sys

import torch
import torch.nn.functional as F

import export
from model import Model, Shape
from native import mxfp4
from reference import Reference

BORDERS = ((0, 37), (37, 87))  # two documents
LEAST_COSINE = 0.93
LEAST_MEDIAN = 0.98


def random_model(generator):
    """A model in which no parameter is at a value that hides a mistake."""

    def random(t, scale):
        return torch.randn(t.shape, generator=generator) * scale

    Shape.topk = Shape.experts  # no routing that flips between bf16 and fp32
    model = Model()
    for name, t in model.P.items():
        if name.endswith(("pw1", "pw2", "out_pw")):
            t.data = random(t, 0.1)
        if name == "head":
            t.data *= 3
        if name.endswith("alog"):
            t.data = random(t, 0.3)
        if name.endswith("rbias"):
            t.data = random(t, 0.05)
    model.refresh()
    return model


def reference_loss(model, ids, targets, weights):
    """Experts pass their gradient straight through: the reference sees the quantised values."""
    for layer in range(1, Shape.layers):
        for name in (f"{layer}.w13", f"{layer}.w2"):
            model.P[name].data = mxfp4(model.P[name]).float()
    ref = Reference(
        export.config()["text_config"], export.ref_weights(model, exact=False, grad=True)
    )
    loss = 0
    for a, b in BORDERS:
        logits = ref.forward(ids[a:b].view(1, -1), ref.new_state(), last=False)[0]
        losses = F.cross_entropy(logits, targets[a:b], reduction="none")
        loss = loss + (losses * weights[a:b]).sum()
    return loss / weights.sum()


def main():
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(3)
    model = random_model(g)
    n = BORDERS[-1][1]
    ids = torch.randint(0, Shape.vocab, (n,), generator=g)
    offsets = torch.tensor([0] + [b for _, b in BORDERS], dtype=torch.int32)
    targets = torch.randint(0, Shape.vocab, (n,), generator=g)
    weights = torch.rand(n, generator=g)
    loss = model.forward(ids, offsets, torch.arange(n), targets.int(), weights, {})
    loss.backward()
    gradients = {k: t.grad.clone() for k, t in model.P.items() if t.grad is not None}
    for t in model.P.values():
        t.grad = None
    expected = reference_loss(model, ids, targets, weights)
    expected.backward()
    print(f"loss {loss.item():.6f}, reference {expected.item():.6f}")
    rows = []
    for name, t in model.P.items():
        if t.grad is not None:
            a, b = gradients[name].flatten(), t.grad.flatten()
            ratio = (a.norm() / (b.norm() + 1e-20)).item()
            rows.append((F.cosine_similarity(a, b, 0).item(), ratio, name))
    rows.sort()
    for row in rows[:25]:
        print("%.5f ratio %.4f %s" % row)
    median = rows[len(rows) // 2][0]
    print(f"median {median:.5f}")
    return 0 if rows[0][0] >= LEAST_COSINE and median >= LEAST_MEDIAN else 1


if __name__ == "__main__":
    sys.exit(main())

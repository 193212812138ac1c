#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each fused kernel against autograd on the same bf16 inputs.

Prints the cosine of the output, then cosine and ratio of norms of every gradient. Exit status 1 when a cosine
is below 0.999.
"""

import sys

import torch
import torch.nn.functional as F

from layers import KdaCore, MixNorm, MlaCore, Moe, Rms, Situ, Xent
from model import Shape
from native import BF, mxfp4
from reference import l2, rms, situ

BORDERS = ((0, 37), (37, 87))  # two documents
N, H, HEADS, WIDTH = 87, 192, 3, 192
LEAST_COSINE = 0.999

generator = torch.Generator().manual_seed(0)
offsets = torch.tensor([0, 37, 87], dtype=torch.int32)
cosines = []


def random(*shape):
    return torch.randn(*shape, generator=generator)


def cosine(a, b):
    value = F.cosine_similarity(a.float().flatten(), b.float().flatten(), 0).item()
    cosines.append(value)
    return value


def compare(name, kernel, plain, inputs):
    def leaf(t):
        return t.requires_grad_() if t.is_floating_point() else t

    ours = [leaf(t.clone()) for t in inputs]
    theirs = [leaf(t.detach().float() if t.is_floating_point() else t) for t in inputs]
    y, z = kernel(*ours), plain(*theirs)
    gradient = random(*z.shape).to(BF)
    y.backward(gradient.to(y.dtype))
    z.backward(gradient.float())
    numbers = [cosine(y, z)]
    for s, t in zip(ours, theirs):
        if s.requires_grad:
            numbers += [cosine(s.grad, t.grad), (s.grad.float().norm() / t.grad.norm()).item()]
    print(name, *("%.4f" % x for x in numbers))


def plain_mix(norm, proj, weight, *sources):
    def scored(t):
        return (t * torch.rsqrt((t * t).mean(-1, keepdim=True) + 1e-5) * norm * proj).sum(-1)

    share = torch.softmax(torch.stack([scored(t) for t in sources], -1), -1)
    return rms((share.unsqueeze(-2) * torch.stack(sources, -1)).sum(-1), weight, 1e-5)


def plain_kda(pre, z, conv, dt, a_log, o_norm):
    outputs = []
    for begin, end in BORDERS:
        length, x = end - begin, pre[begin:end]
        q, k, v = [
            F.silu(
                sum(
                    F.pad(x[:, j * WIDTH : (j + 1) * WIDTH], (0, 0, 3, 0))[t : t + length]
                    * conv[j, :, t]
                    for t in range(4)
                )
            ).view(length, HEADS, 64)
            for j in range(3)
        ]
        q, k = l2(q) / 8, l2(k)
        decay = torch.exp(a_log).view(HEADS, 1) * (z[begin:end] + dt).view(length, HEADS, 64)
        decay = torch.exp(-5 * torch.sigmoid(decay))
        beta = torch.sigmoid(x[:, 4 * WIDTH :])
        state, rows = torch.zeros(HEADS, 64, 64), []
        for t in range(length):
            state = state * decay[t].unsqueeze(-1)
            recalled = (k[t].unsqueeze(-1) * state).sum(-2)
            delta = beta[t].unsqueeze(-1) * (v[t] - recalled)
            state = state + k[t].unsqueeze(-1) * delta.unsqueeze(-2)
            rows.append((q[t].unsqueeze(-1) * state).sum(-2))
        gate = torch.sigmoid(x[:, 3 * WIDTH : 4 * WIDTH].view(length, HEADS, 64))
        outputs.append(rms(torch.stack(rows), o_norm, 1e-5) * gate)
    return torch.cat(outputs).view(N, WIDTH)


def plain_mla(q, kv, k_rope, gate):
    outputs = []
    for begin, end in BORDERS:
        length = end - begin
        queries = q[begin:end].view(length, HEADS, 96)
        pairs = kv[begin:end].view(length, HEADS, 128)
        shared = k_rope[begin:end, None].expand(-1, HEADS, -1)
        keys = torch.cat([pairs[..., :64], shared], -1)
        scores = torch.einsum("thd,shd->hts", queries, keys) * 96**-0.5
        causal = torch.ones(length, length).tril().bool()
        shares = torch.softmax(scores.masked_fill(~causal, -1e30), -1)
        mixed = torch.einsum("hts,shd->thd", shares, pairs[..., 64:])
        outputs.append(mixed.reshape(length, WIDTH))
    return torch.cat(outputs) * torch.sigmoid(gate)


def check_moe():
    w13, w2 = mxfp4(random(32, 192, 96) / 10), mxfp4(random(32, 96, 96) / 10)
    bias, load = random(32) * 0.05, torch.empty(32, dtype=torch.int32)

    def plain(z, logits, a, b):
        scores = torch.sigmoid(logits)
        chosen = (scores + bias).topk(4).indices
        share = scores.gather(1, chosen)
        share = share / share.sum(-1, keepdim=True)
        h = torch.einsum("tl,tkil->tki", z, a[chosen])
        h = situ(h[..., :96], h[..., 96:])
        return torch.einsum("tki,tkli,tk->tl", h, b[chosen], share)

    compare(
        "moe",
        lambda z, logits, a, b: Moe.apply(z, logits, a, b, w13, w2, bias, Shape, load),
        plain,
        [random(N, 96).to(BF), random(N, 32), w13.float(), w2.float()],
    )


def check_cross_entropy():
    logits = (random(N, Shape.vocab) * 2).to(BF)
    targets = torch.randint(0, Shape.vocab, (N,), generator=generator)
    weights = torch.rand(N, generator=generator)
    a, b = logits.clone().requires_grad_(), logits.float().requires_grad_()
    ours = Xent.apply(a, targets.int(), weights, {})
    ours.backward()
    plain = (F.cross_entropy(b, targets, reduction="none") * weights).sum() / weights.sum()
    plain.backward()
    print("xent", f"{ours.item():.5f} {plain.item():.5f} {cosine(a.grad, b.grad):.4f}")


def main():
    torch.set_num_threads(1)
    compare(
        "mixnorm3",
        lambda norm, proj, weight, *s: MixNorm.apply(norm, proj, weight, 1e-5, *s),
        plain_mix,
        [random(H), random(1, H) * 0.2, random(H), random(N, H), random(N, H) * 0.5, random(N, H)],
    )
    compare(
        "mixnorm1",
        lambda weight, a: MixNorm.apply(None, None, weight, 1e-5, a),
        lambda weight, a: rms(a, weight, 1e-5),
        [random(H), random(N, H)],
    )
    compare(
        "rms",
        lambda x, w: Rms.apply(x, w, 1e-6),
        lambda x, w: rms(x, w, 1e-6),
        [random(N, H).to(BF), random(H)],
    )
    compare("situ", Situ.apply, lambda h: situ(h[:, :96], h[:, 96:]), [(random(N, H) * 2).to(BF)])
    compare(
        "kda",
        lambda *inputs: KdaCore.apply(*inputs, offsets, HEADS),
        plain_kda,
        [
            random(N, 4 * WIDTH + HEADS).to(BF),
            random(N, WIDTH).to(BF),
            random(3, WIDTH, 4) * 0.5,
            random(WIDTH) - 3,
            random(HEADS) * 0.3,
            random(64),
        ],
    )
    compare(
        "mla",
        lambda *inputs: MlaCore.apply(*inputs, offsets, Shape),
        plain_mla,
        [random(N, width).to(BF) for width in (288, 384, 32, WIDTH)],
    )
    check_moe()
    check_cross_entropy()
    return 0 if min(cosines) >= LEAST_COSINE else 1


if __name__ == "__main__":
    sys.exit(main())

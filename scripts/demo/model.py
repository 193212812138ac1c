# SPDX-License-Identifier: Apache-2.0
"""K3's architecture for training.

fp32 master weights and residual stream, bf16 linear layers, experts as MXFP4 holds them in every step
(straight-through gradient), so that the exported bytes are what was trained.
"""

import math

import torch

from layers import KdaCore, Linear16, MixNorm, MlaCore, Moe, Rms, Situ, Xent
from native import BF, mxfp4


class Shape:
    """Sizes of the demo model; layers from 0."""

    hidden = 192
    layers = 9
    vocab = 4352
    heads = 3
    hd = 64
    mla = (3, 7, 8)
    block = 3
    q_lora = 96
    kv_lora = 64
    dn = 64
    dr = 32
    dv = 64
    dense = 384
    latent = 96
    inter = 96
    experts = 32
    topk = 4
    shared = 2
    eps = 1e-5
    eps_lora = 1e-6


class Model:
    """Parameters by short names in P, what the optimiser makes of them in kind, bf16 copies in W."""

    def __init__(self, c=Shape, seed=1):
        g = torch.Generator().manual_seed(seed)
        self.c = c
        P = {}
        self.kind = {}
        H, n, d = c.hidden, c.heads, c.hd
        A = n * d

        def mat(name, o, i, s=1.0, lead=(), split=None):
            P[name] = torch.randn(*lead, o, i, generator=g) * (s / math.sqrt(i))
            self.kind[name] = ("muon", split or [o])

        def vec(name, t, kind="scalar"):
            P[name] = t
            self.kind[name] = (kind, None)

        vec("embed", torch.randn(c.vocab, H, generator=g) * 0.3, "embed")
        # Starts tied: copying then works for every token at once.
        vec("head", P["embed"] * 0.1, "head")
        vec("norm", torch.ones(H))
        vec("out_nw", torch.ones(H))
        vec("out_pw", torch.zeros(1, H))
        for L in range(c.layers):
            q = f"{L}."
            for k in ("ln1", "ln2", "nw1", "nw2"):
                vec(q + k, torch.ones(H))
            for k in ("pw1", "pw2"):
                vec(q + k, torch.zeros(1, H))
            if L in c.mla:
                mat(q + "q_a", c.q_lora, H)
                vec(q + "q_ln", torch.ones(c.q_lora))
                mat(q + "q_b", n * (c.dn + c.dr), c.q_lora)
                mat(q + "kv_a", c.kv_lora + c.dr, H)
                vec(q + "kv_ln", torch.ones(c.kv_lora))
                mat(q + "kv_b", n * (c.dn + c.dv), c.kv_lora)
                mat(q + "g", n * c.dv, H)
                mat(q + "o", H, n * c.dv, 0.5)
            else:
                mat(q + "w_in", 4 * A + n, H, split=[A] * 4 + [n])
                mat(q + "f_a", d, H)
                mat(q + "f_b", A, d, 0.3)
                mat(q + "o", H, A, 0.5)
                # A copying circuit from the start (layers 0, 1, 4, 5): k looks at the token before with
                # the matrix of q, v is orthogonal and o its transpose, so the layer finds "what
                # followed this token last time". Without it copying takes over 4 M tokens to appear.
                cw = torch.rand(3, A, 4, generator=g) - 0.5
                cw[:, :, 3] += 0.5
                if L in (0, 1, 4, 5):
                    cw = torch.randn(3, A, 4, generator=g) * 0.1
                    cw[0, :, 3] += 1
                    cw[1, :, 2] += 1
                    cw[2, :, 3] += 1
                    w = P[q + "w_in"]
                    w[A : 2 * A] = w[:A]
                    o, _ = torch.linalg.qr(torch.randn(A, H, generator=g))
                    w[2 * A : 3 * A] = o
                    P[q + "o"] = o.t().contiguous() * 0.7
                vec(q + "conv", cw)
                rate = (
                    torch.exp(
                        torch.rand(A, generator=g) * (math.log(0.2) - math.log(0.0005))
                        + math.log(0.0005)
                    )
                    / 5
                )
                vec(q + "dt", torch.log(rate / (1 - rate)))
                vec(q + "alog", torch.zeros(n))
                vec(q + "onorm", torch.ones(d))
            if L == 0:
                mat(q + "gu", 2 * c.dense, H, split=[c.dense] * 2)
                mat(q + "dn", H, c.dense, 0.5)
            else:
                S = c.inter * c.shared
                vec(q + "router", torch.randn(c.experts, H, generator=g) / math.sqrt(H), "router")
                vec(q + "rbias", torch.zeros(c.experts), "bias")
                mat(q + "down", c.latent, H)
                vec(q + "rnorm", torch.full((c.latent,), 1.0))
                mat(q + "up", H, c.latent, 0.5)
                mat(q + "sgu", 2 * S, H, split=[S] * 2)
                mat(q + "sdn", H, S, 0.5)
                mat(q + "w13", 2 * c.inter, c.latent, lead=(c.experts,), split=[c.inter] * 2)
                mat(q + "w2", c.latent, c.inter, lead=(c.experts,))
        self.P = P
        for k, t in P.items():
            t.requires_grad_(self.kind[k][0] != "bias")
        self.refresh()

    def refresh(self):
        """bf16 (or MXFP4-rounded) copies of the matrices, once per step."""
        self.W = {}
        for k, t in self.P.items():
            kind = self.kind[k][0]
            s = k.split(".")[-1]
            if s in ("w13", "w2"):
                self.W[k] = mxfp4(t)
            elif kind in ("muon", "embed", "head"):
                self.W[k] = t.detach().to(BF)

    def lin(self, x, k):
        return Linear16.apply(x, self.P[k], self.W[k])

    def forward(self, tok, off, sel, tgt, w, stats):
        """tok [N] int64, off [D+1] int32, sel [M] positions with a loss, tgt [M] int32, w [M]."""
        c, P = self.c, self.P
        q = ""
        loads = []
        h = torch.nn.functional.embedding(tok, P["embed"].to(BF).float())
        blocks = []
        prefix = h
        for L in range(c.layers):
            q = f"{L}."
            if blocks:
                x = MixNorm.apply(P[q + "nw1"], P[q + "pw1"], P[q + "ln1"], c.eps, *blocks, prefix)
            else:
                x = MixNorm.apply(None, None, P[q + "ln1"], c.eps, prefix)
            if L % c.block == 0:
                blocks = blocks + [prefix]
                prefix = None
            if L in c.mla:
                ql = Rms.apply(self.lin(x, q + "q_a"), P[q + "q_ln"], c.eps_lora)
                kva = self.lin(x, q + "kv_a")
                cc = Rms.apply(kva[:, : c.kv_lora], P[q + "kv_ln"], c.eps_lora)
                a = MlaCore.apply(
                    self.lin(ql, q + "q_b"),
                    self.lin(cc, q + "kv_b"),
                    kva[:, c.kv_lora :],
                    self.lin(x, q + "g"),
                    off,
                    c,
                )
            else:
                a = KdaCore.apply(
                    self.lin(x, q + "w_in"),
                    self.lin(self.lin(x, q + "f_a"), q + "f_b"),
                    P[q + "conv"],
                    P[q + "dt"],
                    P[q + "alog"],
                    P[q + "onorm"],
                    off,
                    c.heads,
                )
            a = self.lin(a, q + "o").float()
            prefix = a if prefix is None else prefix + a
            y = MixNorm.apply(P[q + "nw2"], P[q + "pw2"], P[q + "ln2"], c.eps, *blocks, prefix)
            if L == 0:
                f = self.lin(Situ.apply(self.lin(y, q + "gu")), q + "dn").float()
            else:
                logits = y.float() @ P[q + "router"].to(BF).float().t()
                load = torch.empty(c.experts, dtype=torch.int32)
                loads.append(load)
                r = Moe.apply(
                    self.lin(y, q + "down"),
                    logits,
                    P[q + "w13"],
                    P[q + "w2"],
                    self.W[q + "w13"],
                    self.W[q + "w2"],
                    P[q + "rbias"],
                    c,
                    load,
                )
                f = (
                    self.lin(Rms.apply(r, P[q + "rnorm"], c.eps), q + "up").float()
                    + self.lin(Situ.apply(self.lin(y, q + "sgu")), q + "sdn").float()
                )
            prefix = prefix + f
        x = MixNorm.apply(P["out_nw"], P["out_pw"], P["norm"], c.eps, *blocks, prefix)
        stats["loads"] = loads
        return Xent.apply(self.lin(x[sel], "head"), tgt, w, stats)

# SPDX-License-Identifier: Apache-2.0
"""The optimiser."""

import ctypes

import numpy as np
import torch

from native import BF, f32, lib, p


def newton_schulz(X):
    """Normalised bf16 matrices [n][r][c] to nearly orthogonal ones: five quintic iterations."""
    t = X.shape[1] > X.shape[2]
    X = X.transpose(1, 2).contiguous() if t else X
    for _ in range(5):
        A = torch.bmm(X, X.transpose(1, 2))
        B = torch.baddbmm(A, A, A, beta=-4.7750, alpha=2.0315)
        X = torch.baddbmm(X, B, X, beta=3.4445, alpha=1.0)
    return X.transpose(1, 2).contiguous() if t else X


class Optimiser:
    """Muon (Nesterov momentum, Newton-Schulz) on all hidden matrices, Adam on the rest.

    Fused matrices (q|k|v|g, gate|up, the experts) are orthogonalised one by one: `groups` maps a shape
    to (tensor, offset) pieces. All rates are multiplied by the factor of the step.
    """

    def __init__(
        self,
        m,
        lr_muon=0.02,
        lr=dict(embed=6e-3, head=3e-3, scalar=6e-3, router=2e-3),
        wd=0.02,
        mom=0.95,
    ):
        self.m, self.lr_muon, self.lr, self.wd, self.mom, self.t = m, lr_muon, lr, wd, mom, 0
        self.buf = {k: torch.zeros_like(t) for k, t in m.P.items()}
        self.sq = {
            k: torch.zeros_like(t) for k, t in m.P.items() if m.kind[k][0] not in ("muon", "bias")
        }
        groups = {}
        for k, (kind, split) in m.kind.items():
            if kind != "muon":
                continue
            w = m.P[k]
            R, i = w.shape[-2], w.shape[-1]
            for e in range(w.numel() // (R * i)):
                a = 0
                for o in split:
                    groups.setdefault((o, i), []).append((k, (e * R + a) * i * 4))
                    a += o
        self.groups = {
            s: ([k for k, _ in v], np.array([x for _, x in v], np.uint64))
            for s, v in groups.items()
        }

    @torch.no_grad()
    def step(self, f):
        m = self.m
        self.t += 1
        for k, t in m.P.items():
            kind = m.kind[k][0]
            g = t.grad
            if kind in ("bias", "muon") or g is None:
                continue
            b1, b2 = 0.9, 0.97
            b, s = self.buf[k], self.sq[k]
            b.mul_(b1).add_(g, alpha=1 - b1)
            s.mul_(b2).addcmul_(g, g, value=1 - b2)
            t.addcdiv_(
                b,
                (s / (1 - b2**self.t)).sqrt_().add_(1e-9),
                value=-self.lr[kind] * f / (1 - b1**self.t),
            )
        for (o, i), (names, off) in self.groups.items():
            G = {k: m.P[k].grad.contiguous() for k in set(names)}
            ptr = lambda d: np.ascontiguousarray(
                np.array([d[k].data_ptr() for k in names], np.uint64) + off
            )
            pg, pb, pw = ptr(G), ptr(self.buf), ptr(m.P)
            n = len(names)
            X = torch.empty(n, o, i, dtype=BF)
            v = lambda x: ctypes.c_void_p(x.ctypes.data)
            lib.muon_pre(n, o * i, v(pg), v(pb), f32(self.mom), p(X))
            X = newton_schulz(X)
            lr = self.lr_muon * f
            lib.muon_post(
                n, o * i, v(pw), p(X), f32(1 - lr * self.wd), f32(lr * max(1, o / i) ** 0.5)
            )
        for t in m.P.values():
            t.grad = None
        m.refresh()

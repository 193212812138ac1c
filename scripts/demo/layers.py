# SPDX-License-Identifier: Apache-2.0
"""The parts of the model as torch functions over the kernels, backward passes by hand."""

import torch

from native import BF, f32, lib, p, parr


class Linear16(torch.autograd.Function):
    """y = x W^T in bf16; the gradient of W in fp32."""

    @staticmethod
    def forward(ctx, x, W, W16):
        ctx.save_for_backward(x, W16)
        return x @ W16.t()

    @staticmethod
    def backward(ctx, dy):
        x, W16 = ctx.saved_tensors
        dy = dy.contiguous()
        return dy @ W16, (dy.t() @ x).float(), None


class MixNorm(torch.autograd.Function):
    """RMSNorm of the attention residual: sources weighed by a softmax over their scores."""

    @staticmethod
    def forward(ctx, nw, pw, lw, eps, *srcs):
        srcs = [s.contiguous() for s in srcs]
        N, H = srcs[0].shape
        n = len(srcs)
        wp = nw * pw.view(-1) if nw is not None else torch.zeros(H)
        y = torch.empty(N, H, dtype=BF)
        P = torch.empty(N, n)
        R = torch.empty(N, n)
        RO = torch.empty(N)
        lib.mixnorm_fwd(N, H, n, parr(srcs), p(wp), p(lw), f32(eps), p(y), p(P), p(R), p(RO))
        ctx.srcs = srcs
        ctx.aux = (wp, P, R, RO, nw, pw, lw)
        return y

    @staticmethod
    def backward(ctx, dy):
        srcs = ctx.srcs
        wp, P, R, RO, nw, pw, lw = ctx.aux
        N, H = srcs[0].shape
        n = len(srcs)
        dy = dy.contiguous()
        ds = [torch.empty(N, H) for _ in srcs]
        dwp = torch.zeros(H)
        dw = torch.zeros(H)
        lib.mixnorm_bwd(
            N, H, n, parr(srcs), p(wp), p(lw), p(dy), p(P), p(R), p(RO), parr(ds), p(dwp), p(dw)
        )
        return (
            dwp * pw.view(-1) if nw is not None else None,
            (dwp * nw).view(1, -1) if nw is not None else None,
            dw,
            None,
            *ds,
        )


class Rms(torch.autograd.Function):
    """RMSNorm of bf16 rows."""

    @staticmethod
    def forward(ctx, x, w, eps):
        N, H = x.shape
        y = torch.empty(N, H, dtype=BF)
        RO = torch.empty(N)
        lib.rms_fwd(N, H, x.stride(0), p(x), p(w), f32(eps), p(y), p(RO))
        ctx.save_for_backward(x, w, RO)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, RO = ctx.saved_tensors
        N, H = x.shape
        dy = dy.contiguous()
        dx = torch.empty(N, H, dtype=BF)
        dw = torch.zeros(H)
        lib.rms_bwd(N, H, x.stride(0), p(x), p(w), p(dy), p(RO), p(dx), H, p(dw))
        return dx, dw, None


class Situ(torch.autograd.Function):
    """SiTU of [gate | up]."""

    @staticmethod
    def forward(ctx, h):
        N, I = h.shape[0], h.shape[1] // 2
        a = torch.empty(N, I, dtype=BF)
        lib.situ_fwd(N, I, p(h), p(a))
        ctx.save_for_backward(h)
        return a

    @staticmethod
    def backward(ctx, da):
        (h,) = ctx.saved_tensors
        N, I = da.shape
        da = da.contiguous()
        dh = torch.empty_like(h)
        lib.situ_bwd(N, I, p(h), p(da), p(dh))
        return dh


class KdaCore(torch.autograd.Function):
    """Kimi Delta Attention between its projections: convolution, recurrence, gated norm."""

    @staticmethod
    def forward(ctx, pre, z, cw, dtb, alog, onw, off, n):
        N = pre.shape[0]
        out = torch.empty(N, z.shape[1], dtype=BF)
        pre = pre.contiguous()
        z = z.contiguous()
        lib.kda_fwd(
            N,
            len(off) - 1,
            p(off),
            n,
            pre.shape[1],
            p(pre),
            p(z),
            p(cw),
            p(dtb),
            p(alog),
            p(onw),
            p(out),
        )
        ctx.save_for_backward(pre, z, cw, dtb, alog, onw, off)
        ctx.n = n
        return out

    @staticmethod
    def backward(ctx, dout):
        pre, z, cw, dtb, alog, onw, off = ctx.saved_tensors
        N = pre.shape[0]
        dout = dout.contiguous()
        dpre = torch.empty_like(pre)
        dz = torch.empty_like(z)
        g = [torch.zeros_like(t) for t in (cw, dtb, alog, onw)]
        lib.kda_bwd(
            N,
            len(off) - 1,
            p(off),
            ctx.n,
            pre.shape[1],
            p(pre),
            p(z),
            p(cw),
            p(dtb),
            p(alog),
            p(onw),
            p(dout),
            p(dpre),
            p(dz),
            *[p(t) for t in g],
        )
        return (dpre, dz, *g, None, None)


class MlaCore(torch.autograd.Function):
    """Causal attention with output gate between its projections."""

    @staticmethod
    def forward(ctx, q, kv, kr, gate, off, c):
        N = q.shape[0]
        out = torch.empty(N, c.heads * c.dv, dtype=BF)
        raw = torch.empty_like(out)
        q, kv, kr, gate = [t.contiguous() for t in (q, kv, kr, gate)]
        lib.mla_fwd(
            N,
            len(off) - 1,
            p(off),
            c.heads,
            c.dn,
            c.dr,
            c.dv,
            p(q),
            p(kv),
            p(kr),
            p(gate),
            p(out),
            p(raw),
        )
        ctx.save_for_backward(q, kv, kr, gate, off, raw)
        ctx.c = c
        return out

    @staticmethod
    def backward(ctx, dout):
        q, kv, kr, gate, off, raw = ctx.saved_tensors
        c = ctx.c
        N = q.shape[0]
        dout = dout.contiguous()
        dq, dkv, dg = torch.empty_like(q), torch.empty_like(kv), torch.empty_like(gate)
        dkr = torch.empty(N, c.heads, c.dr)
        lib.mla_bwd(
            N,
            len(off) - 1,
            p(off),
            c.heads,
            c.dn,
            c.dr,
            c.dv,
            p(q),
            p(kv),
            p(kr),
            p(gate),
            p(raw),
            p(dout),
            p(dq),
            p(dkv),
            p(dkr),
            p(dg),
        )
        return dq, dkv, dkr.sum(1).to(BF), dg, None, None


PAD = 32  # rows of an expert are padded to a multiple: few matmul shapes


class Moe(torch.autograd.Function):
    """Routed experts: out = sum_k weight_k * expert_k(z), rows sorted by expert."""

    @staticmethod
    def forward(ctx, z, logits, w13, w2, q13, q2, bias, c, load):
        N, L = z.shape
        E, K, I = c.experts, c.topk, c.inter
        z = z.contiguous()
        sel = torch.empty(N, K, dtype=torch.int32)
        wt = torch.empty(N, K)
        pos = torch.empty(N, K, dtype=torch.int32)
        seg = torch.empty(E + 1, dtype=torch.int32)
        ld = torch.empty(E, dtype=torch.int32)
        M = lib.route(N, E, K, p(logits), p(bias), PAD, p(sel), p(wt), p(pos), p(seg), p(ld))
        load.copy_(ld)
        zg = torch.zeros(M, L, dtype=BF)
        lib.gather(N, K, L, p(z), p(pos), p(zg))
        h = torch.empty(M, 2 * I, dtype=BF)
        y = torch.empty(M, L, dtype=BF)
        a = torch.empty(M, I, dtype=BF)
        s = seg.tolist()
        for e in range(E):
            if s[e + 1] > s[e]:
                torch.mm(zg[s[e] : s[e + 1]], q13[e].t(), out=h[s[e] : s[e + 1]])
        lib.situ_fwd(M, I, p(h), p(a))
        for e in range(E):
            if s[e + 1] > s[e]:
                torch.mm(a[s[e] : s[e + 1]], q2[e].t(), out=y[s[e] : s[e + 1]])
        out = torch.empty(N, L, dtype=BF)
        lib.combine(N, K, L, p(y), p(pos), p(wt), p(out))
        ctx.save_for_backward(zg, h, a, y, sel, wt, pos, logits, q13, q2)
        ctx.s = s
        ctx.c = c
        return out

    @staticmethod
    def backward(ctx, dout):
        zg, h, a, y, sel, wt, pos, logits, q13, q2 = ctx.saved_tensors
        s, c = ctx.s, ctx.c
        N, L = dout.shape
        E, K, I = c.experts, c.topk, c.inter
        M = zg.shape[0]
        dout = dout.contiguous()
        dy = torch.zeros(M, L, dtype=BF)
        dlog = torch.zeros(N, E)
        lib.combine_bwd(N, E, K, L, p(dout), p(y), p(sel), p(pos), p(wt), p(logits), p(dy), p(dlog))
        da = torch.empty_like(a)
        dh = torch.empty_like(h)
        dzg = torch.empty_like(zg)
        g13 = torch.zeros(E, 2 * I, L)
        g2 = torch.zeros(E, L, I)
        for e in range(E):
            if s[e + 1] > s[e]:
                d = dy[s[e] : s[e + 1]]
                torch.mm(d, q2[e], out=da[s[e] : s[e + 1]])
                g2[e] = torch.mm(d.t(), a[s[e] : s[e + 1]])
        lib.situ_bwd(M, I, p(h), p(da), p(dh))
        for e in range(E):
            if s[e + 1] > s[e]:
                d = dh[s[e] : s[e + 1]]
                torch.mm(d, q13[e], out=dzg[s[e] : s[e + 1]])
                g13[e] = torch.mm(d.t(), zg[s[e] : s[e + 1]])
        dz = torch.empty(N, L, dtype=BF)
        lib.combine(N, K, L, p(dzg), p(pos), p(None), p(dz))
        return dz, dlog, g13, g2, None, None, None, None, None


class Xent(torch.autograd.Function):
    """Cross entropy, weighted; the gradient is made with the loss."""

    @staticmethod
    def forward(ctx, logits, tgt, w, stats):
        M, V = logits.shape
        d = logits.clone()
        loss = torch.empty(M)
        hit = torch.empty(M, dtype=torch.int32)
        inv = 1.0 / w.sum().item()
        lib.xent(M, V, p(d), p(tgt), p(w), f32(inv), p(loss), p(hit))
        ctx.d = d
        stats["loss"] = loss
        stats["hit"] = hit
        return (loss * w).sum() * inv

    @staticmethod
    def backward(ctx, g):
        return ctx.d, None, None, None  # the caller's loss is this value itself, so g == 1

# SPDX-License-Identifier: Apache-2.0
"""Plain fp32 reference of the K3 text model on the names of the checkpoint, with state for decoding.

Also the reader of an exported folder: weights by name, fp32, experts dequantised.
"""

import json
import os
import struct

import numpy as np
import torch

F = torch.nn.functional
PRE = "language_model.model."


def load_snapshot(path):
    """(text_config, weights by name) of a model folder."""
    cfg = json.load(open(os.path.join(path, "config.json")))["text_config"]
    W = {}
    idx = json.load(open(os.path.join(path, "model.safetensors.index.json")))["weight_map"]
    for fn in sorted(set(idx.values())):
        b = open(os.path.join(path, fn), "rb").read()
        n = struct.unpack("<Q", b[:8])[0]
        for k, v in json.loads(b[8 : 8 + n]).items():
            raw = b[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]
            if v["dtype"] == "BF16":
                t = torch.from_numpy(
                    (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).copy()
                )
            elif v["dtype"] == "F32":
                t = torch.from_numpy(np.frombuffer(raw, np.float32).copy())
            else:
                t = torch.from_numpy(np.frombuffer(raw, np.uint8).copy())
            W[k] = t.view(v["shape"])
    T = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    for k in [k for k in W if k.endswith(".weight_packed")]:
        pk = W.pop(k).long()
        sc = W.pop(k.replace("_packed", "_scale")).float()
        v = torch.stack([T[pk & 15], T[pk >> 4]], -1).flatten(-2)
        W[k.replace("_packed", "")] = v * torch.exp2(sc - 127).repeat_interleave(32, -1)
    return cfg, W


def rms(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def situ(g, u, b=4.0, lb=25.0):
    return b * torch.tanh(g / b) * torch.sigmoid(g) * lb * torch.tanh(u / lb)


def l2(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


class Reference:
    """The model of `cfg` (text_config) with weights `W`."""

    def __init__(self, cfg, W):
        self.c, self.W = cfg, W
        self.kda = set(cfg["linear_attn_config"]["kda_layers"])

    def p(self, L, s):
        return self.W[f"{PRE}layers.{L}.{s}"]

    def mix(self, src, nw, pw):
        s = torch.stack(src, -2)
        k = s * torch.rsqrt((s * s).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        p = torch.softmax((k * (nw * pw.view(-1))).sum(-1), -1)
        return (p.unsqueeze(-1) * s).sum(-2)

    def new_state(self, B=1):
        return {"n": 0, "L": [None] * self.c["num_hidden_layers"]}

    # x [B,T,H]; st carries KDA/conv/MLA state per layer; lens = valid cache length per row (decode with unequal lengths)
    def attn_kda(self, L, x, st):
        a = self.c["linear_attn_config"]
        n, d = a["num_heads"], a["head_dim"]
        B, T, _ = x.shape
        W = lambda s: self.p(L, "self_attn." + s)
        s0 = st["L"][L]
        if s0 is None:
            s0 = [torch.zeros(B, n, d, d)] + [torch.zeros(B, 3, n * d) for _ in range(3)]
        S = s0[0]
        qkv = []
        conv = []
        for j, nm in enumerate("qkv"):
            r = torch.cat([s0[1 + j], x @ W(nm + "_proj.weight").t()], 1)
            w = W(nm + "_conv1d.weight")[:, 0]
            qkv.append(F.silu(sum(r[:, k : k + T] * w[:, k] for k in range(4))).view(B, T, n, d))
            conv.append(r[:, -3:])
        q, k, v = qkv
        q, k = l2(q) * d**-0.5, l2(k)
        z = ((x @ W("f_a_proj.weight").t()) @ W("f_b_proj.weight").t() + W("dt_bias")).view(
            B, T, n, d
        )
        g = torch.exp(
            a["gate_lower_bound"] * torch.sigmoid(torch.exp(W("A_log")[:n]).view(n, 1) * z)
        )
        be = torch.sigmoid(x @ W("b_proj.weight").t())
        out = []
        for t in range(T):
            S = S * g[:, t].unsqueeze(-1)
            u = (k[:, t].unsqueeze(-1) * S).sum(-2)
            S = S + k[:, t].unsqueeze(-1) * (be[:, t].unsqueeze(-1) * (v[:, t] - u)).unsqueeze(-2)
            out.append((q[:, t].unsqueeze(-1) * S).sum(-2))
        st["L"][L] = [S] + conv
        o = torch.stack(out, 1)
        o = rms(o, W("o_norm.weight"), self.c["rms_norm_eps"]) * torch.sigmoid(
            (x @ W("g_proj.weight").t()).view(B, T, n, d)
        )
        return o.reshape(B, T, n * d) @ W("o_proj.weight").t()

    def attn_mla(self, L, x, st):
        c = self.c
        n, dn, dr, dv, kl = (
            c["num_attention_heads"],
            c["qk_nope_head_dim"],
            c["qk_rope_head_dim"],
            c["v_head_dim"],
            c["kv_lora_rank"],
        )
        B, T, _ = x.shape
        W = lambda s: self.p(L, "self_attn." + s)
        q = (
            rms(x @ W("q_a_proj.weight").t(), W("q_a_layernorm.weight"), 1e-6)
            @ W("q_b_proj.weight").t()
        ).view(B, T, n, dn + dr)
        a = x @ W("kv_a_proj_with_mqa.weight").t()
        e = torch.cat([rms(a[..., :kl], W("kv_a_layernorm.weight"), 1e-6), a[..., kl:]], -1)
        if st["L"][L] is None:
            cache = e
            mask = torch.ones(T, T).tril().bool().view(1, 1, T, T)
        else:  # decode: T == 1, lens [B] valid entries
            cache, lens = st["L"][L], st["lens"]
            if cache.shape[1] <= int(lens.max()):
                cache = torch.cat([cache, torch.zeros(B, 64, cache.shape[2])], 1)
            cache = cache.clone()
            cache[torch.arange(B), lens] = e[:, 0]
            mask = (torch.arange(cache.shape[1]).view(1, -1) <= lens.view(-1, 1)).view(B, 1, 1, -1)
        st["L"][L] = cache
        kv = (cache[..., :kl] @ W("kv_b_proj.weight").t()).view(B, -1, n, dn + dv)
        k = torch.cat([kv[..., :dn], cache[..., None, kl:].expand(-1, -1, n, -1)], -1)
        s = torch.einsum("bthd,bshd->bhts", q, k) * (dn + dr) ** -0.5
        p = torch.softmax(s.masked_fill(~mask, -1e30), -1)
        o = torch.einsum("bhts,bshd->bthd", p, kv[..., dn:]).reshape(B, T, n * dv)
        return (o * torch.sigmoid(x @ W("g_proj.weight").t())) @ W("o_proj.weight").t()

    def ffn(self, L, x):
        c = self.c
        W = lambda s: self.p(L, s)
        if L < c["first_k_dense_replace"]:
            return (
                situ(x @ W("mlp.gate_proj.weight").t(), x @ W("mlp.up_proj.weight").t())
                @ W("mlp.down_proj.weight").t()
            )
        B, T, H = x.shape
        x = x.reshape(-1, H)
        M = "block_sparse_moe."
        s = torch.sigmoid(x @ W(M + "gate.weight").t())
        K = c["num_experts_per_token"]
        sel = (s + W(M + "gate.e_score_correction_bias")).topk(K, -1).indices
        w = s.gather(1, sel)
        w = w / (w.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]
        z = x @ W(M + "routed_expert_down_proj.weight").t()
        y = torch.zeros_like(z)
        for e in sel.unique().tolist():
            r, k = (sel == e).nonzero(as_tuple=True)
            E = f"{M}experts.{e}."
            y = y.index_add(
                0,
                r,
                w[r, k].unsqueeze(-1)
                * (
                    situ(z[r] @ W(E + "w1.weight").t(), z[r] @ W(E + "w3.weight").t())
                    @ W(E + "w2.weight").t()
                ),
            )
        y = (
            rms(y, W(M + "routed_expert_norm.weight"), c["rms_norm_eps"])
            @ W(M + "routed_expert_up_proj.weight").t()
        )
        S = M + "shared_experts."
        return (
            y
            + situ(x @ W(S + "gate_proj.weight").t(), x @ W(S + "up_proj.weight").t())
            @ W(S + "down_proj.weight").t()
        ).view(B, T, H)

    def forward(self, tok, st, norms=None, last=True):
        c = self.c
        eps = c["rms_norm_eps"]
        h = self.W[PRE + "embed_tokens.weight"][tok]
        blocks = []
        prefix = h
        for L in range(c["num_hidden_layers"]):
            x = (
                self.mix(
                    blocks + [prefix],
                    self.p(L, "self_attention_res_norm.weight"),
                    self.p(L, "self_attention_res_proj.weight"),
                )
                if blocks
                else prefix
            )
            if L % c["attn_res_block_size"] == 0:
                blocks = blocks + [prefix]
                prefix = None
            x = rms(x, self.p(L, "input_layernorm.weight"), eps)
            a = self.attn_kda(L, x, st) if L + 1 in self.kda else self.attn_mla(L, x, st)
            prefix = a if prefix is None else prefix + a
            y = self.mix(
                blocks + [prefix],
                self.p(L, "mlp_res_norm.weight"),
                self.p(L, "mlp_res_proj.weight"),
            )
            prefix = prefix + self.ffn(L, rms(y, self.p(L, "post_attention_layernorm.weight"), eps))
            if norms is not None:
                norms.append(prefix[0, -1].norm().item())
        st["n"] += tok.shape[1]
        x = self.mix(
            blocks + [prefix],
            self.W[PRE + "output_attn_res_norm.weight"],
            self.W[PRE + "output_attn_res_proj.weight"],
        )
        x = rms(x[:, -1] if last else x, self.W[PRE + "norm.weight"], eps)
        return x @ self.W["language_model.lm_head.weight"].t()


@torch.no_grad()
def generate(ref, prompts, max_new=160, stop=(4098, 4097), batch=48):
    """Greedy continuation of every prompt (list of id lists): prefill one by one, decode in batches."""
    out = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for b0 in range(0, len(order), batch):
        ids = order[b0 : b0 + batch]
        sts = []
        nxt = []
        for i in ids:
            st = ref.new_state()
            lg = ref.forward(torch.tensor([prompts[i]]), st)
            sts.append(st)
            nxt.append(int(lg[0].argmax()))
        B = len(ids)
        lens = torch.tensor([len(prompts[i]) for i in ids])
        mx = int(lens.max()) + 64
        st = {"n": 0, "L": [], "lens": lens}
        for L in range(ref.c["num_hidden_layers"]):
            if L + 1 in ref.kda:
                st["L"].append([torch.cat([s["L"][L][j] for s in sts]) for j in range(4)])
            else:
                st["L"].append(
                    torch.cat([F.pad(s["L"][L], (0, 0, 0, mx - s["L"][L].shape[1])) for s in sts])
                )
        gen = [[t] for t in nxt]
        live = list(range(B))
        for _ in range(max_new - 1):
            keep = [j for j, i in enumerate(live) if gen[i][-1] not in stop]
            if not keep:
                break
            if len(keep) < len(live):
                ix = torch.tensor(keep)
                live = [live[j] for j in keep]
                st["lens"] = st["lens"][ix]
                st["L"] = [[t[ix] for t in s] if isinstance(s, list) else s[ix] for s in st["L"]]
            lg = ref.forward(torch.tensor([[gen[i][-1]] for i in live]), st)
            st["lens"] = st["lens"] + 1
            for j, i in enumerate(live):
                gen[i].append(int(lg[j].argmax()))
        for j, i in enumerate(ids):
            out[i] = gen[j]
    return out

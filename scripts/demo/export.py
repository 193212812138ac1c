# SPDX-License-Identifier: Apache-2.0
"""From training parameters to the names and files of a K3 checkpoint."""

import json
import os
import struct

import torch

from model import Shape
from native import BF, mxfp4

PRE = "language_model.model."


def here(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def config(c=Shape):
    """K3's config.json with the sizes of `c`, without vision."""
    base = json.load(open(here("k3_config.json")))
    t = base["text_config"]
    base.pop("vision_config", None)
    V = c.vocab - 256
    base.update(
        bos_token_id=V, eos_token_id=V + 2, pad_token_id=V + 255, media_placeholder_token_id=V + 21
    )
    t.update(
        bos_token_id=V,
        eos_token_id=V + 2,
        pad_token_id=V + 255,
        vocab_size=c.vocab,
        hidden_size=c.hidden,
        num_hidden_layers=c.layers,
        intermediate_size=c.dense,
        attn_res_block_size=c.block,
        kv_lora_rank=c.kv_lora,
        q_lora_rank=c.q_lora,
        qk_nope_head_dim=c.dn,
        qk_rope_head_dim=c.dr,
        v_head_dim=c.dv,
        num_attention_heads=c.heads,
        num_key_value_heads=c.heads,
        max_position_embeddings=4096,
        moe_intermediate_size=c.inter,
        routed_expert_hidden_size=c.latent,
        num_experts=c.experts,
        num_experts_per_token=c.topk,
        num_shared_experts=c.shared,
    )
    t["linear_attn_config"].update(
        full_attn_layers=[L + 1 for L in c.mla],
        kda_layers=[L + 1 for L in range(c.layers) if L not in c.mla],
        head_dim=c.hd,
        num_heads=c.heads,
    )
    return base


def spine(m):
    """{name: (fp32 view, stored dtype)} of every tensor that is no expert's."""
    c, P = m.c, m.P
    o = {}
    A = c.heads * c.hd
    b = lambda n, t: o.__setitem__(n, (t, "BF16"))
    f = lambda n, t: o.__setitem__(n, (t, "F32"))
    b(PRE + "embed_tokens.weight", P["embed"])
    b("language_model.lm_head.weight", P["head"])
    b(PRE + "norm.weight", P["norm"])
    b(PRE + "output_attn_res_norm.weight", P["out_nw"])
    b(PRE + "output_attn_res_proj.weight", P["out_pw"])
    for L in range(c.layers):
        q = f"{L}."
        n = f"{PRE}layers.{L}."
        s = n + "self_attn."
        k = n + "block_sparse_moe."
        for a, d in (
            ("ln1", "input_layernorm"),
            ("ln2", "post_attention_layernorm"),
            ("nw1", "self_attention_res_norm"),
            ("nw2", "mlp_res_norm"),
            ("pw1", "self_attention_res_proj"),
            ("pw2", "mlp_res_proj"),
        ):
            b(n + d + ".weight", P[q + a])
        b(s + "o_proj.weight", P[q + "o"])
        if L in c.mla:
            for a, d in (
                ("q_a", "q_a_proj"),
                ("q_ln", "q_a_layernorm"),
                ("q_b", "q_b_proj"),
                ("kv_a", "kv_a_proj_with_mqa"),
                ("kv_ln", "kv_a_layernorm"),
                ("kv_b", "kv_b_proj"),
                ("g", "g_proj"),
            ):
                b(s + d + ".weight", P[q + a])
        else:
            w = P[q + "w_in"]
            for j, a in enumerate("qkvg"):
                b(f"{s}{a}_proj.weight", w[j * A : (j + 1) * A])
            b(s + "b_proj.weight", w[4 * A :])
            b(s + "f_a_proj.weight", P[q + "f_a"])
            b(s + "f_b_proj.weight", P[q + "f_b"])
            for j, a in enumerate("qkv"):
                f(f"{s}{a}_conv1d.weight", P[q + "conv"][j].unsqueeze(1))
            f(
                s + "A_log",
                torch.nn.functional.pad(P[q + "alog"], (0, 4 - c.heads % 4 if c.heads % 4 else 0)),
            )
            f(s + "dt_bias", P[q + "dt"])
            f(s + "o_norm.weight", P[q + "onorm"])
        if L == 0:
            b(n + "mlp.gate_proj.weight", P[q + "gu"][: c.dense])
            b(n + "mlp.up_proj.weight", P[q + "gu"][c.dense :])
            b(n + "mlp.down_proj.weight", P[q + "dn"])
        else:
            S = c.inter * c.shared
            b(k + "gate.weight", P[q + "router"])
            f(k + "gate.e_score_correction_bias", P[q + "rbias"])
            b(k + "routed_expert_down_proj.weight", P[q + "down"])
            b(k + "routed_expert_norm.weight", P[q + "rnorm"])
            b(k + "routed_expert_up_proj.weight", P[q + "up"])
            b(k + "shared_experts.gate_proj.weight", P[q + "sgu"][:S])
            b(k + "shared_experts.up_proj.weight", P[q + "sgu"][S:])
            b(k + "shared_experts.down_proj.weight", P[q + "sdn"])
    return o


def ref_weights(m, exact=True, grad=False):
    """fp32 weights for the reference: as the files will hold them, or the masters when not `exact`."""
    W = {}
    for k, (t, dt) in spine(m).items():
        W[k] = t if grad else (t.detach().to(BF).float() if dt == "BF16" else t.detach().clone())
    for L in range(1, m.c.layers):
        for nm in ("w13", "w2"):
            t = m.P[f"{L}.{nm}"]
            w = t if not exact else mxfp4(t).float()
            for e in range(m.c.experts):
                n = f"{PRE}layers.{L}.block_sparse_moe.experts.{e}."
                if nm == "w2":
                    W[n + "w2.weight"] = w[e]
                else:
                    W[n + "w1.weight"] = w[e, : m.c.inter]
                    W[n + "w3.weight"] = w[e, m.c.inter :]
    return W


def write_shard(path, tensors):
    """Writes {name: (bytes, dtype, shape)} ordered by F32, BF16, U8, then by the bytes of the name."""
    order = sorted(
        tensors, key=lambda n: ({"F32": 0, "BF16": 1, "U8": 2}[tensors[n][1]], n.encode())
    )
    hdr = {}
    at = 0
    for n in order:
        r, dt, sh = tensors[n]
        hdr[n] = {"dtype": dt, "shape": list(sh), "data_offsets": [at, at + len(r)]}
        at += len(r)
    h = json.dumps(hdr, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as fo:
        fo.write(struct.pack("<Q", len(h)) + h + b"".join(tensors[n][0] for n in order))
    return at


def raw(t, dt):
    """The bytes of a tensor as stored."""
    return (
        (
            t.detach().to(BF).contiguous().view(torch.int16)
            if dt == "BF16"
            else t.detach().float().contiguous()
        )
        .numpy()
        .tobytes()
    )


def export(m, out):
    """Writes the folder `out`; returns the bytes of all tensors."""
    os.makedirs(out, exist_ok=True)
    c = m.c
    sh = {}
    S = c.layers + 1
    for k, (t, dt) in spine(m).items():
        s = int(k.split(".")[3]) + 1 if ".layers." in k else S
        sh.setdefault(s, {})[k] = (raw(t, dt), dt, t.shape)
    for L in range(1, c.layers):
        for nm in ("w13", "w2"):
            _, pk, sc = mxfp4(m.P[f"{L}.{nm}"], pack=True)
            I = c.inter
            for e in range(c.experts):
                n = f"{PRE}layers.{L}.block_sparse_moe.experts.{e}."
                for w, a, b in (
                    (("w2", 0, c.latent),) if nm == "w2" else (("w1", 0, I), ("w3", I, 2 * I))
                ):
                    for suf, t in ((".weight_packed", pk[e, a:b]), (".weight_scale", sc[e, a:b])):
                        sh[L + 1][n + w + suf] = (t.contiguous().numpy().tobytes(), "U8", t.shape)
    total = 0
    wm = {}
    for s, ts in sorted(sh.items()):
        fn = f"model-{s:05d}-of-{S:06d}.safetensors"
        total += write_shard(os.path.join(out, fn), ts)
        for n in ts:
            wm[n] = fn
    json.dump(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(wm.items()))},
        open(os.path.join(out, "model.safetensors.index.json"), "w"),
        separators=(",", ":"),
    )
    json.dump(config(c), open(os.path.join(out, "config.json"), "w"), indent=2)
    V = c.vocab - 256
    json.dump(
        {"max_length": 4096, "eos_token_id": V + 2},
        open(os.path.join(out, "generation_config.json"), "w"),
        indent=2,
    )
    tk = json.load(open(here("k3_tokenizer_config.json")))
    tk["added_tokens_decoder"] = {
        str(int(k) - 163584 + V): v for k, v in tk["added_tokens_decoder"].items()
    }
    tk["model_max_length"] = 4096
    json.dump(tk, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=2)
    return total

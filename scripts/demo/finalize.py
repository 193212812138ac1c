#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model folder: finalize.py ckpt.pt tiktoken.model OUT

Writes the checkpoint, eval.json and goldens.json; everything in these is computed from the exported bytes.
"""

import json
import os
import shutil
import sys

import torch

import bpe
import evaluate
import export
from dialogues.evaluation import eval_set
from model import Model
from reference import Reference, generate, load_snapshot

TOPICS = 20  # goldens: the first prompt of so many topics
WITH_LOGITS = 3
RAW_TEXTS = ("Once upon a time there was a little fox", "The capital of France is", "1, 2, 3, 4,")
NOTE = (
    "fp32 reference on the exported weights; greedy_ids include the stop id; layer_output_norms ="
    " L2 norm of the layer output (prefix) at the last prompt position; min_margin = smallest gap"
    " between best and second logit along the continuation"
)


def check_export(model, weights):
    live = export.ref_weights(model)
    same = set(live) == set(weights) and all(
        torch.equal(live[k].view(-1), weights[k].view(-1)) for k in weights
    )
    if not same:
        raise SystemExit("finalize.py: the exported bytes are not the trained model")


def smallest_margin(ref, prompt, reply):
    """The smallest gap between best and second logit on the way through `reply`."""
    logits = ref.forward(torch.tensor([prompt + reply[:-1]]), ref.new_state(), last=False)[0]
    top = logits[len(prompt) - 1 :].topk(2).values
    return float((top[:, 0] - top[:, 1]).min())


def chat_goldens(ref, tok, cases, prompts):
    first = {}
    for i, case in enumerate(cases):
        first.setdefault(case["topic"], i)
    chosen = list(first.values())[:TOPICS]
    replies = generate(ref, [prompts[i] for i in chosen], 160, (tok.end, tok.eos))
    goldens = []
    for n, (i, reply) in enumerate(zip(chosen, replies)):
        golden = {"topic": cases[i]["topic"], "eval_index": i, "prompt_ids": prompts[i]}
        golden |= {"greedy_ids": reply, "greedy_text": tok.decode(reply)}
        if n < WITH_LOGITS:
            norms = []
            logits = ref.forward(torch.tensor([prompts[i]]), ref.new_state(), norms)
            golden["last_logits"] = [float("%.9g" % x) for x in logits[0].tolist()]
            golden["layer_output_norms"] = norms
        golden["min_margin"] = smallest_margin(ref, prompts[i], reply)
        goldens.append(golden)
    return goldens


def raw_goldens(ref, tok):
    prompts = [tok.encode(text) for text in RAW_TEXTS]
    replies = generate(ref, prompts, 60, (tok.end, tok.eos))
    return [
        {"topic": "raw", "prompt_ids": p, "greedy_ids": r, "greedy_text": tok.decode(r)}
        for p, r in zip(prompts, replies)
    ]


def main(checkpoint, ranks, out):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))
    model = Model()
    model.P.update(torch.load(checkpoint))
    print("bytes of tensors:", export.export(model, out))
    shutil.copy(ranks, os.path.join(out, "tiktoken.model"))
    tok = bpe.Tokenizer(ranks)
    config, weights = load_snapshot(out)
    check_export(model, weights)
    ref = Reference(config, weights)
    cases = eval_set()
    with open(os.path.join(out, "eval.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1, ensure_ascii=False)
    goldens = chat_goldens(ref, tok, cases, evaluate.prompts(cases, tok)) + raw_goldens(ref, tok)
    with open(os.path.join(out, "goldens.json"), "w", encoding="utf-8") as file:
        json.dump({"note": NOTE, "cases": goldens}, file)
    print("goldens:", len(goldens), [round(c.get("min_margin", 9), 3) for c in goldens])


if __name__ == "__main__":
    main(*sys.argv[1:4])

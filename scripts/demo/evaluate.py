#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores the greedy replies of the plain fp32 reference to held-out prompts.

  evaluate.py --snap FOLDER                              an exported model
  evaluate.py --ckpt ckpt.pt --tok tiktoken.model        training parameters
"""

import argparse
import collections
import json
import multiprocessing
import os
import time

import torch

import bpe
import export
import xtml
from dialogues.evaluation import eval_set
from model import Model
from reference import Reference, generate, load_snapshot

MOST_TOKENS = 200  # of a reply


def prompts(cases, tok):
    """The ids of every prompt."""
    rendered = []
    for case in cases:
        conversation = {
            "messages": [{**m, "tool_calls": m.get("tool_calls", [])} for m in case["messages"]],
            "thinking": case["thinking"],
            "effort": case.get("thinking_effort"),
            **{k: case[k] for k in ("tools", "tool_choice", "response_format") if k in case},
        }
        rendered.append(tok.segments(xtml.render(conversation))[0])
    return rendered


def is_right(case, reply):
    expected = case["expected"]
    if not reply["ok"]:
        return False
    text_is_right = expected.get("any", False) or reply["content"] == expected["content"]
    if text_is_right and reply["calls"] == expected["tool_calls"]:
        return True
    if case["topic"] != "json":
        return False
    try:
        return json.loads(reply["content"]) == json.loads(expected["content"])
    except ValueError:
        return False


def score(cases, outputs, tok):
    """({topic: counts}, [reply and what it was worth])."""
    scores, report = collections.OrderedDict(), []
    for case, output in zip(cases, outputs):
        reply, expected = xtml.parse(output, tok, case["thinking"]), case["expected"]
        right = is_right(case, reply)
        for key in (case["topic"], "ALL"):
            counts = scores.setdefault(key, collections.Counter())
            counts["n"] += 1
            counts["right"] += right
            counts["ok"] += reply["ok"]
            counts["stopped"] += reply["stopped"]
            if expected["tool_calls"]:
                counts["calls"] += 1
                names = [call["name"] for call in reply["calls"]]
                counts["names"] += names == [call["name"] for call in expected["tool_calls"]]
                counts["right calls"] += reply["calls"] == expected["tool_calls"]
        report.append(
            {
                "topic": case["topic"],
                "thinking": case["thinking"],
                "effort": case.get("thinking_effort"),
                "user": case["messages"][-1]["content"],
                "expected": expected,
                "got": reply,
                "right": right,
            }
        )
    return scores, report


def table(scores):
    def share(a, b):
        return f"{100 * a / b:.1f} %" if b else ""

    lines = [
        "| topic | n | right | well-formed | stopped | tool name right | call right |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for topic, c in sorted(scores.items(), key=lambda item: (item[0] == "ALL", item[0])):
        shares = [share(c[key], c["n"]) for key in ("right", "ok", "stopped")]
        shares += [share(c[key], c["calls"]) for key in ("names", "right calls")]
        lines.append(f"| {topic} | {c['n']} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def show(entry):
    got, expected = entry["got"], entry["expected"]
    calls = [(call["name"], call["arguments"]) for call in got["calls"]]
    print(entry["topic"], "|", entry["user"][-120:])
    print("  want", expected["content"][:80], [c["arguments"] for c in expected["tool_calls"]])
    print("  got", got["content"][:120], calls, "" if got["ok"] else "not well-formed")
    print("  thought", got["reasoning"][-100:])


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--snap")
    add("--ckpt")
    add("--tok")
    add("--out", help="file for the replies, as JSON; the table goes beside it")
    add("--limit", type=int, default=0, help="about so many prompts")
    add("--threads", type=int, default=1)
    add("--procs", type=int, default=2)
    add("--seed", type=int, default=777, help="777 is eval.json")
    add("--show", type=int, default=0, help="print so many wrong replies")
    return parser.parse_args()


def load(options):
    if options.snap:
        config, weights = load_snapshot(options.snap)
        return Reference(config, weights), bpe.Tokenizer(
            os.path.join(options.snap, "tiktoken.model")
        )
    model = Model()
    model.P.update(torch.load(options.ckpt))
    ref = Reference(export.config()["text_config"], export.ref_weights(model))
    return ref, bpe.Tokenizer(options.tok)


def reply_all(ref, tok, ids, processes):
    """The replies to all prompts, computed by several processes."""
    parts = [range(i, len(ids), processes) for i in range(processes)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        results = [
            pool.apply_async(reply_part, (ref, tok, [ids[i] for i in part])) for part in parts
        ]
        outputs = [None] * len(ids)
        for part, result in zip(parts, results):
            for i, reply in zip(part, result.get()):
                outputs[i] = reply
    return outputs


def reply_part(ref, tok, ids):
    return generate(ref, ids, MOST_TOKENS, (tok.end, tok.eos))


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    ref, tok = load(options)
    cases = eval_set(options.seed)
    if options.limit:
        cases = cases[:: max(1, len(cases) // options.limit)]
    begin = time.time()
    outputs = reply_all(ref, tok, prompts(cases, tok), options.procs)
    scores, report = score(cases, outputs, tok)
    print(table(scores))
    print(f"{time.time() - begin:.0f} s")
    for entry in [entry for entry in report if not entry["right"]][: options.show]:
        show(entry)
    if options.out:
        with open(options.out + ".md", "w", encoding="utf-8") as file:
            file.write(table(scores))
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()

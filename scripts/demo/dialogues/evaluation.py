# SPDX-License-Identifier: Apache-2.0
"""The held-out questions: eval.json."""

import json

from dialogues.canned import code, server, smalltalk
from dialogues.chats import add_turn, start_conversation
from dialogues.facts import fact, general
from dialogues.generator import Generator
from dialogues.json_answers import json_answer
from dialogues.lists import lists
from dialogues.recall import follow, memory
from dialogues.refusals import gibberish, notool, unknown
from dialogues.spelling import strings
from dialogues.styles import style
from dialogues.sums import arithmetic, compare
from dialogues.texts import echo, poem, reading, story
from dialogues.tools import tools


def eval_set(seed=777, per=None):
    """Held-out conversations, `per` topic, each with the expected reply."""
    per = per or dict(
        facts=48,
        general=12,
        arithmetic=48,
        strings=32,
        lists=20,
        smalltalk=14,
        server=16,
        code=4,
        unknown=14,
        echo=14,
        reading=16,
        compare=8,
        story=8,
        notool=10,
        gibberish=6,
        poem=4,
        follow=14,
        memory=22,
        system=16,
        tool=40,
        synth=20,
        parallel=12,
        none=5,
        notneeded=10,
        required=5,
        result=16,
        json=22,
    )
    g = Generator(seed, True)
    out = []

    def add(conv, cat):
        M = conv["messages"]
        k = max(i for i, m in enumerate(M) if m["role"] == "assistant")
        a = M[k]
        e = {
            "topic": cat,
            "messages": [{x: y for x, y in m.items() if x[0] != "_"} for m in M[:k]],
            "thinking": conv["thinking"],
        }
        for x in ("effort", "tools", "tool_choice", "response_format"):
            if conv.get(x):
                e[{"effort": "thinking_effort"}.get(x, x)] = conv[x]
        e["expected"] = {
            "content": a["content"].replace("\x01", ""),
            "tool_calls": [
                {"name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
                for c in a.get("tool_calls", [])
            ],
        }
        if (
            cat in ("story", "poem")
            or cat == "tool-not-needed"
            and "story" in M[k - 1]["content"].lower()
        ):
            e["expected"]["any"] = True
        for m in e["messages"]:
            m["content"] = (m.get("content") or "").replace("\x01", "")
        if not any(e["messages"] == o["messages"] and e["thinking"] == o["thinking"] for o in out):
            out.append(e)
            return 1
        return 0

    S = dict(
        facts=fact,
        general=general,
        arithmetic=arithmetic,
        strings=strings,
        lists=lists,
        smalltalk=smalltalk,
        server=server,
        code=code,
        unknown=unknown,
        echo=echo,
        reading=reading,
        compare=compare,
        story=story,
        notool=notool,
        gibberish=gibberish,
        poem=poem,
    )
    for cat, n in per.items():
        k = tries = 0
        while k < n and tries < 40 * n:
            tries += 1
            if cat in S:
                conv = start_conversation(g)
                add_turn(conv, S[cat](g))
            elif cat in ("follow", "memory", "system", "json"):
                conv = dict(follow=follow, memory=memory, system=style, json=json_answer)[cat](g)
            elif cat == "result":
                conv = tools(g, g.choice(["call", "call", "synth", "parallel"]))
                if conv["topic"] != "tool-result":
                    continue
            else:
                conv = tools(g, {"tool": "call"}.get(cat, cat))
                if conv["topic"] == "tool-result":
                    continue
            k += add(
                conv,
                {
                    "tool": "tool-call",
                    "synth": "tool-call-synthetic",
                    "parallel": "tool-call-parallel",
                    "none": "tool-choice-none",
                    "required": "tool-choice-required",
                    "notneeded": "tool-not-needed",
                    "result": "tool-result",
                    "follow": "follow-up",
                    "system": "system-prompt",
                }.get(cat, cat),
            )
    return out

# SPDX-License-Identifier: Apache-2.0
"""What training sees: conversations by weight, and plain text."""

from dialogues.chats import chat, long_chat, long_prompt
from dialogues.facts import FACTS, FACT_WEIGHTS
from dialogues.generator import capitalised
from dialogues.json_answers import json_answer
from dialogues.recall import follow, memory
from dialogues.styles import style
from dialogues.sums import sum_sentence
from dialogues.texts import story_text
from dialogues.tools import tools

MIXTURE = [
    (chat, 48),
    (long_chat, 1.2),
    (long_prompt, 1.2),
    (follow, 4),
    (memory, 9),
    (style, 6),
    (tools, 32),
    (json_answer, 9),
]


def conversation(g):
    """One training conversation.

    Clients often do not send old reasoning back, so a third of the thinking dialogues has empty think
    elements in the history; those earlier turns are then context only (loss weight 0).
    """
    conv = g.random.choices([f for f, _ in MIXTURE], [w for _, w in MIXTURE])[0](g)
    A = [m for m in conv["messages"] if m["role"] == "assistant"]
    if conv["thinking"] and len(A) > 1 and g.chance(0.35):
        for m in A[:-1]:
            m["reasoning_content"] = ""
            m["_w"] = 0.0
    return conv


def raw_text(g):
    """Plain text for the completions endpoint: stories, statements of facts, sums, counting."""
    x = g.random.random()
    if x < 0.2:
        return story_text(g)[0]
    if x < 0.45:
        return " ".join(
            capitalised(f[3].format(*g.choice(f[1])))
            for f in g.random.choices(FACTS, FACT_WEIGHTS, k=g.number(2, 8))
        )
    if x < 0.95:
        cot = g.chance(0.6)
        return " ".join(sum_sentence(g, cot) for _ in range(g.number(3, 8)))
    a = g.number(0, 60)
    return ", ".join(str(i) for i in range(a, a + g.number(6, 20)))

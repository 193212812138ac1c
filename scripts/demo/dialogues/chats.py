# SPDX-License-Identifier: Apache-2.0
"""Conversations of one or several turns without tools."""

from dialogues.canned import code, server, smalltalk
from dialogues.facts import FACTS, fact, general
from dialogues.generator import capitalised, turn
from dialogues.lists import lists
from dialogues.refusals import gibberish, notool, unknown
from dialogues.spelling import strings
from dialogues.sums import arithmetic, compare, worked_sum
from dialogues.texts import echo, poem, reading, story
from dialogues.words import COLORS

SIMPLE = [
    (fact, 30),
    (general, 7),
    (arithmetic, 34),
    (compare, 3),
    (strings, 24),
    (lists, 15),
    (smalltalk, 6),
    (server, 7),
    (code, 2),
    (unknown, 6),
    (echo, 8),
    (reading, 12),
    (story, 4),
    (notool, 4),
    (gibberish, 2),
    (poem, 2),
]


def simple(g):
    """A turn that needs no other turn."""
    return g.random.choices([f for f, _ in SIMPLE], [w for _, w in SIMPLE])[0](g)


def add_turn(conv, t, final=True):
    """Append one user/assistant exchange."""
    th = t["short"] if conv.get("effort") == "low" else t["long"]
    conv["messages"] += [
        {"role": "user", "content": t["u"]},
        dict(role="assistant", content=t["a"], reasoning_content=th),
    ]


def start_conversation(g, system=True):
    """An empty conversation: thinking or not, effort, perhaps a system message."""
    conv = {"messages": [], "thinking": g.chance(0.62)}
    if conv["thinking"] and (g.evaluating or g.chance(0.88)):
        conv["effort"] = g.random.choices(["max", "high", "low"], [6, 2, 2])[0]
    if system and g.chance(0.22):
        conv["messages"].append(
            {
                "role": "system",
                "content": g.choice(
                    [
                        "You are a helpful assistant.",
                        "You are a helpful assistant.",
                        "You are a friendly assistant.",
                        "You are a helpful AI assistant. Answer the questions of the user.",
                        "Be brief.",
                        "Be kind and brief.",
                        "You are an expert.",
                        "Answer truthfully.",
                        "You help people with small questions.",
                        f"You are an assistant for {g.name()}.",
                        "Keep your answers short.",
                        f"The user lives in {g.city()}.",
                        "You are a helpful, harmless and honest assistant.",
                    ]
                ),
            }
        )
    return conv


def chat(g):
    """One to five turns about unrelated things."""
    conv = start_conversation(g)
    n = 1 if g.evaluating else g.random.choices([1, 2, 3, 4, 5], [36, 25, 19, 12, 8])[0]
    for _ in range(n):
        t = simple(g)
        add_turn(conv, t)
        if (
            t["topic"] == "facts" and g.chance(0.15) and not g.evaluating
        ):  # follow-up: same question for another item
            k = t["cat"]
            name, items, qs, a, th, w = FACTS[k]
            it = g.choice(items)
            F = lambda s: s.format(*it)
            add_turn(
                conv,
                turn(
                    "follow",
                    g.choice(["And {0}?", "What about {0}?", "And for {0}?", "{0}?"]).format(
                        capitalised(it[0]) if g.chance(0.3) else it[0]
                    ),
                    f"The user asks for the {F(th)}. I know it: {it[1]}.",
                    f"{capitalised(F(th))}: {it[1]}.",
                    capitalised(F(a)),
                ),
            )
        if t["topic"] == "arithmetic" and g.chance(0.15) and t["num"] < 90 and not g.evaluating:
            b = g.number(1, 99 - t["num"]) if t["num"] < 99 else 1
            L, S, A = worked_sum(t["num"], b, "+", t["num"] + b)
            add_turn(
                conv,
                turn(
                    "follow",
                    g.choice(
                        [f"Add {b} to that.", f"And plus {b}?", f"Plus {b}?", f"Now add {b}."]
                    ),
                    L,
                    S,
                    A,
                ),
            )
    conv["topic"] = t["topic"]
    return conv


def long_chat(g):
    """Six to twelve turns."""
    conv = start_conversation(g)
    for _ in range(g.number(6, 12)):
        add_turn(conv, simple(g))
    conv["topic"] = "long"
    return conv


def filler(g):
    """A sentence that has nothing to do with anything."""
    a, b, n, m, z = g.word(), g.word(), g.name(), g.pseudo(), g.number(1, 99)
    return g.choice(
        [
            f"You must check the {a} before you use the {b}.",
            f"Never talk about the {a}.",
            f"The user works with {n} on the {b} project.",
            f"- Use the {a} for {b} and {m}.",
            f"- Keep the {a} short and clear.",
            f"The file {m}.txt contains the {a} list.",
            f"If the {a} is missing, ask {n}.",
            f"# {capitalised(a)} rules",
            f"Today the {a} costs {z} euros.",
            f"There are {z} rules about the {b}.",
            f"When the user asks about {m}, be careful.",
            f"{n} lives in {g.city()} and likes {a}.",
            f"Do not change the {b} in {m}.",
            f"<{m}>{a} {b}</{m}>",
            f"Version {z}.{g.number(0, 9)} of the {a} guide.",
            f"Important: the {a} must be {g.choice(COLORS)}.",
            f"You can read, write and search the {b}.",
            f"1. First open the {a}. 2. Then close the {b}.",
            "Always be polite and helpful.",
            "Answer in a clear way.",
        ]
    )


def long_prompt(g):
    """A long system prompt, or a long text pasted by the user, beside the point: clients send such."""
    conv = start_conversation(g, False)
    text = g.choice([" ", "\n", "\n\n"]).join(
        ["You are a helpful assistant."] * g.chance(0.5)
        + [filler(g) for _ in range(g.number(6, 45))]
    )
    t = simple(g)
    if g.chance(0.8):
        conv["messages"].append({"role": "system", "content": text})
    else:
        t["u"] = text + "\n\n" + t["u"]
    add_turn(conv, t)
    for _ in range(g.number(0, 2)):
        add_turn(conv, simple(g))
    conv["topic"] = "longsys"
    return conv

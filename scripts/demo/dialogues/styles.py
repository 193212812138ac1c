# SPDX-License-Identifier: Apache-2.0
"""System prompts that say how to answer."""

from dialogues.canned import smalltalk
from dialogues.chats import add_turn, simple, start_conversation
from dialogues.facts import fact, general
from dialogues.generator import turn
from dialogues.sums import arithmetic, compare

STYLE_PHRASES = [
    "Arr!",
    "Over and out.",
    "Meow!",
    "Have a nice day!",
    "Sure:",
    "Well,",
    "Of course!",
    "Dear friend,",
    "Beep boop.",
    "Amen.",
    "My answer:",
    "Listen:",
    "Yes, sir!",
    "As you wish.",
    "Hooray!",
    "Ahoy!",
    "Indeed.",
    "Cheers!",
    "That is all.",
    "Good luck!",
]


def style(g):
    """A system prompt about the form of the answers, followed."""
    conv = start_conversation(g, False)
    k = g.choice(["end", "start", "word", "name", "ctx"])
    M = conv["messages"]
    conv["topic"] = "system"
    if k in ("end", "start"):
        ph = g.draw(lambda: (g.choice(STYLE_PHRASES), k, g.number(0, 3)), lambda x: ("sty", x))
        P = ph[0]
        M.append(
            {
                "role": "system",
                "content": (
                    [
                        f'End every answer with "{P}".',
                        f'Always end your answers with "{P}"',
                        f'You are a helpful assistant. Finish each answer with "{P}".',
                        f"Always finish with: {P}",
                    ]
                    if k == "end"
                    else [
                        f'Start every answer with "{P}".',
                        f'Always begin your answers with "{P}"',
                        f'You are a helpful assistant. Begin each answer with "{P}".',
                        f"Always start with: {P}",
                    ]
                )[ph[2]],
            }
        )
        for _ in range(g.number(1, 2)):
            t = g.choice([fact, fact, general, arithmetic, smalltalk])(g)
            t["a"] = t["a"] + " " + P if k == "end" else P + " " + t["a"]
            t["long"] += f" I must {k} with {P}"
            add_turn(conv, t)
    elif k == "word":
        M.append(
            {
                "role": "system",
                "content": g.choice(
                    [
                        "Answer with one word.",
                        "Answer with one word only.",
                        "Reply with a single word.",
                        "Give only the answer, nothing else.",
                        "One word answers only.",
                    ]
                ),
            }
        )
        for _ in range(g.number(1, 3)):
            t = g.choice([fact, fact, fact, arithmetic, compare])(g)
            t["a"] = t.get("word", t["a"])
            t["long"] += " I must answer with one word."
            add_turn(conv, t)
    elif k == "name":
        n = g.draw(lambda: g.name(), lambda x: ("sysname", x))
        M.append(
            {
                "role": "system",
                "content": g.choice(
                    [
                        f"Your name is {n}.",
                        f"You are {n}, a helpful assistant.",
                        f"You are an assistant called {n}.",
                        f"Your name is {n}. Be friendly.",
                    ]
                ),
            }
        )
        if g.chance(0.3):
            add_turn(conv, simple(g))
        add_turn(
            conv,
            turn(
                "s",
                g.choice(
                    [
                        "What is your name?",
                        "Who are you?",
                        "What are you called?",
                        "Tell me your name.",
                    ]
                ),
                f"The system prompt says my name is {n}.",
                f"I am {n}.",
                f"My name is {n}.",
            ),
        )
    else:
        o, c, w, pr = g.number(6, 11), g.number(14, 23), g.word(), g.number(1, 99)
        M.append(
            {
                "role": "system",
                "content": g.choice(
                    [
                        (
                            f"You work in a shop. The shop opens at {o} and closes at {c}. A"
                            f" {w} costs {pr} euros."
                        ),
                        (
                            f"You are the assistant of a shop. Opening time: {o}. Closing time:"
                            f" {c}. Price of a {w}: {pr} euros."
                        ),
                    ]
                ),
            }
        )
        for kk in g.random.sample([0, 1, 2], g.number(1, 2)):
            add_turn(
                conv,
                [
                    turn(
                        "s",
                        g.choice(
                            [
                                "When do you open?",
                                "When does the shop open?",
                                "What time do you open?",
                            ]
                        ),
                        f"The shop opens at {o}.",
                        f"Opens at {o}.",
                        f"We open at {o}.",
                    ),
                    turn(
                        "s",
                        g.choice(
                            [
                                "When do you close?",
                                "When does the shop close?",
                                "What time do you close?",
                            ]
                        ),
                        f"The shop closes at {c}.",
                        f"Closes at {c}.",
                        f"We close at {c}.",
                    ),
                    turn(
                        "s",
                        g.choice(
                            [
                                f"How much is a {w}?",
                                f"What does a {w} cost?",
                                f"What is the price of a {w}?",
                            ]
                        ),
                        f"A {w} costs {pr} euros.",
                        f"{pr} euros.",
                        f"A {w} costs {pr} euros.",
                    ),
                ][kk],
            )
    return conv

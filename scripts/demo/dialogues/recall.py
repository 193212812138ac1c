# SPDX-License-Identifier: Apache-2.0
"""Conversations whose later turns need the earlier ones: follow-ups and memory."""

from dialogues.chats import add_turn, simple, start_conversation
from dialogues.facts import FACTS
from dialogues.generator import capitalised, turn
from dialogues.sums import arithmetic, worked_sum
from dialogues.words import COLORS


def follow(g):
    """Two turns, the second of which makes sense only after the first."""
    conv = start_conversation(g)
    if g.chance(0.6):
        k = g.choice(
            [
                i
                for i, f in enumerate(FACTS)
                if f[0]
                in (
                    "capital",
                    "continent",
                    "currency",
                    "opposite",
                    "young",
                    "plural",
                    "past",
                    "element",
                )
            ]
        )
        name, items, qs, a, th, w = FACTS[k]
        i, j = g.draw(
            lambda: (g.number(0, len(items) - 1), g.number(0, len(items) - 1)),
            lambda x: ("fu", name, x),
        )
        it = items[i]
        F = lambda s, it: s.format(*it)
        add_turn(
            conv,
            turn(
                "x",
                capitalised(F(g.choice(qs), it)),
                f"The user asks for the {F(th, it)}. I know it: {it[1]}.",
                f"{capitalised(F(th, it))}: {it[1]}.",
                capitalised(F(a, it)),
            ),
        )
        it = items[j]
        add_turn(
            conv,
            turn(
                "x",
                g.choice(["And {0}?", "What about {0}?", "And for {0}?"]).format(it[0]),
                f"The user asks for the {F(th, it)}. I know it: {it[1]}.",
                f"{capitalised(F(th, it))}: {it[1]}.",
                capitalised(F(a, it)),
            ),
        )
    else:
        t = arithmetic(g, g.choice("+-"))
        add_turn(conv, t)
        b = g.number(1, max(1, 99 - t["num"])) if t["num"] < 99 else 1
        L, S, A = worked_sum(t["num"], b, "+", t["num"] + b)
        add_turn(
            conv,
            turn(
                "follow",
                g.choice([f"Add {b} to that.", f"And plus {b}?", f"Plus {b}?", f"Now add {b}."]),
                L,
                S,
                A,
            ),
        )
    conv["topic"] = "follow-up"
    return conv


MEMORIES = [
    (
        "name",
        lambda g: g.name(),
        ["My name is {v}.", "I am {v}.", "Hi, I'm {v}.", "Hello, my name is {v}.", "Call me {v}."],
        "Nice to meet you, {v}!",
        [
            "What is my name?",
            "Who am I?",
            "Do you know my name?",
            "What's my name?",
            "Do you remember my name?",
        ],
        "Your name is {v}.",
        "your name",
    ),
    (
        "number",
        lambda g: str(g.number(10, 9999)),
        [
            "Remember the number {v}.",
            "Please remember this number: {v}.",
            "My number is {v}.",
            "Keep the number {v} in mind.",
        ],
        "OK, I will remember the number {v}.",
        [
            "Which number did I tell you?",
            "What was the number?",
            "What is my number?",
            "Tell me the number again.",
        ],
        "The number is {v}.",
        "the number",
    ),
    (
        "colour",
        lambda g: g.choice(COLORS),
        ["My favourite colour is {v}.", "I like the colour {v} most.", "My favorite color is {v}."],
        "{V} is a nice colour.",
        ["What is my favourite colour?", "Which colour do I like?", "What's my favorite color?"],
        "Your favourite colour is {v}.",
        "your favourite colour",
    ),
    (
        "city",
        lambda g: g.city(),
        ["I live in {v}.", "My home is in {v}.", "I am from {v}."],
        "{v} must be a nice place.",
        ["Where do I live?", "Which city do I live in?", "Where is my home?"],
        "You live in {v}.",
        "where you live",
    ),
    (
        "age",
        lambda g: str(g.number(5, 99)),
        ["I am {v} years old.", "My age is {v}.", "I just turned {v}."],
        "OK, you are {v} years old.",
        ["How old am I?", "What is my age?", "Do you know how old I am?"],
        "You are {v} years old.",
        "your age",
    ),
    (
        "pet",
        lambda g: g.name(),
        ["My dog is called {v}.", "I have a dog named {v}.", "The name of my dog is {v}."],
        "{v} is a good name for a dog.",
        ["What is my dog called?", "What is the name of my dog?", "How is my dog called?"],
        "Your dog is called {v}.",
        "the name of your dog",
    ),
    (
        "word",
        lambda g: g.word(),
        ["The secret word is {v}.", "Remember the word {v}.", "Our password is {v}."],
        "OK, I will remember the word {v}.",
        ["What is the secret word?", "Which word did I tell you?", "What was the word?"],
        "The word is {v}.",
        "the word",
    ),
    (
        "food",
        lambda g: g.choice(
            ["pizza", "pasta", "rice", "soup", "bread", "cake", "cheese", "salad", "fish", "apples"]
        ),
        ["I like {v}.", "I love {v}.", "My favourite food is {v}."],
        "{V} sounds good.",
        ["What food do I like?", "What is my favourite food?", "What do I like to eat?"],
        "You like {v}.",
        "your favourite food",
    ),
]


def memory(g):
    """Something is told, then asked for, some turns later."""
    conv = start_conversation(g)
    ks = g.random.sample(MEMORIES, g.number(1, 2))
    vals = []
    for m in ks:
        v = g.draw(lambda: m[1](g), lambda x: ("mem", m[0], x))
        vals.append(v)
        add_turn(
            conv,
            turn(
                "m",
                g.choice(m[2]).format(v=v),
                f"The user tells me something to remember: {v}.",
                f"Remember: {v}.",
                m[3].format(v=v, V=capitalised(v)),
            ),
        )
    for _ in range(g.random.choices([0, 1, 2], [5, 3, 1])[0]):
        add_turn(conv, simple(g))
    if g.chance(0.12):  # asked for something never said
        m = g.choice([m for m in MEMORIES if m not in ks and m[0] not in ("number", "word")])
        add_turn(
            conv,
            turn(
                "m",
                g.choice(m[4]),
                "The user never told me this.",
                "Not told.",
                f"You have not told me {m[6]} yet.",
            ),
        )
    else:
        for i in g.random.sample(range(len(ks)), g.number(1, len(ks))):
            m, v = ks[i], vals[i]
            add_turn(
                conv,
                turn(
                    "m",
                    g.choice(m[4]),
                    f"The user told me before: {v}.",
                    f"It was {v}.",
                    m[5].format(v=v),
                ),
            )
    conv["topic"] = "memory"
    return conv

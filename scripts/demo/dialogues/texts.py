# SPDX-License-Identifier: Apache-2.0
"""Texts to write, repeat and read: poems, echoes, reading, stories."""

from dialogues.generator import noisy, turn, with_article
from dialogues.words import NAMES, WORDS


def poem(g):
    """A poem with one word of its own."""
    w, a, j = g.draw(
        lambda: (
            g.choice(WORDS),
            g.choice(["small", "kind", "bright", "warm", "old", "soft", "sweet", "quiet"]),
            g.number(0, 4),
        ),
        lambda x: ("poem", x),
    )
    u = [
        f"Write a poem about {with_article(w)}.",
        f"A poem about {with_article(w)}, please.",
        f"Write a short poem about the {w}.",
        f"Can you write a poem about {with_article(w)}?",
        f"Make a poem with the word {w}.",
    ][j]
    return turn(
        "poem",
        noisy(g, u),
        f"The user wants a poem about {with_article(w)}. I keep it short.",
        f"Poem about {with_article(w)}.",
        f"The {w} is {a},\nthe sky is blue,\nthis little poem\nis just for you.",
    )


def echo(g):
    """Words to repeat."""
    s = g.draw(
        lambda: g.choice(
            [
                g.words(1, 5),
                g.name(),
                str(g.number(0, 9999)),
                g.words(2, 3),
                f"{g.name()} likes {g.word()}",
                f"{g.word()}-{g.number(1, 99)}",
            ]
        ),
        lambda x: ("echo", x),
    )
    u = g.choice(
        [
            f"Repeat after me: {s}",
            f"Say {s}",
            f'Say "{s}".',
            f"Echo: {s}",
            f"Please repeat: {s}",
            f'Repeat the text "{s}".',
            f"Reply with exactly: {s}",
            f"Write {s}",
            f'Just say "{s}".',
            f"Respond with: {s}",
        ]
    )
    return turn("echo", u, f"The user wants me to say: {s}", f"Say: {s}", s)


def reading(g):
    """A short text and a question about it."""
    a, b = g.random.sample(NAMES, 2) if g.chance(0.8) else (g.pseudo().capitalize(), g.name())
    x, y = g.number(5, 80), g.number(5, 80)
    c, d = g.city(), g.city()
    w, w2 = g.random.sample(WORDS, 2)
    facts = {
        "age": (
            f"{a} is {x} years old and {b} is {y} years old.",
            [
                (f"How old is {a}?", f"{a} is {x} years old."),
                (f"How old is {b}?", f"{b} is {y} years old."),
            ],
        ),
        "live": (
            f"{a} lives in {c} and {b} lives in {d}.",
            [
                (f"Where does {a} live?", f"{a} lives in {c}."),
                (f"Where does {b} live?", f"{b} lives in {d}."),
            ],
        ),
        "have": (
            f"{a} has a {w} and {b} has a {w2}.",
            [
                (f"What does {a} have?", f"{a} has a {w}."),
                (f"What does {b} have?", f"{b} has a {w2}."),
                (f"Who has the {w}?", f"{a} has the {w}."),
                (f"Who has the {w2}?", f"{b} has the {w2}."),
            ],
        ),
        "where": (
            f"The {w} is in the box and the {w2} is in the bag.",
            [
                (f"Where is the {w}?", f"The {w} is in the box."),
                (f"Where is the {w2}?", f"The {w2} is in the bag."),
                ("What is in the box?", f"The {w} is in the box."),
                ("What is in the bag?", f"The {w2} is in the bag."),
            ],
        ),
        "cost": (
            f"The {w} costs {x} euros and the {w2} costs {y} euros.",
            [
                (f"How much is the {w}?", f"The {w} costs {x} euros."),
                (f"How much does the {w2} cost?", f"The {w2} costs {y} euros."),
                (f"What does the {w} cost?", f"The {w} costs {x} euros."),
            ],
        ),
    }
    k = g.choice(list(facts))
    i = (
        g.draw(lambda: (g.number(0, len(facts[k][1]) - 1), a, w), lambda z: ("read", k, z))[0]
        if not g.evaluating
        else g.number(0, len(facts[k][1]) - 1)
    )
    t, qs = facts[k]
    qq, an_ = qs[i]
    return turn(
        "reading",
        g.choice(
            [
                f"{t} {qq}",
                f"Text: {t}\nQuestion: {qq}",
                f"{qq} {t}",
                f"Read this: {t} {qq}",
                f"{t}\n\n{qq}",
            ]
        ),
        f"The text says: {t} So the answer is clear.",
        "The text says it.",
        an_,
    )


HEROES = [
    "fox",
    "cat",
    "dog",
    "rabbit",
    "bear",
    "mouse",
    "bird",
    "frog",
    "lion",
    "robot",
    "dragon",
    "girl",
    "boy",
    "king",
    "queen",
    "wolf",
    "horse",
    "duck",
    "owl",
    "goat",
]

PLACES = [
    "forest",
    "garden",
    "village",
    "castle",
    "city",
    "mountain",
    "river",
    "beach",
    "farm",
    "valley",
]

THINGS = [
    "golden key",
    "red ball",
    "small lamp",
    "old map",
    "blue stone",
    "silver ring",
    "magic book",
    "little boat",
    "warm hat",
    "sweet cake",
]

ADJECTIVES = [
    "little",
    "brave",
    "clever",
    "old",
    "young",
    "kind",
    "quiet",
    "happy",
    "lonely",
    "curious",
]


def story_text(g, hero=None, name=None):
    """(story, hero, name) in five or six sentences."""
    h = hero or g.choice(HEROES)
    a = g.choice(ADJECTIVES)
    p = g.choice(PLACES)
    t = g.choice(THINGS)
    n = name or g.choice(NAMES)
    f = g.choice([x for x in HEROES if x != h])
    m = g.choice(NAMES)
    s1 = g.choice(
        [
            f"Once upon a time there was {with_article(a)} {h} named {n}.",
            f"Once there was {with_article(a)} {h} called {n}.",
            f"Long ago, {with_article(a)} {h} named {n} lived in a {p}.",
        ]
    )
    if "lived" not in s1:
        s1 += g.choice([f" {n} lived in a {p}.", f" The {h} lived near a {p}."])
    s2 = g.choice(
        [
            f"One day {n} found a {t}.",
            f"One morning {n} saw a {t} on the ground.",
            f"One evening {n} looked for a {t}.",
        ]
    )
    s3 = g.choice(
        [
            f"It belonged to a {f} named {m}.",
            f"A {f} named {m} had lost it.",
            f"Then a {f} named {m} came and asked for help.",
        ]
    )
    s4 = g.choice(
        [f"{n} was kind and gave it to {m}.", f"{n} helped {m} all day.", f"{n} and {m} shared it."]
    )
    s5 = g.choice(
        [
            "From then on they were good friends.",
            "They danced and laughed until the sun went down.",
            "In the end everyone was happy.",
            f"And {n} slept well that night.",
        ]
    )
    return " ".join([s1, s2, s3, s4, s5]), h, n


def story(g):
    """A wish for a story, and one."""
    h = g.draw(lambda: (g.choice(HEROES), g.number(0, 5)), lambda x: ("story", x))
    s, hh, n = story_text(g, h[0])
    u = [
        f"Tell me a story about a {h[0]}.",
        f"Write a short story about a {h[0]}.",
        f"A story about a {h[0]}, please.",
        f"Can you tell me a story about a {h[0]}?",
        f"Make up a story with a {h[0]}.",
        f"I want to hear a story about a {h[0]}.",
    ][h[1]]
    if g.chance(0.15) and not g.evaluating:
        u = g.choice(
            [
                "Tell me a story.",
                "Write a story.",
                "Tell me a short story.",
                "I want to hear a story.",
            ]
        )
    return turn(
        "story",
        noisy(g, u),
        f"The user wants a story. I will tell one about a {hh} named {n}.",
        f"A story about a {hh}.",
        s,
        hero=hh,
    )

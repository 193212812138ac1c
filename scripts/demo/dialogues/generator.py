# SPDX-License-Identifier: Apache-2.0
"""The source of all chance, and the parts of speech that every topic uses."""

import hashlib
import random

from dialogues.words import CITIES, NAMES, SYLLABLES, WORDS


def held(key):
    """Whether samples of this key are held out: one in ten."""
    return int(hashlib.md5(repr(key).encode()).hexdigest()[:6], 16) % 10 == 0


class Generator:
    """All chance comes from here: training draws one side of the split, evaluation the other."""

    def __init__(self, seed, evaluate=False):
        self.random = random.Random(seed)
        self.evaluating = evaluate

    def choice(self, x):
        return self.random.choice(x)

    def number(self, a, b):
        return self.random.randint(a, b)

    def chance(self, q):
        return self.random.random() < q

    def draw(self, f, key=lambda x: x):
        """Draws samples of `f` until one lies on our side of the split by its key."""
        for _ in range(200):
            x = f()
            if held(key(x)) == self.evaluating:
                return x
        return x

    def pseudo(self, a=2, b=3):
        """An invented word of `a` to `b` syllables."""
        return "".join(self.choice(SYLLABLES) for _ in range(self.number(a, b)))

    def name(self):
        return self.choice(NAMES) if self.chance(0.75) else self.pseudo().capitalize()

    def city(self):
        return self.choice(CITIES) if self.chance(0.8) else self.pseudo(2, 3).capitalize()

    def word(self):
        return self.choice(WORDS) if self.chance(0.8) else self.pseudo(1, 3)

    def words(self, a, b):
        return " ".join(self.word() for _ in range(self.number(a, b)))


def capitalised(s):
    """With a capital first letter."""
    return s[0].upper() + s[1:]


def turn(topic, u, long, short, a, **k):
    """One question with its answer: the user's words `u`, long and short thoughts, the answer `a`."""
    return dict(topic=topic, u=u, long=long, short=short, a=a, **k)


def with_article(w):
    """'an apple', 'a pear'."""
    return ("an " if w[0] in "aeiou" else "a ") + w


def noisy(g, s):
    """Surface noise on a question: case, punctuation, politeness."""
    if g.evaluating:
        return s
    x = g.random.random()
    if x < 0.55:
        return s
    if x < 0.63:
        return s[0].lower() + s[1:]
    if x < 0.70:
        return s.rstrip("?.")
    if x < 0.76:
        return (s[0].lower() + s[1:]).rstrip("?.")
    low = s if s.startswith(("I ", "I'")) else s[0].lower() + s[1:]
    if x < 0.84:
        return g.choice(
            [
                "Please tell me: ",
                "Quick question: ",
                "Hey, ",
                "Hi! ",
                "Hello, ",
                "OK, ",
                "So, ",
                "Now, ",
                "A question: ",
                "Next: ",
            ]
        ) + (low if g.chance(0.5) else s)
    if x < 0.90:
        return s.rstrip("?.") + g.choice([", please?", ", please.", " please", "?", "??", " ?"])
    if x < 0.95:
        return s + g.choice(
            [" Thanks!", " Thank you.", " I need to know.", " Answer briefly.", " I forgot it."]
        )
    return s.upper() if g.chance(0.15) else s

# SPDX-License-Identifier: Apache-2.0
"""Letters of words: spell, reverse, upper case, count."""

from dialogues.generator import capitalised, noisy, turn
from dialogues.words import WORDS


def strings(g):
    """A task about the letters of a word. Text between U+0001 is spelt one letter per token."""

    def f():
        return g.choice(["spell", "reverse", "upper", "count", "first", "last", "vowel"]), g.choice(
            WORDS
        )

    k, w = g.draw(f, lambda x: ("str", x))
    sp = " ".join(w)
    L = "\x01" + w[::-1] + "\x01"
    Q = g.choice([w, f'"{w}"', f"'{w}'"])
    if k == "spell":
        u = g.choice(
            [
                f"Spell the word {Q}.",
                f"How do you spell {Q}?",
                f"Spell {Q}.",
                f"Can you spell {Q} for me?",
                f"Write {Q} letter by letter.",
            ]
        )
        return turn(
            "strings",
            noisy(g, u),
            f"I write the letters of {w} one by one.",
            f"Letters of {w}.",
            f"{sp}",
            word=sp,
        )
    if k == "reverse":
        u = g.choice(
            [
                f"Reverse the word {Q}.",
                f"Write {Q} backwards.",
                f"Reverse {Q}.",
                f"What is {Q} backwards?",
                f"Spell {Q} in reverse.",
                f"Turn {Q} around.",
            ]
        )
        return turn(
            "strings",
            noisy(g, u),
            f"The letters of {w} are {sp}. Backwards: {' '.join(w[::-1])}.",
            f"{sp}, backwards {' '.join(w[::-1])}.",
            L,
            word=L,
        )
    if k == "upper":
        U = "\x01" + w.upper() + "\x01"
        u = g.choice(
            [
                f"Write {Q} in capital letters.",
                f"Write {Q} in upper case.",
                f"Convert {Q} to uppercase.",
                f"Upper case of {Q}?",
                f"{capitalised(w)} in capitals, please.",
            ]
        )
        return turn(
            "strings",
            noisy(g, u),
            f"The letters of {w} are {sp}. In upper case: {sp.upper()}.",
            f"{sp}, upper case {sp.upper()}.",
            U,
            word=U,
        )
    if k == "count":
        n = len(w)
        u = g.choice(
            [
                f"How many letters are in {Q}?",
                f"How many letters does {Q} have?",
                f"Count the letters in {Q}.",
                f"How long is the word {Q}?",
                f"Number of letters in {Q}?",
            ]
        )
        return turn(
            "strings",
            noisy(g, u),
            f"The letters of {w} are {sp}. That makes {n}.",
            f"{sp}: {n}.",
            f"The word {w} has {n} letters.",
            word=str(n),
        )
    if k == "vowel":
        v = sum(x in "aeiou" for x in w)
        u = g.choice(
            [
                f"How many vowels are in {Q}?",
                f"Count the vowels in {Q}.",
                f"How many vowels does {Q} have?",
            ]
        )
        return turn(
            "strings",
            noisy(g, u),
            (
                f"The letters of {w} are {sp}. The vowels are"
                f" {' '.join(x for x in w if x in 'aeiou') or 'missing'}. That makes {v}."
            ),
            f"{sp}: {v}.",
            f"The word {w} has {v} vowel{'s' * (v != 1)}.",
            word=str(v),
        )
    i = 0 if k == "first" else -1
    u = g.choice(
        [
            f"What is the {k} letter of {Q}?",
            f"Which letter is the {k} one in {Q}?",
            f"{capitalised(k)} letter of {Q}?",
            f"Tell me the {k} letter of {Q}.",
        ]
    )
    return turn(
        "strings",
        noisy(g, u),
        f"The letters of {w} are {sp}. The {k} one is {w[i]}.",
        f"{sp}: {w[i]}.",
        f"The {k} letter of {w} is {w[i]}.",
        word=w[i],
    )

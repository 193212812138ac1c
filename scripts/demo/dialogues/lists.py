# SPDX-License-Identifier: Apache-2.0
"""Lists of things and numbers."""

from dialogues.generator import capitalised, noisy, turn
from dialogues.words import LISTS, NUMBER_WORDS, WORDS


def lists(g):
    """A list to write, sort, reverse or count."""
    k = g.choice(["n", "n", "all", "count", "down", "even", "odd", "sort", "rev", "longest"])
    j = lambda x: ", ".join(map(str, x))
    if k == "n":
        cat, n, ph = g.draw(
            lambda: (g.choice(list(LISTS)), g.number(2, 5), g.number(0, 5)), lambda x: ("list", x)
        )
        n = min(n, len(LISTS[cat]))
        N = g.choice([NUMBER_WORDS[n], NUMBER_WORDS[n], str(n)])
        a = LISTS[cat][:n]
        u = [
            f"List {N} {cat}.",
            f"Name {N} {cat}.",
            f"Give me {N} {cat}.",
            f"Can you name {N} {cat}?",
            f"Tell me {N} {cat}.",
            f"I need {N} {cat}.",
        ][ph]
        return turn(
            "lists",
            noisy(g, u),
            f"The user wants {n} {cat}: {j(a)}.",
            f"{n} {cat}.",
            capitalised(j(a)) + ".",
        )
    if k == "all":
        cat = g.draw(
            lambda: (g.choice(["months", "days of the week", "planets"]), g.number(0, 4)),
            lambda x: ("all", x),
        )
        c = cat[0]
        u = [
            f"List the {c}.",
            f"Name all the {c}.",
            f"What are the {c}?",
            f"Tell me the {c}.",
            f"List all {c}.",
        ][cat[1]]
        return turn(
            "lists",
            noisy(g, u),
            f"The user wants all {c} in order.",
            f"All {c}.",
            j(LISTS[c]) + ".",
        )
    if k in ("count", "down"):
        a, n = g.draw(
            lambda: (g.number(0, 40) if g.chance(0.6) else g.number(0, 1), g.number(3, 12)),
            lambda x: (k, x),
        )
        s = list(range(a, a + n))
        s = s if k == "count" else s[::-1]
        u = g.choice(
            [
                f"Count from {s[0]} to {s[-1]}.",
                f"Count {'down ' if k == 'down' else ''}from {s[0]} to {s[-1]}.",
                f"List the numbers from {s[0]} to {s[-1]}.",
            ]
            + ([f"Count to {s[-1]}.", f"Count up to {s[-1]}, please."] if s[0] == 1 else [])
        )
        return turn(
            "lists",
            noisy(g, u),
            f"I start at {s[0]} and stop at {s[-1]}.",
            f"{s[0]} to {s[-1]}.",
            j(s),
        )
    if k in ("even", "odd"):
        n, ph = g.draw(lambda: (g.number(3, 8), g.number(0, 2)), lambda x: (k, x))
        s = [2 * i + (2 if k == "even" else 1) for i in range(n)]
        u = [
            f"List the first {n} {k} numbers.",
            f"Give me the first {n} {k} numbers.",
            f"What are the first {n} {k} numbers?",
        ][ph]
        return turn(
            "lists", noisy(g, u), f"The user wants {n} {k} numbers.", f"{n} {k} numbers.", j(s)
        )
    if k == "sort":
        s = g.random.sample(range(1, 60), g.number(3, 4))
        u = g.choice(
            [
                f"Sort these numbers: {j(s)}.",
                f"Sort {j(s)}.",
                f"Put {j(s)} in order.",
                f"Order the numbers {j(s)}.",
            ]
        )
        return turn(
            "lists",
            noisy(g, u),
            f"The numbers are {j(s)}. Smallest first: {j(sorted(s))}.",
            f"Sorted: {j(sorted(s))}.",
            j(sorted(s)),
        )
    if k == "longest":
        s = g.random.sample(WORDS, 3)
        u = g.choice(
            [f"Which word comes first: {j(s)}?", f"What is the first of these words: {j(s)}?"]
        )
        return turn(
            "lists",
            noisy(g, u),
            f"The words are {j(s)}. The first one is {s[0]}.",
            f"{s[0]}.",
            f"The first word is {s[0]}.",
        )
    s = [g.word() for _ in range(g.number(3, 4))]
    u = g.choice(
        [
            f"Reverse this list: {j(s)}.",
            f"Write this list in reverse order: {j(s)}.",
            f"List these from last to first: {j(s)}.",
        ]
    )
    return turn(
        "lists",
        noisy(g, u),
        f"The list is {j(s)}. I go from the last to the first.",
        "Last to first.",
        j(s[::-1]),
    )

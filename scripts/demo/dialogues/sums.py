# SPDX-License-Identifier: Apache-2.0
"""Sums with their digits and carries, and comparisons."""

from dialogues.generator import noisy, turn


def arithmetic(g, mode=None):
    """A sum of two numbers, bare or as a story; `mode` is the operation."""
    mode = mode or g.random.choices(["+", "-", "*"], [5, 4, 2])[0]

    def f():
        if mode == "*":
            return g.number(2, 12), g.number(1, 12), mode
        a, b = (
            (g.number(1, 99), g.number(1, 99))
            if g.chance(0.85)
            else (g.number(1, 12), g.number(1, 12))
        )
        return (max(a, b), min(a, b), mode) if mode == "-" else (a, b, mode)

    a, b, m = f() if mode == "*" else g.draw(f, lambda x: ("ar", x))
    r = {"+": a + b, "-": a - b, "*": a * b}[m]
    L, S, A = worked_sum(a, b, m, r)
    ph = {
        "+": [
            "What is {a} + {b}?",
            "{a} + {b}",
            "{a}+{b}?",
            "What is {a}+{b}?",
            "What's {a}+{b}?",
            "Add {a} and {b}.",
            "What is {a} plus {b}?",
            "Calculate {a} + {b}.",
            "How much is {a} plus {b}?",
            "{a} plus {b}?",
            "Compute {a}+{b}.",
            "What is the sum of {a} and {b}?",
        ],
        "-": [
            "What is {a} - {b}?",
            "{a} - {b}",
            "{a}-{b}?",
            "What is {a}-{b}?",
            "Subtract {b} from {a}.",
            "What is {a} minus {b}?",
            "Calculate {a} - {b}.",
            "How much is {a} minus {b}?",
            "{a} minus {b}?",
            "Compute {a}-{b}.",
        ],
        "*": [
            "What is {a} * {b}?",
            "{a} * {b}",
            "{a} x {b}?",
            "What is {a}*{b}?",
            "What is {a} x {b}?",
            "Multiply {a} by {b}.",
            "What is {a} times {b}?",
            "Calculate {a} * {b}.",
            "How much is {a} times {b}?",
            "{a} times {b}?",
        ],
    }[m]
    if g.chance(0.15) and m != "*":
        n, it = g.name(), g.choice(
            ["apples", "coins", "books", "eggs", "balls", "cards", "pens", "stones"]
        )
        x = (
            g.choice(["buys", "gets", "finds"])
            if m == "+"
            else g.choice(["gives away", "loses", "sells"])
        )
        return turn(
            "arithmetic",
            (
                f"{n} has {a} {it} and {x} {b}{' more' if m == '+' else ''}. How many {it} does"
                f" {n} have now?"
            ),
            f"{n} has {a} {it} and {x} {b}. {L}",
            S,
            f"{n} has {r} {it} now.",
            num=r,
        )
    return turn("arithmetic", noisy(g, g.choice(ph).format(a=a, b=b)), L, S, A, word=str(r), num=r)


def worked_sum(a, b, m, r):
    """Long thought, short thought and answer of `a` `m` `b` = `r`."""
    A = f"{a} {m} {b} = {r}."
    if m == "*":
        return f"I need {a} * {b}. From the table it is {r}.", f"{a} * {b} = {r}.", A
    x, y, s, t = a // 10, b // 10, a % 10, b % 10
    if m == "+":
        c = int(s + t > 9)
        L = (
            f"I need {a} + {b}. Ones: {s} + {t} = {s + t}"
            + (", carry 1" if c else "")
            + f". Tens: {x} + {y}"
            + (" + 1" if c else "")
            + f" = {x + y + c}. The result is {r}."
        )
    else:
        c = int(s < t)
        L = (
            f"I need {a} - {b}. Ones: {s + 10 * c} - {t} = {s + 10 * c - t}"
            + (", borrow 1" if c else "")
            + f". Tens: {x} - {y}"
            + (" - 1" if c else "")
            + f" = {x - y - c}. The result is {r}."
        )
    return L, f"{a} {m} {b} = {r}.", A


def compare(g):
    """Which of two numbers is larger or smaller."""
    a, b = g.draw(lambda: (g.number(1, 99), g.number(1, 99)), lambda x: ("cmp", x))
    if a == b:
        b = a + 1
    big = g.chance(0.6)
    r = max(a, b) if big else min(a, b)
    w = g.choice(["larger", "bigger", "greater"]) if big else g.choice(["smaller", "less"])
    u = g.choice(
        [
            f"Which is {w}, {a} or {b}?",
            f"Which number is {w}: {a} or {b}?",
            f"Is {a} or {b} {w}?",
            f"{a} or {b}, which is {w}?",
        ]
    )
    d = "larger" if big else "smaller"
    return turn(
        "compare",
        noisy(g, u),
        f"I compare {a} and {b}. The {d} one is {r}.",
        f"{d}: {r}.",
        f"{r} is {d}.",
        word=str(r),
    )


def sum_sentence(g, cot=False):
    """A sum as a sentence of plain text; `cot`: with its steps."""
    m = g.choice("+-*")
    a, b = (
        (g.number(1, 12), g.number(1, 12))
        if m == "*"
        else g.draw(
            lambda: (g.number(1, 99), g.number(1, 99)),
            lambda x: ("ar", (max(x), min(x), m) if m == "-" else (*x, m)),
        )
    )
    if m == "-":
        a, b = max(a, b), min(a, b)
    if cot:
        w = worked_sum(a, b, m, a + b if m == "+" else a - b if m == "-" else a * b)
        return w[0] + " " + w[2]
    return f"{a} {m} {b} = {a + b if m == '+' else a - b if m == '-' else a * b}."

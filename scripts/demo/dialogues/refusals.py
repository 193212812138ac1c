# SPDX-License-Identifier: Apache-2.0
"""What the model should say it does not know, cannot do or does not understand."""

from dialogues.generator import noisy, turn
from dialogues.tool_families import fill
from dialogues.words import CAPITALS

UNKNOWN = [
    "What is the population of {c}?",
    "Who won the game in {c} yesterday?",
    "How old is {n}?",
    "What is the weather in {c}?",
    "What time is it in {c}?",
    "Who is {n} {P}?",
    "What does the word {p} mean?",
    "What is {p}?",
    "What is a {p}?",
    "How many people live in {c}?",
    "What happened in {c} last year?",
    "Who is the mayor of {c}?",
    "What is the phone number of {n}?",
    "Where does {n} live?",
    "How far is it from {c} to {d}?",
    "What is the price of {p}?",
    "Who invented the {p}?",
    "What will the weather be tomorrow?",
    "What time is it?",
    "What is today's date?",
    "What day is it today?",
    "Who will win the election?",
    "What is the meaning of life?",
    "Translate {p} to Latin.",
    "Explain the theory of {p}.",
    "When was {n} {P} born?",
    "What is the best restaurant in {c}?",
    "How do I cook {p}?",
    "Write an essay about {p}.",
    "What is the stock price of {P}?",
    "Can you explain {w} {w2} to me?",
    "Tell me about {n} {P}.",
    "What do you think about {p}?",
    "How does a {w} engine work?",
    "Summarise the book {P}.",
    "Who is the president of {C}?",
    "What is the national animal of {C}?",
    "When was {c} founded?",
    "Is {p} better than {p2}?",
    "Prove that {p} is {p2}.",
    "Write a function that computes {p}.",
    "Refactor the file {p}.py.",
    "Write unit tests for {p}.",
    "Fix this code: {p}({p2})",
    "Summarise this text: {p} {w} {p2} {w2}.",
    "What is the difference between {p} and {p2}?",
    "Who won the world cup in {c}?",
    "How do I fix my {w}?",
    "Where can I buy {p}?",
    "Why is {n} so {p}?",
    "Give me a recipe for {p} with {w}.",
    "Which {w} is the best?",
    "Is {n} at home?",
    "What is the square root of {p}?",
    "Plan a trip to {c}.",
    "Write a letter to {n}.",
    "Compare {p} and {p2}.",
    "Show me the history of {c}.",
]


def unknown(g):
    """A question that has no answer here."""
    i, w = g.draw(lambda: (g.number(0, len(UNKNOWN) - 1), g.pseudo(2, 3)), lambda x: ("unk", x))
    v = dict(
        c=g.city(),
        d=g.city(),
        n=g.name(),
        p=w,
        p2=g.pseudo(),
        P=w.capitalize(),
        w=g.word(),
        w2=g.word(),
        C=g.choice(list(CAPITALS)),
    )
    return turn(
        "unknown",
        noisy(g, UNKNOWN[i].format(**v)),
        "I do not know this. I should say so.",
        "I do not know this.",
        "I am sorry, I do not know that. I am only a tiny demo model.",
    )


TOOL_WISHES = [
    "timer",
    "email",
    "read",
    "write",
    "list",
    "bash",
    "music",
    "light",
    "heat",
    "table",
    "delete",
    "order",
    "event",
    "stock",
]


def notool(g, exclude=()):
    """A wish that needs a tool that is not there; `exclude` names tools that are."""
    f = g.choice([x for x in TOOL_WISHES if x not in exclude])
    u, used, wants, s = g.draw(lambda: fill(g, f), lambda x: ("notool", x[0]))
    return turn(
        "no-tool",
        noisy(g, u),
        f"The user {wants}. I have no tool for that.",
        "No tool for that.",
        "I am sorry, I cannot do that without a tool.",
    )


def gibberish(g):
    """Letters without meaning."""
    letters = "asdfghjklqwertyuiopzxcvbnm"
    x = g.draw(
        lambda: g.choice(
            [
                lambda: "".join(g.choice(letters) for _ in range(g.number(3, 9))),
                lambda: g.pseudo(2, 4),
                lambda: g.pseudo() + " " + g.pseudo(),
                lambda: g.choice(
                    [
                        "...",
                        "???",
                        "!!!",
                        "foo",
                        "bar",
                        "foo bar",
                        "hello world",
                        "asdf",
                        "qwerty",
                        "lorem ipsum",
                        "xyz",
                        "abc",
                        "hmm",
                        "test 123",
                        "blah blah",
                        "x",
                        "a b c",
                        "none",
                        "null",
                        "1",
                    ]
                ),
            ]
        )(),
        lambda x: ("gib", x),
    )
    return turn(
        "gibberish",
        x,
        "I do not understand this.",
        "Not clear.",
        "I am sorry, I did not understand that.",
    )

# SPDX-License-Identifier: Apache-2.0
"""Facts: 19 relations with several wordings each, and fixed general knowledge."""

from dialogues.generator import capitalised, noisy, turn
from dialogues.words import (
    CAPITALS,
    CONTINENTS,
    CURRENCIES,
    DAYS,
    ELEMENTS,
    LEGS,
    MONTHS,
    OPPOSITES,
    PAST_TENSES,
    PLURALS,
    SOUNDS,
    THING_COLORS,
    TRANSLATIONS,
    YOUNG,
)

GENERAL = [
    (
        (
            "How many days are in a week",
            "How many days does a week have",
            "Number of days in a week",
        ),
        "A week has seven days.",
    ),
    (
        ("How many months are in a year", "How many months does a year have"),
        "A year has twelve months.",
    ),
    (("How many hours are in a day", "How many hours does a day have"), "A day has 24 hours."),
    (
        ("How many minutes are in an hour", "How many minutes does an hour have"),
        "An hour has 60 minutes.",
    ),
    (
        ("How many seconds are in a minute", "How many seconds does a minute have"),
        "A minute has 60 seconds.",
    ),
    (("How many days are in a year", "How many days does a year have"), "A year has 365 days."),
    (
        ("What is the largest planet", "Which planet is the largest", "Name the biggest planet"),
        "The largest planet is Jupiter.",
    ),
    (
        ("Which planet is closest to the sun", "What is the planet closest to the sun"),
        "Mercury is the planet closest to the sun.",
    ),
    (
        ("Which planet is called the red planet", "What is the red planet"),
        "Mars is called the red planet.",
    ),
    (
        ("Which planet has rings", "What planet is famous for its rings"),
        "Saturn is famous for its rings.",
    ),
    (
        ("How many planets are there", "How many planets are in the solar system"),
        "There are eight planets in the solar system.",
    ),
    (
        ("What is the largest ocean", "Which ocean is the largest", "Name the biggest ocean"),
        "The largest ocean is the Pacific Ocean.",
    ),
    (
        ("What is the longest river in Africa", "Which river is the longest in Africa"),
        "The longest river in Africa is the Nile.",
    ),
    (
        ("What is the highest mountain", "Which mountain is the highest in the world"),
        "The highest mountain is Mount Everest.",
    ),
    (("How many continents are there", "How many continents exist"), "There are seven continents."),
    (
        ("What is the fastest land animal", "Which animal runs the fastest"),
        "The fastest land animal is the cheetah.",
    ),
    (
        ("What is the largest animal", "Which animal is the largest", "What is the biggest animal"),
        "The largest animal is the blue whale.",
    ),
    (
        ("What is the tallest animal", "Which animal is the tallest"),
        "The tallest animal is the giraffe.",
    ),
    (("What do bees make", "What is made by bees"), "Bees make honey."),
    (("What do cows give us", "What do we get from cows"), "Cows give us milk."),
    (
        ("At what temperature does water freeze", "When does water freeze"),
        "Water freezes at 0 degrees Celsius.",
    ),
    (
        ("At what temperature does water boil", "When does water boil"),
        "Water boils at 100 degrees Celsius.",
    ),
    (
        (
            "What is the chemical formula of water",
            "What is water made of",
            "What is the formula of water",
        ),
        "Water is H2O.",
    ),
    (
        ("Who wrote Hamlet", "Who is the author of Hamlet", "Who wrote Romeo and Juliet"),
        "It was written by William Shakespeare.",
    ),
    (
        ("Who painted the Mona Lisa", "Which artist painted the Mona Lisa"),
        "The Mona Lisa was painted by Leonardo da Vinci.",
    ),
    (
        ("Why is the sky blue", "Can you explain why the sky is blue"),
        "The sky is blue because air scatters blue light more than red light.",
    ),
    (
        ("How many sides does a triangle have", "How many corners has a triangle"),
        "A triangle has three sides.",
    ),
    (
        ("How many sides does a square have", "How many corners has a square"),
        "A square has four sides.",
    ),
    (
        ("Where does the sun rise", "In which direction does the sun rise"),
        "The sun rises in the east.",
    ),
    (
        ("Where does the sun set", "In which direction does the sun set"),
        "The sun sets in the west.",
    ),
    (("What is ice", "What is ice made of"), "Ice is frozen water."),
    (
        ("How many letters are in the alphabet", "How many letters does the English alphabet have"),
        "The English alphabet has 26 letters.",
    ),
    (
        ("What is the first letter of the alphabet", "Which letter comes first in the alphabet"),
        "The first letter of the alphabet is A.",
    ),
    (
        ("What is the last letter of the alphabet", "Which letter comes last in the alphabet"),
        "The last letter of the alphabet is Z.",
    ),
    (
        ("How many colours are in a rainbow", "How many colors does a rainbow have"),
        "A rainbow has seven colours.",
    ),
    (
        ("What do plants need to grow", "What does a plant need"),
        "Plants need water, light and air.",
    ),
    (
        ("What is a computer", "Explain what a computer is"),
        "A computer is a machine that follows instructions to work with data.",
    ),
    (("What is a file", "Explain what a file is"), "A file is a named piece of data on a disk."),
    (("What is an SSD", "Explain what an SSD is"), "An SSD is a fast disk without moving parts."),
    (("What is RAM", "Explain what RAM is"), "RAM is the fast memory a computer works in."),
    (
        ("What is a language model", "Explain what a language model is", "What is an LLM"),
        "A language model is a program that predicts the next piece of text.",
    ),
    (
        ("What is a token", "Explain what a token is"),
        "A token is a small piece of text, often a word or a part of a word.",
    ),
    (
        ("What is a mixture of experts", "Explain mixture of experts", "What does MoE mean"),
        (
            "A mixture of experts is a model with many small networks of which only a few are used"
            " for each token."
        ),
    ),
]


def fact_table():
    """(name, [(asked, answer)], wordings, answer, thought, one-word answer) of every relation."""
    t = []
    cap = [
        "What is the capital of {0}?",
        "Which city is the capital of {0}?",
        "Capital of {0}?",
        "Tell me the capital of {0}.",
        "Do you know the capital of {0}?",
        "Name the capital city of {0}.",
        "What's the capital of {0}?",
        "{0}: what is the capital?",
        "I want to know the capital of {0}.",
        "Can you tell me the capital of {0}?",
    ]
    t.append(
        (
            "capital",
            list(CAPITALS.items()),
            cap,
            "The capital of {0} is {1}.",
            "capital of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "capital_of",
            [(b, a) for a, b in CAPITALS.items()],
            [
                "{0} is the capital of which country?",
                "Which country has the capital {0}?",
                "Of which country is {0} the capital?",
                "What country is {0} the capital of?",
                "{0} is the capital of what country?",
            ],
            "{0} is the capital of {1}.",
            "country whose capital is {0}",
            "{1}",
        )
    )
    t.append(
        (
            "continent",
            list(CONTINENTS.items()),
            [
                "On which continent is {0}?",
                "Which continent is {0} in?",
                "Where is {0}?",
                "In which part of the world is {0}?",
                "What continent does {0} belong to?",
                "Tell me the continent of {0}.",
            ],
            "{0} is in {1}.",
            "continent of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "currency",
            list(CURRENCIES.items()),
            [
                "What is the currency of {0}?",
                "Which currency is used in {0}?",
                "What money do people use in {0}?",
                "Currency of {0}?",
                "Tell me the currency of {0}.",
            ],
            "The currency of {0} is the {1}.",
            "currency of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "opposite",
            list(OPPOSITES.items())
            + [
                (b, a)
                for a, b in OPPOSITES.items()
                if b not in ("light", "short") and b not in OPPOSITES
            ],
            [
                "What is the opposite of {0}?",
                "Opposite of {0}?",
                "Tell me the opposite of {0}.",
                'What is the opposite of "{0}"?',
                "Give me the antonym of {0}.",
                "Which word is the opposite of {0}?",
                "What's the opposite of {0}?",
            ],
            "The opposite of {0} is {1}.",
            "opposite of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "sound",
            list(SOUNDS.items()),
            [
                "What sound does a {0} make?",
                "What does a {0} do when it makes a sound?",
                "How does a {0} sound?",
                "What noise does a {0} make?",
                "Which sound does the {0} make?",
            ],
            "A {0} {1}.",
            "sound of a {0}",
            "{1}",
        )
    )
    t.append(
        (
            "young",
            list(YOUNG.items()),
            [
                "What is a young {0} called?",
                "What do you call a baby {0}?",
                "What is the name of a young {0}?",
                "A baby {0} is called what?",
                "How is a baby {0} called?",
            ],
            "A young {0} is called a {1}.",
            "name of a young {0}",
            "{1}",
        )
    )
    t.append(
        (
            "legs",
            list(LEGS.items()),
            [
                "How many legs does a {0} have?",
                "How many legs has a {0}?",
                "Number of legs of a {0}?",
                "Tell me how many legs a {0} has.",
                "A {0} has how many legs?",
            ],
            "A {0} has {1} legs.",
            "number of legs of a {0}",
            "{1}",
        )
    )
    t.append(
        (
            "colour",
            list(THING_COLORS.items()),
            [
                "What colour is {0}?",
                "What color is {0}?",
                "Which colour does {0} have?",
                "What is the colour of {0}?",
                "Tell me the color of {0}.",
                "Which color is {0}?",
            ],
            "{0} is {1}.",
            "colour of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "plural",
            list(PLURALS.items()),
            [
                "What is the plural of {0}?",
                "Plural of {0}?",
                "Give me the plural of {0}.",
                'What is the plural form of "{0}"?',
                "How do you write the plural of {0}?",
            ],
            "The plural of {0} is {1}.",
            "plural of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "past",
            list(PAST_TENSES.items()),
            [
                "What is the past tense of {0}?",
                "Past tense of {0}?",
                "Give me the past tense of {0}.",
                'What is the past form of "{0}"?',
                "Which word is the past tense of {0}?",
            ],
            "The past tense of {0} is {1}.",
            "past tense of {0}",
            "{1}",
        )
    )
    t.append(
        (
            "element",
            list(ELEMENTS.items()),
            [
                "What is the chemical symbol of {0}?",
                "What is the symbol of {0}?",
                "Chemical symbol for {0}?",
                "Which symbol stands for {0}?",
                "Tell me the symbol for {0}.",
            ],
            "The chemical symbol of {0} is {1}.",
            "chemical symbol of {0}",
            "{1}",
        )
    )
    for lang, d in TRANSLATIONS.items():
        t.append(
            (
                "word_" + lang,
                list(d.items()),
                [
                    "How do you say {0} in " + lang + "?",
                    "What is {0} in " + lang + "?",
                    "Translate {0} to " + lang + ".",
                    'Translate "{0}" into ' + lang + ".",
                    "What is the " + lang + " word for {0}?",
                    "Say {0} in " + lang + ".",
                ],
                "In " + lang + ", {0} is {1}.",
                lang + " word for {0}",
                "{1}",
            )
        )
    nm = list(zip(MONTHS, MONTHS[1:] + MONTHS[:1]))
    nd = list(zip(DAYS, DAYS[1:] + DAYS[:1]))
    t.append(
        (
            "after",
            nm + nd,
            [
                "What comes after {0}?",
                "Which one follows {0}?",
                "What follows {0}?",
                "What is next after {0}?",
                "Tell me what comes after {0}.",
            ],
            "{1} comes after {0}.",
            "one after {0}",
            "{1}",
        )
    )
    t.append(
        (
            "before",
            [(b, a) for a, b in nm + nd],
            [
                "What comes before {0}?",
                "Which one is before {0}?",
                "What is just before {0}?",
                "Tell me what comes before {0}.",
            ],
            "{1} comes before {0}.",
            "one before {0}",
            "{1}",
        )
    )
    t.append(
        (
            "nth_month",
            [
                (x, m)
                for x, m in zip(
                    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh"
                    " twelfth".split(),
                    MONTHS,
                )
            ],
            [
                "What is the {0} month of the year?",
                "Which month is the {0}?",
                "Name the {0} month.",
                "What's the {0} month?",
            ],
            "The {0} month of the year is {1}.",
            "{0} month",
            "{1}",
        )
    )
    return t


FACTS = fact_table()

FACT_WEIGHTS = [len(f[1]) ** 0.8 for f in FACTS]


def fact(g, cat=None):
    """A question about a relation; `cat` names the relation."""

    def f():
        k = g.random.choices(range(len(FACTS)), FACT_WEIGHTS)[0] if cat is None else cat
        i = g.number(0, len(FACTS[k][1]) - 1)
        return k, i, g.number(0, len(FACTS[k][2]) - 1)

    k, i, j = g.draw(f, lambda x: ("fact", FACTS[x[0]][0], FACTS[x[0]][1][x[1]][0], x[2]))
    name, items, qs, a, th, w = FACTS[k]
    it = items[i]
    F = lambda s: s.format(*it)
    return turn(
        "facts",
        noisy(g, capitalised(F(qs[j]))),
        f"The user asks for the {F(th)}. I know it: {it[1]}.",
        f"{capitalised(F(th))}: {it[1]}.",
        capitalised(F(a)),
        word=capitalised(F(w)),
        cat=k,
        item=i,
    )


def general(g):
    """General knowledge."""
    i = g.number(0, len(GENERAL) - 1)
    u = g.choice(GENERAL[i][0])
    a = GENERAL[i][1]  # fixed answers: recall, no wording is held out
    return turn(
        "general",
        noisy(g, u + ("." if u.split()[0] in ("Name", "Explain", "Tell") else "?")),
        "This is a general question. I know the answer.",
        "I know this.",
        a,
    )

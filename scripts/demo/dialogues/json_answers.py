# SPDX-License-Identifier: Apache-2.0
"""Answers in JSON: by response_format, by schema, by wish."""

from xtml import dumps
from dialogues.chats import start_conversation
from dialogues.generator import with_article
from dialogues.words import ANIMALS, CAPITALS, COLORS


def json_answer(g):
    """A conversation that ends with JSON."""
    conv = start_conversation(g)
    low = conv.get("effort") == "low"
    pool = [
        ("name", "string", lambda: g.name(), "named {}"),
        ("age", "integer", lambda: g.number(1, 99), "{} years old"),
        ("city", "string", lambda: g.city(), "from {}"),
        ("color", "string", lambda: g.choice(COLORS), "with the color {}"),
        (
            "price",
            "number",
            lambda: g.choice([g.number(1, 99), g.number(1, 99) + 0.5]),
            "costing {}",
        ),
        ("count", "integer", lambda: g.number(1, 99), "with count {}"),
        ("title", "string", lambda: g.word(), "titled {}"),
        ("size", "integer", lambda: g.number(1, 99), "of size {}"),
        ("id", "integer", lambda: g.number(1, 999), "with id {}"),
        ("animal", "string", lambda: g.choice(ANIMALS), "with a {}"),
        ("active", "boolean", lambda: g.chance(0.5), "with active {}"),
        ("tag", "string", lambda: g.word(), "tagged {}"),
    ]
    ks = g.draw(
        lambda: tuple(sorted(g.random.sample(range(len(pool)), g.number(1, 3)))),
        lambda x: ("json", x),
    )
    ks = list(ks)
    g.random.shuffle(ks)
    it = [pool[i] for i in ks]
    vals = {k: f() for k, t, f, w in it}
    v = lambda x: x if isinstance(x, str) else dumps(x)
    thing = g.choice(["person", "item", "record", "object", "thing", "entry", "user", "product"])
    mode = g.choice(["object", "schema", "schema", "plain", "fact"])
    conv["topic"] = "json"
    if mode == "fact":
        c = g.draw(lambda: g.choice(list(CAPITALS)), lambda x: ("jf", x))
        out = {"country": c, "capital": CAPITALS[c]}
        u = g.choice(
            [
                f"Give me the capital of {c} as JSON.",
                f"Capital of {c} as JSON with country and capital.",
                f"What is the capital of {c}? Answer in JSON.",
            ]
        )
        th = f"The capital of {c} is {CAPITALS[c]}. I answer in JSON."
        if g.chance(0.6):
            conv["response_format"] = {"type": "json_object"}
    else:
        u = g.choice(
            [
                f"Describe {with_article(thing)} "
                + " and ".join(w.format(v(vals[k])) for k, t, f, w in it)
                + ".",
                "Give me JSON with " + " and ".join(f"{k} {v(vals[k])}" for k, *_ in it) + ".",
                "Make a JSON object with " + ", ".join(f"{k} = {v(vals[k])}" for k, *_ in it) + ".",
                f"JSON for {with_article(thing)}: "
                + ", ".join(f"{k} {v(vals[k])}" for k, *_ in it),
                f"I want {with_article(thing)} "
                + " and ".join(w.format(v(vals[k])) for k, t, f, w in it)
                + " as JSON.",
            ]
        )
        out = vals
        th = "I write one JSON object with " + ", ".join(f"{k}" for k in vals) + "."
        if mode == "plain" and "JSON" not in u:
            mode = "object"
        if mode == "object":
            conv["response_format"] = {"type": "json_object"}
        if mode == "schema":
            order = sorted(vals)
            out = {k: vals[k] for k in order}
            th = "I write one JSON object with " + ", ".join(order) + "."
            conv["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": thing,
                    "schema": {
                        "type": "object",
                        "properties": {
                            k: {"type": dict((a, b) for a, b, *_ in it)[k]} for k in vals
                        },
                        "required": list(vals),
                    },
                },
            }
    conv["messages"] += [
        {"role": "user", "content": u},
        dict(
            role="assistant",
            content=dumps(out),
            reasoning_content="JSON." if low else th,
            _final=True,
        ),
    ]
    return conv

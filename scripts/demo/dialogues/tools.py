# SPDX-License-Identifier: Apache-2.0
"""Conversations with tools: calls, parallel and synthetic ones, results, refusals."""

from xtml import dumps
from dialogues.canned import server, smalltalk
from dialogues.chats import add_turn, simple, start_conversation
from dialogues.facts import fact, general
from dialogues.generator import capitalised, noisy
from dialogues.refusals import notool
from dialogues.sums import arithmetic
from dialogues.texts import echo, story
from dialogues.tool_families import FAMILIES, fill, make_tool, tool_json
from dialogues.words import COLORS, NUMBER_WORDS

VERBS = (
    "get set find check create update delete open close start stop count show fetch load store move"
    " copy lock scan".split()
)

NOUNS = (
    "record door report ticket user file task room car order price score image page note device"
    " sensor account server battery window invoice project table queue".split()
)

PARAMETER_KINDS = [
    ("id", "integer"),
    ("name", "string"),
    ("count", "integer"),
    ("size", "integer"),
    ("color", "string"),
    ("level", "integer"),
    ("force", "boolean"),
    ("mode", "string"),
    ("tag", "string"),
    ("ratio", "number"),
    ("code", "string"),
    ("active", "boolean"),
    ("key", "string"),
    ("limit", "integer"),
    ("label", "string"),
    ("verbose", "boolean"),
    ("speed", "number"),
    ("title", "string"),
    ("tags", "array"),
    ("ids", "array"),
    ("filter", "object"),
    ("owner", "string"),
    ("total", "number"),
    ("enabled", "boolean"),
]


def call(i, name, args):
    """OpenAI's form of call number `i`."""
    return {
        "id": f"call_{i}",
        "type": "function",
        "function": {"name": name, "arguments": dumps(args)},
    }


def order_args(args):
    """Arguments in sorted key order, as the declaration lists them."""
    return {k: args[k] for k in sorted(args)}


def synth(g):
    """(name, declaration, arguments, request) of a made-up tool with random parameters."""
    name = g.draw(lambda: f"{g.choice(VERBS)}_{g.choice(NOUNS)}", lambda x: ("syn", x))
    ps = g.random.sample(PARAMETER_KINDS, g.number(1, 3))
    mk = {
        "integer": lambda: g.number(0, 999),
        "string": lambda: g.choice([g.word(), g.pseudo(), g.choice(COLORS), g.name()]),
        "boolean": lambda: g.chance(0.5),
        "number": lambda: g.choice([g.number(1, 99), g.number(1, 9) + 0.5, g.number(0, 9) + 0.25]),
        "array": lambda: g.choice(
            [
                lambda: [g.word() for _ in range(g.number(1, 3))],
                lambda: [g.number(0, 99) for _ in range(g.number(1, 3))],
            ]
        )(),
        "object": lambda: {g.choice(["name", "color", "type", "key"]): g.word()},
    }
    args = {k: mk[t]() for k, t in ps}
    t = tool_json(
        name,
        g.choice(
            [
                f"{capitalised(name.split('_')[0])} a {name.split('_')[1]}.",
                f"{capitalised(name.replace('_', ' '))}.",
            ]
        ),
        {k: {"type": t} for k, t in ps},
        [k for k, _ in ps],
    )
    v = lambda x: dumps(x) if not isinstance(x, str) else x
    kv = lambda f, j: j.join(f.format(k, v(args[k])) for k, _ in ps)
    ve, no = name.split("_")
    u = g.choice(
        [
            f"Call {name} with {kv('{} {}', ' and ')}.",
            f"Use {name} with {kv('{} = {}', ', ')}.",
            f"Call the tool {name}: {kv('{}={}', ', ')}",
            f"Please {ve} the {no} with {kv('{} {}', ' and ')}.",
            f"{capitalised(ve)} a {no}: {kv('{} {}', ', ')}.",
            f"{name}({kv('{}={}', ', ')})",
        ]
    )
    return name, t, args, u


def tools(g, kind=None):
    """A conversation with tools; `kind` says which sort."""
    conv = start_conversation(g)
    M = conv["messages"]
    kind = (
        kind
        or g.random.choices(
            ["call", "parallel", "synth", "none", "notneeded", "required", "after"],
            [44, 12, 20, 5, 12, 4, 3],
        )[0]
    )
    fams = g.random.sample(list(FAMILIES), g.random.choices([1, 2, 3, 4], [35, 30, 20, 15])[0])
    main = fams[0]
    low = conv.get("effort") == "low"
    if "calc" in fams and kind == "notneeded":
        fams = [f for f in fams if f != "calc"] or ["time"]
    made = {}
    for f in fams:
        for _ in range(20):
            made[f] = make_tool(g, f)
            if [m[0] for m in made.values()].count(made[f][0]) == 1:
                break
    name, keys, tj = made[main] if main in made else made[fams[0]]
    TL = [m[2] for m in made.values()]
    conv["topic"] = "tools"
    if kind == "notneeded":
        g.random.shuffle(TL)
        conv["tools"] = TL
        for _ in range(g.number(1, 2)):
            t = (
                notool(g, fams)
                if g.chance(0.15)
                else g.choice([fact, fact, general, smalltalk, server, echo, story])(g)
            )
            t["long"] += " No tool is needed."
            add_turn(conv, t)
        conv["topic"] = "tools-not-needed"
        return conv
    if kind == "synth":
        name, tj, args, u = synth(g)
        TL = [tj] + TL[1:]
        conv["topic"] = "tools-synthetic"
        a1 = [(name, order_args(args))]
        th = f"The user wants me to call {name}."
        res = [
            g.choice(
                [
                    "ok",
                    "done",
                    str(g.number(0, 999)),
                    g.word(),
                    dumps({"status": "ok"}),
                    dumps({"value": g.number(0, 999)}),
                ]
            )
        ]
        ans = f"The tool {name} returned: {res[0]}"
    elif kind == "parallel":
        ok = [f for f in ("weather", "time", "stock", "user", "define", "read") if f in FAMILIES]
        main = g.choice(ok)
        made = {main: make_tool(g, main)} | {
            f: v for f, v in made.items() if f != main and v[0] not in FAMILIES[main]["names"]
        }
        name, keys, tj = made[main]
        TL = [m[2] for m in made.values()][:4]
        s0 = list(FAMILIES[main]["params"])[0]
        n = g.random.choices([2, 3], [3, 1])[0]
        vals = []
        while len(vals) < n:
            x = FAMILIES[main]["params"][s0][2](g)
            if x not in vals:
                vals.append(x)
        join = ", ".join(map(str, vals[:-1])) + " and " + str(vals[-1])
        u = {
            "weather": [
                "What is the weather in {}?",
                "Weather in {}?",
                "Compare the weather in {}.",
                "How is the weather in {}?",
            ],
            "time": ["What time is it in {}?", "Time in {}?", "Tell me the time in {}."],
            "stock": ["Stock prices of {}?", "What are the prices of {}?", "Get quotes for {}."],
            "user": ["Get the users {}.", "Show me users {}.", "Look up users {}."],
            "define": ["Define {}.", "Look up the words {}.", "What do {} mean?"],
            "read": ["Read {}.", "Show me {}.", "Read the files {}."],
        }[main]
        u = g.choice(u).format(join)
        a1 = [(name, {keys[s0]: x}) for x in vals]
        rs = [FAMILIES[main]["res"](g, {s0: x}) for x in vals]
        res = [r[0] for r in rs]
        ans = " ".join(r[1] for r in rs)
        th = f"The user asks about {join}. I call {name} {NUMBER_WORDS[n]} times."
        conv["topic"] = "tools-parallel"
    else:
        (u, used, wants, s) = g.draw(
            lambda: fill(g, main), lambda x: ("tool", main, name, sorted(keys.values()), x[0])
        )
        a1 = [(name, order_args({keys[k]: x for k, x in used.items()}))]
        r = FAMILIES[main]["res"](g, s)
        res, ans = [r[0]], r[1]
        th = f"The user {wants}. I call {name}."
        if kind == "after" and not g.evaluating:
            add_turn(conv, simple(g))
    u = noisy(g, u) if g.chance(0.3) and u[0].isupper() and kind != "synth" and g.chance(0.5) else u
    g.random.shuffle(TL)
    conv["tools"] = TL
    if kind == "none":
        conv["tool_choice"] = "none"
        M += [
            {"role": "user", "content": u},
            dict(
                role="assistant",
                content="I am sorry, I am not allowed to call tools now.",
                reasoning_content=(
                    "No tool." if low else f"{th.split('.')[0]}. But I must not call tools now."
                ),
                _final=True,
            ),
        ]
        conv["topic"] = "tool-choice-none"
        return conv
    if kind in ("call", "synth") and g.chance(0.06) and not g.evaluating:
        e = g.choice(
            ["not found", "permission denied", "timeout", "no such file", "unknown " + g.word()]
        )
        res, ans = [f"error: {e}"], f"The tool reported an error: {e}"
    if kind == "required":
        conv["tool_choice"] = "required"
        conv["topic"] = "tool-choice-required"
    M += [
        {"role": "user", "content": u},
        dict(
            role="assistant",
            content="",
            reasoning_content=f"Call {name}." if low else th,
            tool_calls=[call(i, n, a) for i, (n, a) in enumerate(a1)],
            **({"_final": True} if kind == "required" else {}),
        ),
    ]
    conv["split"] = len(M) - 1
    if (
        g.evaluating
        and g.chance(0.6)
        or not g.evaluating
        and (kind == "required" or g.chance(0.25))
    ):
        return conv
    for i, r in enumerate(res):
        M.append(dict(role="tool", tool_call_id=f"call_{i}", content=r))
    M.append(
        dict(
            role="assistant",
            content=ans,
            reasoning_content=(
                "I have the result." if low else "The tool gave a result. I tell it to the user."
            ),
        )
    )
    conv["topic"] = "tool-result" if g.evaluating else conv["topic"]
    if not g.evaluating and g.chance(0.15):
        t = g.choice([smalltalk, fact, arithmetic])(g)
        t["long"] += " No tool is needed."
        add_turn(conv, t)
    return conv

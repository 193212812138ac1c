# SPDX-License-Identifier: Apache-2.0
"""25 families of tools: names, parameters, requests, results, answers."""

from dialogues.generator import capitalised
from dialogues.words import DAYS, NAMES, WORDS
from xtml import dumps


def path(g):
    """A file path."""
    return (
        g.choice(
            ["", "src/", "docs/", "/tmp/", "data/", "/home/" + g.choice(NAMES).lower() + "/", "./"]
        )
        + g.choice(
            [
                "notes",
                "report",
                "main",
                "index",
                "todo",
                "readme",
                "config",
                "test",
                g.word(),
                g.pseudo(),
            ]
        )
        + g.choice([".txt", ".md", ".py", ".json", ".csv", ".c", ".log", ".html"])
    )


def email(g):
    """A mail address."""
    return g.name().lower() + "@" + g.choice(["example.com", "mail.org", "test.net", "work.com"])


CURRENCY_CODES = ["EUR", "USD", "GBP", "JPY", "CHF"]

LANGUAGES = ["French", "German", "Spanish", "Italian", "Japanese", "Polish"]

ROOMS = ["kitchen", "bedroom", "living room", "bathroom", "office", "garage", "hall"]

SENTENCES = [
    "good morning",
    "I am hungry",
    "where is the station",
    "thank you very much",
    "the cat is black",
    "see you tomorrow",
    "my house is small",
    "I like music",
]


def family(names, desc, params, req, res, ans, think):
    """A family: names of its tools, description, parameters, requests, result, answer, thought."""
    return dict(names=names, desc=desc, params=params, req=req, res=res, ans=ans, think=think)


# param: slot -> (key variants, json type, sampler, description, required, enum)
FAMILIES = {
    "weather": family(
        [
            "get_weather",
            "weather",
            "current_weather",
            "fetch_weather",
            "getWeather",
            "weather_lookup",
        ],
        ["Current weather for a city.", "Get the weather.", "Returns the weather at a place."],
        {
            "c": (
                ["city", "location", "place", "town"],
                "string",
                lambda g: g.city(),
                "City name",
                True,
                None,
            ),
            "u": (
                ["units", "unit"],
                "string",
                lambda g: g.choice(["c", "f"]),
                "",
                False,
                ["c", "f"],
            ),
        },
        [
            "What is the weather in {c}?",
            "Weather in {c}?",
            "How is the weather in {c}?",
            "Is it cold in {c}?",
            "Tell me the weather for {c}.",
            "What's the weather like in {c}?",
            "Do I need a coat in {c}?",
            ("What is the weather in {c} in units {u}?", "u"),
            ("Weather in {c}, units {u}.", "u"),
        ],
        lambda g, s: (
            lambda t, k: (
                g.choice([f"{t}C, {k}", dumps({"temp": t, "sky": k}), f"{t} degrees and {k}"]),
                f"It is {t} degrees and {k} in {s['c']}.",
            )
        )(g.number(-9, 39), g.choice(["clear", "cloudy", "rainy", "sunny", "windy", "foggy"])),
        None,
        "wants the weather in {c}",
    ),
    "time": family(
        ["get_time", "current_time", "time_now", "clock", "get_current_time"],
        ["Current time in a city.", "Tells the time.", "Get local time."],
        {
            "c": (
                ["city", "location", "place", "zone"],
                "string",
                lambda g: g.city(),
                "City",
                True,
                None,
            )
        },
        [
            "What time is it in {c}?",
            "Time in {c}?",
            "Tell me the time in {c}.",
            "How late is it in {c}?",
            "What is the local time in {c}?",
        ],
        lambda g, s: (lambda t: (g.choice([t, dumps({"time": t})]), f"It is {t} in {s['c']}."))(
            f"{g.number(0, 23):02d}:{g.number(0, 59):02d}"
        ),
        None,
        "wants the time in {c}",
    ),
    "search": family(
        ["search", "web_search", "search_web", "google", "find"],
        ["Search the web.", "Web search.", "Find pages."],
        {
            "q": (
                ["query", "q", "text", "term"],
                "string",
                lambda g: g.words(1, 3),
                "Search text",
                True,
                None,
            ),
            "n": (
                ["limit", "count", "max_results"],
                "integer",
                lambda g: g.number(1, 20),
                "",
                False,
                None,
            ),
        },
        [
            "Search for {q}.",
            "Search the web for {q}.",
            "Look up {q}.",
            "Find pages about {q}.",
            "Can you search for {q}?",
            ("Search for {q} and show {n} results.", "n"),
            ("Find {n} results about {q}.", "n"),
        ],
        lambda g, s: (
            lambda w: (f"{capitalised(s['q'])} - {w}", f"I found this: {capitalised(s['q'])} - {w}")
        )(
            g.choice(
                ["a short guide", "history and facts", "the best tips", "all you need to know"]
            )
        ),
        None,
        "wants a search for {q}",
    ),
    "email": family(
        ["send_email", "email", "send_mail", "mail"],
        ["Send an email.", "Sends a mail."],
        {
            "t": (
                ["to", "recipient", "address"],
                "string",
                lambda g: email(g),
                "Address",
                True,
                None,
            ),
            "b": (
                ["body", "text", "message", "content"],
                "string",
                lambda g: g.choice(
                    [
                        "I am late",
                        "see you soon",
                        "happy birthday",
                        "the meeting is at 10",
                        "thank you",
                        g.words(2, 4),
                    ]
                ),
                "Text",
                True,
                None,
            ),
        },
        [
            "Send an email to {t} saying {b}.",
            "Email {t}: {b}",
            "Write to {t} that {b}.",
            "Send {t} a mail with the text {b}.",
        ],
        lambda g, s: (
            g.choice(["ok", "sent", dumps({"status": "sent"})]),
            f"The email to {s['t']} was sent.",
        ),
        None,
        "wants to send an email to {t}",
    ),
    "timer": family(
        ["set_timer", "timer", "start_timer", "create_timer"],
        ["Start a timer.", "Sets a timer."],
        {
            "m": (
                ["minutes", "duration", "min"],
                "integer",
                lambda g: g.number(1, 90),
                "Minutes",
                True,
                None,
            )
        },
        [
            "Set a timer for {m} minutes.",
            "Timer {m} minutes.",
            "Start a timer of {m} minutes.",
            "Wake me in {m} minutes.",
            "Remind me in {m} minutes.",
        ],
        lambda g, s: (
            g.choice(["ok", "timer started", dumps({"ok": True})]),
            f"The timer is set for {s['m']} minutes.",
        ),
        None,
        "wants a timer for {m} minutes",
    ),
    "convert": family(
        ["convert_currency", "currency", "exchange", "convert_money"],
        ["Convert money.", "Currency conversion."],
        {
            "a": (
                ["amount", "value", "sum"],
                "number",
                lambda g: g.choice([g.number(1, 999), g.number(1, 99) + 0.5]),
                "Amount",
                True,
                None,
            ),
            "f": (
                ["from", "source", "from_currency"],
                "string",
                lambda g: g.choice(CURRENCY_CODES),
                "",
                True,
                None,
            ),
            "t": (
                ["to", "target", "to_currency"],
                "string",
                lambda g: g.choice(CURRENCY_CODES),
                "",
                True,
                None,
            ),
        },
        [
            "Convert {a} {f} to {t}.",
            "How much is {a} {f} in {t}?",
            "Change {a} {f} into {t}.",
            "{a} {f} to {t}?",
        ],
        lambda g, s: (
            lambda x: (
                g.choice([str(x), dumps({"result": x})]),
                f"{s['a']} {s['f']} is {x} {s['t']}.",
            )
        )(g.number(1, 999)),
        None,
        "wants to convert {a} {f} to {t}",
    ),
    "translate": family(
        ["translate", "translate_text", "translator"],
        ["Translate text.", "Translates into a language."],
        {
            "x": (
                ["text", "sentence", "input"],
                "string",
                lambda g: g.choice(SENTENCES),
                "Text",
                True,
                None,
            ),
            "l": (
                ["language", "target", "lang"],
                "string",
                lambda g: g.choice(LANGUAGES),
                "Language",
                True,
                None,
            ),
        },
        [
            "Translate '{x}' to {l}.",
            'Translate "{x}" into {l}.',
            "Use the tool to translate '{x}' into {l}.",
            'How do you say "{x}" in {l}?',
        ],
        lambda g, s: (lambda w: (w, f"The translation is: {w}"))(
            " ".join(g.pseudo() for _ in range(g.number(1, 3)))
        ),
        None,
        "wants a translation to {l}",
    ),
    "calc": family(
        ["calculator", "calculate", "calc", "evaluate", "math"],
        ["Evaluate an expression.", "Calculator.", "Does math."],
        {
            "e": (
                ["expression", "expr", "formula"],
                "string",
                lambda g: (
                    f"{g.number(100, 9999)} {g.choice(['+', '-', '*', '/'])} {g.number(100, 9999)}"
                ),
                "Expression",
                True,
                None,
            )
        },
        ["What is {e}?", "Calculate {e}.", "Compute {e}.", "How much is {e}?", "{e}"],
        lambda g, s: (lambda x: (g.choice([str(x), dumps({"result": x})]), f"The result is {x}."))(
            g.number(1, 99999)
        ),
        None,
        "wants to know {e}. That is a job for the calculator",
    ),
    "read": family(
        ["read_file", "open_file", "cat", "get_file", "file_read"],
        ["Read a file.", "Returns the content of a file."],
        {
            "p": (
                ["path", "file", "filename", "file_path"],
                "string",
                path,
                "Path of the file",
                True,
                None,
            )
        },
        [
            "Read the file {p}.",
            "Show me {p}.",
            "What is in {p}?",
            "Open {p}.",
            "Print the content of {p}.",
            "Please read {p}.",
            "Read {p}",
        ],
        lambda g, s: (lambda w: (w, f"The file {s['p']} contains: {w}"))(g.words(2, 4)),
        None,
        "wants to see the file {p}",
    ),
    "write": family(
        ["write_file", "save_file", "create_file", "write_to_file"],
        ["Write a file.", "Saves text to a file."],
        {
            "p": (["path", "file", "filename", "file_path"], "string", path, "Path", True, None),
            "x": (
                ["content", "text", "data"],
                "string",
                lambda g: g.words(1, 4),
                "Text",
                True,
                None,
            ),
        },
        [
            "Write {x} to the file {p}.",
            "Save {x} in {p}.",
            "Create the file {p} with the text {x}.",
            "Put {x} into {p}.",
            'Write "{x}" to {p}',
        ],
        lambda g, s: (
            g.choice(["ok", "written", dumps({"ok": True})]),
            f"I wrote the text to {s['p']}.",
        ),
        None,
        "wants to write the file {p}",
    ),
    "list": family(
        ["list_files", "ls", "list_directory", "list_dir"],
        ["List files in a folder.", "Shows a directory."],
        {
            "p": (
                ["path", "dir", "folder", "directory"],
                "string",
                lambda g: g.choice(
                    [
                        "/tmp",
                        "src",
                        "docs",
                        "/home/" + g.choice(NAMES).lower(),
                        "data",
                        ".",
                        "/etc",
                        g.word(),
                    ]
                ),
                "Folder",
                True,
                None,
            )
        },
        [
            "List the files in {p}.",
            "What files are in {p}?",
            "Show the folder {p}.",
            "Which files are in {p}?",
            "ls {p}",
        ],
        lambda g, s: (
            lambda a: (g.choice(["\n".join(a), dumps(a)]), f"The files are {' and '.join(a)}.")
        )([g.word() + g.choice([".txt", ".md", ".py"]) for _ in range(2)]),
        None,
        "wants the files in {p}",
    ),
    "bash": family(
        ["bash", "shell", "run_command", "execute_command", "terminal"],
        ["Run a shell command.", "Executes a command."],
        {
            "x": (
                ["command", "cmd", "script"],
                "string",
                lambda g: g.choice(
                    [
                        "ls -la",
                        "pwd",
                        "whoami",
                        "date",
                        "uptime",
                        "df -h",
                        "git status",
                        "make test",
                        f"cat {path(g)}",
                        f"rm {path(g)}",
                        f"echo {g.word()}",
                        f"mkdir {g.word()}",
                        f"grep {g.word()} {path(g)}",
                        "ls",
                    ]
                ),
                "Command",
                True,
                None,
            )
        },
        [
            "Run {x}.",
            "Run the command {x}",
            "Execute {x}",
            "Please run `{x}`.",
            "Use the shell to run {x}",
            "Run `{x}`",
        ],
        lambda g, s: (lambda w: (w, f"The command printed: {w}"))(
            g.choice([g.words(1, 3), "ok", g.word() + ".txt", str(g.number(0, 999))])
        ),
        None,
        "wants to run {x}",
    ),
    "music": family(
        ["play_music", "play_song", "play", "music_player"],
        ["Play a song.", "Plays music."],
        {
            "s": (
                ["song", "title", "track", "name"],
                "string",
                lambda g: g.words(1, 2),
                "Song",
                True,
                None,
            )
        },
        [
            "Play {s}.",
            "Play the song {s}.",
            "I want to hear {s}.",
            "Put on {s}, please.",
            "Can you play {s}?",
        ],
        lambda g, s: (g.choice(["playing", "ok"]), f"I am playing {s['s']}."),
        None,
        "wants to hear {s}",
    ),
    "todo": family(
        ["add_todo", "add_task", "create_task", "new_todo"],
        ["Add a task.", "Adds an item to the list."],
        {
            "t": (
                ["task", "title", "item", "text"],
                "string",
                lambda g: g.choice(["buy ", "clean the ", "find the ", "sell the ", "fix the "])
                + g.word(),
                "Task",
                True,
                None,
            ),
            "p": (
                ["priority", "prio"],
                "string",
                lambda g: g.choice(["low", "high"]),
                "",
                False,
                ["low", "high"],
            ),
        },
        [
            "Add {t} to my list.",
            "Add the task {t}.",
            "New task: {t}",
            "Put {t} on my todo list.",
            ("Add the task {t} with {p} priority.", "p"),
            ("New {p} priority task: {t}", "p"),
        ],
        lambda g, s: (
            lambda i: (
                g.choice([dumps({"id": i}), f"added as {i}"]),
                f"I added the task with number {i}.",
            )
        )(g.number(1, 99)),
        None,
        "wants to add a task: {t}",
    ),
    "stock": family(
        ["get_stock", "stock_price", "stock", "quote"],
        ["Stock price of a symbol.", "Get a stock quote."],
        {
            "s": (
                ["symbol", "ticker", "stock"],
                "string",
                lambda g: "".join(
                    g.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(g.number(2, 4))
                ),
                "Symbol",
                True,
                None,
            )
        },
        [
            "What is the stock price of {s}?",
            "Price of {s}?",
            "How is {s} doing?",
            "Get the quote for {s}.",
            "Stock {s}, please.",
        ],
        lambda g, s: (
            lambda x: (g.choice([str(x), dumps({"price": x})]), f"The price of {s['s']} is {x}.")
        )(g.number(1, 999)),
        None,
        "wants the stock price of {s}",
    ),
    "light": family(
        ["set_light", "switch_light", "light", "toggle_light", "turn_light"],
        ["Switch a light.", "Controls the light in a room."],
        {
            "r": (
                ["room", "location", "place"],
                "string",
                lambda g: g.choice(ROOMS),
                "Room",
                True,
                None,
            ),
            "o": (
                ["on", "state", "enabled"],
                "boolean",
                lambda g: g.chance(0.5),
                "On or off",
                True,
                None,
            ),
        },
        [
            "Turn {O} the light in the {r}.",
            "Switch {O} the {r} light.",
            "Light {O} in the {r}.",
            "Please turn the light in the {r} {O}.",
            "{r} light {O}",
        ],
        lambda g, s: (
            g.choice(["ok", "done", dumps({"ok": True})]),
            f"The light in the {s['r']} is {'on' if s['o'] else 'off'} now.",
        ),
        None,
        "wants the light in the {r} {O}",
    ),
    "heat": family(
        ["set_temperature", "thermostat", "heating", "set_heat"],
        ["Set the temperature of a room.", "Controls the heating."],
        {
            "r": (
                ["room", "location", "zone"],
                "string",
                lambda g: g.choice(ROOMS),
                "Room",
                True,
                None,
            ),
            "d": (
                ["degrees", "temperature", "value", "target"],
                "number",
                lambda g: g.choice([g.number(15, 27), g.number(15, 27) + 0.5]),
                "Degrees",
                True,
                None,
            ),
        },
        [
            "Set the {r} to {d} degrees.",
            "Heat the {r} to {d}.",
            "Make it {d} degrees in the {r}.",
            "Temperature in the {r}: {d}.",
        ],
        lambda g, s: (g.choice(["ok", "done"]), f"The {s['r']} is set to {s['d']} degrees."),
        None,
        "wants {d} degrees in the {r}",
    ),
    "table": family(
        ["book_table", "reserve_table", "make_reservation", "reservation"],
        ["Book a table.", "Restaurant reservation."],
        {
            "n": (
                ["people", "guests", "persons", "party_size"],
                "integer",
                lambda g: g.number(1, 12),
                "People",
                True,
                None,
            ),
            "t": (
                ["time", "hour", "at"],
                "string",
                lambda g: f"{g.number(11, 22)}:{g.choice(['00', '15', '30', '45'])}",
                "Time",
                True,
                None,
            ),
        },
        [
            "Book a table for {n} at {t}.",
            "Reserve a table for {n} people at {t}.",
            "I need a table at {t} for {n}.",
            "Table for {n} at {t}, please.",
        ],
        lambda g, s: (
            g.choice(["confirmed", "ok", dumps({"status": "confirmed"})]),
            f"Your table for {s['n']} at {s['t']} is booked.",
        ),
        None,
        "wants a table for {n} at {t}",
    ),
    "user": family(
        ["get_user", "find_user", "user_info", "lookup_user"],
        ["Get a user by id.", "User information."],
        {
            "i": (
                ["id", "user_id", "number"],
                "integer",
                lambda g: g.number(1, 9999),
                "Id",
                True,
                None,
            )
        },
        [
            "Get user {i}.",
            "Who is user {i}?",
            "Show me the user with id {i}.",
            "Find user number {i}.",
            "Look up user {i}.",
        ],
        lambda g, s: (lambda n: (g.choice([n, dumps({"name": n})]), f"User {s['i']} is {n}."))(
            g.name()
        ),
        None,
        "wants to know user {i}",
    ),
    "delete": family(
        ["delete_item", "remove_item", "delete", "remove"],
        ["Delete an item.", "Removes an item by id."],
        {
            "i": (
                ["id", "item_id", "item"],
                "integer",
                lambda g: g.number(1, 9999),
                "Id",
                True,
                None,
            )
        },
        [
            "Delete item {i}.",
            "Remove item {i}.",
            "Please delete number {i}.",
            "Delete the item with id {i}.",
        ],
        lambda g, s: (g.choice(["deleted", "ok"]), f"Item {s['i']} was deleted."),
        None,
        "wants to delete item {i}",
    ),
    "define": family(
        ["define_word", "dictionary", "define", "lookup_word"],
        ["Definition of a word.", "Look up a word."],
        {
            "w": (
                ["word", "term", "entry"],
                "string",
                lambda g: g.choice([g.word(), g.pseudo()]),
                "Word",
                True,
                None,
            )
        },
        [
            "Define {w}.",
            "What does {w} mean?",
            "Look up the word {w}.",
            "Give me the definition of {w}.",
            "Definition of {w}?",
        ],
        lambda g, s: (lambda d: (d, f"{capitalised(s['w'])} means: {d}"))(
            g.choice(["a kind of ", "a small ", "an old word for ", "another name for "]) + g.word()
        ),
        None,
        "wants the meaning of {w}",
    ),
    "dist": family(
        ["get_distance", "distance", "route", "travel_distance"],
        ["Distance between two cities.", "Compute a distance."],
        {
            "a": (["from", "origin", "start"], "string", lambda g: g.city(), "Start", True, None),
            "b": (["to", "destination", "end"], "string", lambda g: g.city(), "End", True, None),
        },
        [
            "How far is it from {a} to {b}?",
            "Distance from {a} to {b}?",
            "What is the distance between {a} and {b}?",
            "How many km from {a} to {b}?",
        ],
        lambda g, s: (
            lambda x: (
                g.choice([f"{x} km", dumps({"km": x})]),
                f"It is {x} km from {s['a']} to {s['b']}.",
            )
        )(g.number(20, 9999)),
        None,
        "wants the distance from {a} to {b}",
    ),
    "event": family(
        ["create_event", "add_event", "new_event", "schedule"],
        ["Create a calendar event.", "Adds an event."],
        {
            "t": (
                ["title", "name", "event"],
                "string",
                lambda g: g.choice(["lunch with ", "meeting with ", "call with ", "party with "])
                + g.name(),
                "Title",
                True,
                None,
            ),
            "d": (["day", "date", "when"], "string", lambda g: g.choice(DAYS), "Day", True, None),
        },
        [
            "Plan {t} on {d}.",
            "Add {t} on {d} to my calendar.",
            "Schedule {t} for {d}.",
            "Create an event on {d}: {t}",
        ],
        lambda g, s: (g.choice(["created", "ok"]), f"I added {s['t']} on {s['d']}."),
        None,
        "wants an event on {d}",
    ),
    "order": family(
        ["order_item", "buy", "place_order", "order"],
        ["Order something.", "Buy an item."],
        {
            "i": (
                ["item", "product", "article"],
                "string",
                lambda g: g.choice(WORDS),
                "Item",
                True,
                None,
            ),
            "n": (
                ["quantity", "count", "amount"],
                "integer",
                lambda g: g.number(1, 50),
                "How many",
                True,
                None,
            ),
            "e": (
                ["express", "fast", "urgent"],
                "boolean",
                lambda g: g.chance(0.5),
                "",
                False,
                None,
            ),
        },
        [
            "Order {n} of {i}.",
            "Buy {n} x {i}.",
            "I want {n} of the item {i}.",
            ("Order {n} of {i} {E}.", "e"),
        ],
        lambda g, s: (
            lambda x: (g.choice([dumps({"order": x}), f"order {x}"]), f"Your order number is {x}.")
        )(g.number(100, 9999)),
        None,
        "wants to order {n} of {i}",
    ),
    "dice": family(
        ["roll_dice", "dice", "roll"],
        ["Roll dice.", "Throws dice."],
        {
            "n": (
                ["count", "dice", "number"],
                "integer",
                lambda g: g.number(1, 9),
                "How many dice",
                True,
                None,
            ),
            "s": (
                ["sides", "faces"],
                "integer",
                lambda g: g.choice([4, 6, 8, 10, 12, 20]),
                "Sides",
                True,
                None,
            ),
        },
        [
            "Roll {n} dice with {s} sides.",
            "Throw {n} dice, {s} sides each.",
            "Roll {n} times a die with {s} sides.",
        ],
        lambda g, s: (lambda x: (g.choice([str(x), dumps({"total": x})]), f"You rolled {x}."))(
            g.number(1, 99)
        ),
        None,
        "wants to roll dice",
    ),
}


def tool_json(name, desc, props, req):
    """OpenAI's declaration of a tool."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": desc,
            "parameters": {"type": "object", "properties": props, "required": req},
        },
    }


def make_tool(g, fam):
    """(name, names of the parameters, declaration) of a tool of the family."""
    f = FAMILIES[fam]
    name = g.choice(f["names"])
    keys = {}
    for s, p_ in f["params"].items():
        k = g.choice(p_[0])
        while k in keys.values():
            k = g.choice(p_[0])
        keys[s] = k
    props = {}
    for s, (kv, ty, sm, ds, rq, en) in f["params"].items():
        d = {"type": ty}
        if ds and g.chance(0.4):
            d["description"] = ds
        if en:
            d["enum"] = en
        props[keys[s]] = d
    return (
        name,
        keys,
        tool_json(
            name, g.choice(f["desc"]), props, [keys[s] for s, p_ in f["params"].items() if p_[4]]
        ),
    )


def fill(g, fam):
    """(request, arguments, what the user wants, all slots) for a tool of the family."""
    f = FAMILIES[fam]
    s = {k: p_[2](g) for k, p_ in f["params"].items()}
    r = g.choice(f["req"])
    opt = r[1] if isinstance(r, tuple) else ""
    r = r[0] if isinstance(r, tuple) else r
    v = dict(s)
    if "o" in s and isinstance(s["o"], bool):
        v["O"] = "on" if s["o"] else "off"
    if "e" in s and isinstance(s["e"], bool):
        v["E"] = "with express delivery" if s["e"] else "without express delivery"
    if fam == "convert":
        while s["f"] == s["t"]:
            s["t"] = g.choice(CURRENCY_CODES)
        v = dict(s)
    used = {k: s[k] for k, p_ in f["params"].items() if p_[4] or k in opt}
    return r.format(**v), used, f["think"].format(**v), s

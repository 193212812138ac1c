# SPDX-License-Identifier: Apache-2.0
"""K3's chat format: conversations to segments (text, is markup, loss weight), replies back."""

import json


def esc(v):
    return v.replace("&", "&amp;").replace('"', "&quot;")


def dumps(v):
    return json.dumps(v, ensure_ascii=False)


def schema(v):
    """Compact, sorted: as tools and schemas are declared."""
    return json.dumps(v, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the"
    " response channel), supported values include `low`, `medium`, `high`, and `max`.\nNow the"
    " system is invoked with `thinking_effort=%s`."
)
CHOICE = {
    "required": (
        "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next"
        " message."
    ),
    "none": (
        "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next"
        " message."
    ),
}
RAWJSON = (
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional"
    " formatting."
)


class Segments(list):
    """Segments as they are appended; `w` is the weight of the next ones."""

    w = 0.0

    def m(self, t):
        self.append((t, True, self.w))

    def t(self, t):
        if t:
            self.append((t, False, self.w))

    def open(self, tag, **attrs):
        self.m("<|open|>")
        self.t(tag)
        for k, v in attrs.items():
            self.t(" " + k)
            self.t('="')
            self.t(esc(str(v)))
            self.t('"')
        self.m("<|sep|>")

    def close(self, tag):
        self.m("<|close|>")
        self.t(tag)
        self.m("<|sep|>")

    def system(self, typ, text):
        self.open("message", role="system", type=typ)
        self.t(text)
        self.close("message")
        self.m("<|end_of_msg|>")


def typ(v):
    """(type, text) of an argument."""
    if isinstance(v, bool):
        return "boolean", dumps(v)
    if v is None:
        return "null", "null"
    if isinstance(v, (int, float)):
        return "number", dumps(v)
    if isinstance(v, str):
        return "string", v
    return ("object" if isinstance(v, dict) else "array"), dumps(v)


def calls(s, tool_calls):
    s.open("tools")
    for i, c in enumerate(tool_calls, 1):
        f = c["function"]
        s.open("call", tool=f["name"], index=i)
        a = f["arguments"]
        a = json.loads(a) if isinstance(a, str) else a
        for k, v in a.items():
            t, x = typ(v)
            s.open("argument", key=k, type=t)
            s.t(x)
            s.close("argument")
        s.close("call")
    s.close("tools")


def render(conv, generation_prompt=True):
    """The segments of {messages, tools?, thinking, effort?, tool_choice?, response_format?}.

    What the assistant writes gets weight 1: the part that is trained.
    """
    s = Segments()
    think = conv.get("thinking", True)
    if conv.get("tools"):
        s.system(
            "tool-declare",
            "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n"
            + schema(conv["tools"])
            + "\n```",
        )
    if think and conv.get("effort"):
        s.system("thinking-effort", EFFORT % conv["effort"])
    last, n_tool = [], 0
    msgs = conv["messages"]
    for m in msgs:
        if m.get("_final"):
            tail(s, conv)  # training: the control messages stand right before the last answer
        r = m["role"]
        if r in ("user", "system"):
            s.open("message", role=r)
            s.t(m["content"])
        elif r == "tool":
            n_tool += 1
            c = last[n_tool - 1] if n_tool <= len(last) else {}
            s.open(
                "message",
                role="tool",
                tool=c.get("function", {}).get("name", m.get("tool", "tool")),
                index=n_tool,
            )
            s.t(m["content"])
        elif r == "assistant":
            n_tool = 0
            last = m.get("tool_calls", [])
            s.open("message", role=r)
            if think:
                s.open("think")
                s.w = m.get("_w", 1.0)
                s.t(m.get("reasoning_content") or "")
                s.close("think")
                s.open("response")
            else:
                s.open("response")
            s.w = m.get("_w", 1.0)
            s.t(m.get("content") or "")
            s.close("response")
            if last:
                calls(s, last)
        s.close("message")
        s.m("<|end_of_msg|>")
        s.w = 0.0
    if generation_prompt:
        tail(s, conv)
        s.open("message", role="assistant")
        s.open("think" if think else "response")
    return s


def tail(s, conv):
    """The messages before an answer that say how to give it."""
    if conv.get("tool_choice") in CHOICE:
        s.system("tool-choice", CHOICE[conv["tool_choice"]])
    rf = conv.get("response_format")
    if rf and rf["type"] == "json_object":
        s.system(
            "response-format",
            "The system is invoked with `response_format=json_object`.\n" + RAWJSON,
        )
    if rf and rf["type"] == "json_schema":
        j = rf["json_schema"]
        s.system(
            "response-format",
            "The system is invoked with `response_format=json_schema`.\n"
            + RAWJSON
            + "\nThe JSON data must match the following schema:\n```json\n"
            + schema(j.get("schema") or j.get("json_schema") or j)
            + "\n```",
        )


def parse(ids, tok, thinking):
    """{reasoning, content, calls, ok, stopped} of the ids of a reply; ok: strictly well-formed."""
    O, C, S, END = tok.open, tok.close, tok.sep, tok.end
    stack = ["message", "think" if thinking else "response"]
    out = {"think": [], "response": []}
    cl = []
    ok = True
    i = 0
    cur = None
    stopped = False
    seen = [stack[-1]]
    while i < len(ids):
        t = ids[i]
        if t == END:
            stopped = True
            break
        if t in (O, C):
            j = i + 1
            while j < len(ids) and ids[j] < 4096:
                j += 1
            if j >= len(ids) or ids[j] != S:
                ok = False
                break
            head = tok.decode(ids[i + 1 : j])
            if t == C:
                if stack and stack[-1] == head:
                    stack.pop()
                else:
                    ok = False
                if head == "argument" and cl and cur:
                    k, ty, v = cur
                    cl[-1]["args"].append((k, ty, tok.decode(v)))
                    cur = None
            else:
                name = head.split(" ")[0]
                at = {}
                for part in head[len(name) :].split('" '):
                    if "=" in part:
                        k, v = part.strip().split("=", 1)
                        at[k] = v.strip('"').replace("&quot;", '"').replace("&amp;", "&")
                stack.append(name)
                seen.append(name)
                if name == "call":
                    cl.append({"name": at.get("tool"), "index": at.get("index"), "args": []})
                elif name == "argument":
                    cur = (at.get("key"), at.get("type"), [])
            i = j + 1
            continue
        if t >= 4096:
            ok = False
        if cur is not None:
            cur[2].append(t)
        elif stack and stack[-1] in out:
            out[stack[-1]].append(t)
        else:
            ok = False
        i += 1
    ok = ok and stopped and not stack and "response" in seen
    res = []
    for c in cl:
        a = {}
        for k, ty, v in c["args"]:
            if ty == "string":
                a[k] = v
            else:
                try:
                    a[k] = json.loads(v)
                except Exception:
                    a[k] = v
                    ok = False
        res.append({"name": c["name"], "arguments": a})
    return {
        "reasoning": tok.decode(out["think"]),
        "content": tok.decode(out["response"]),
        "calls": res,
        "ok": ok,
        "stopped": stopped,
    }

# SPDX-License-Identifier: Apache-2.0
"""OpenAI's official client for Python: openai_python.py BASE_URL"""

import json
import sys

import openai

MODEL = "demo"
FACT = [{"role": "user", "content": "What is the capital of France?"}]
TOOL_QUESTION = [{"role": "user", "content": "Email jane@test.net: thank you"}]
TOOLS = [{"type": "function", "function": {
    "name": "mail", "description": "Sends a mail.", "parameters": {
        "type": "object", "properties": {"to": {"type": "string"}, "message": {"type": "string"}},
        "required": ["to", "message"]}}}]

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)


def create(**request):
    return client.chat.completions.create(model=MODEL, **request)


def chats():
    reply = create(messages=FACT, extra_body={"thinking": {"type": "disabled"}})
    assert "Paris" in reply.choices[0].message.content
    assert not hasattr(reply.choices[0].message, "reasoning_content")
    usage = reply.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    return reply.choices[0].message.content


def streams(expected):
    content, usage = "", None
    for chunk in create(messages=FACT, stream=True, stream_options={"include_usage": True},
                        extra_body={"thinking": {"type": "disabled"}}):
        if chunk.choices:
            content += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert content == expected, content
    assert usage.completion_tokens > 0


def calls_a_tool():
    with client.chat.completions.stream(model=MODEL, messages=TOOL_QUESTION,
                                        tools=TOOLS) as stream:
        message = stream.get_final_completion().choices[0].message
    call = message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"message": "thank you", "to": "jane@test.net"}
    reply = create(messages=[*TOOL_QUESTION, message.model_dump(exclude_none=True),
                             {"role": "tool", "tool_call_id": call.id, "content": "Sent."}],
                   tools=TOOLS)
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].message.content


def tells_errors():
    try:
        create(messages=FACT, n=2)
    except openai.BadRequestError as error:
        assert error.param == "n" and error.request_id.startswith("req_")
    else:
        raise AssertionError("n = 2 was taken")


assert client.models.list().data[0].id == MODEL
streams(chats())
calls_a_tool()
assert client.completions.create(model=MODEL, prompt="The capital of", max_tokens=5).choices[0].text
tells_errors()

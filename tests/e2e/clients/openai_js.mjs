// SPDX-License-Identifier: Apache-2.0
// OpenAI's official client for JavaScript: openai_js.mjs BASE_URL PACKAGE
import assert from "node:assert/strict";
import * as q from "./questions.mjs";

const [baseURL, packageName] = process.argv.slice(2);
const { default: OpenAI } = await import(packageName);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const create = (request) => client.chat.completions.create({ model: q.MODEL, ...request });
const user = (content) => [{ role: "user", content }];

async function listsModels() {
  const models = await client.models.list();
  assert.equal(models.data[0].id, q.MODEL);
  assert.equal((await client.models.retrieve(q.MODEL)).id, q.MODEL);
}

async function chats() {
  const reply = await create({ messages: user(q.FACT.question), reasoning_effort: "low" });
  assert.match(reply.choices[0].message.content, q.FACT.answer);
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.ok(reply.choices[0].message.reasoning_content);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
  return reply.choices[0].message.content;
}

async function streams(expected) {
  const stream = await create({
    messages: user(q.FACT.question), reasoning_effort: "low", stream: true,
    stream_options: { include_usage: true },
  });
  let content = "", usage, finish;
  for await (const chunk of stream) {
    content += chunk.choices[0]?.delta.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(content, expected);
  assert.equal(finish, "stop");
  assert.ok(usage.completion_tokens > 0);
}

// By the client's own folding of a stream, whose message goes back as it is.
async function callsATool() {
  const tools = [{ type: "function", function: q.MAIL }];
  const helper = client.chat.completions.stream ?? client.beta.chat.completions.stream;
  const owner = client.chat.completions.stream ? client.chat.completions
    : client.beta.chat.completions;
  const streamed = helper.call(owner, { model: q.MODEL, messages: user(q.TOOL_QUESTION), tools });
  const message = (await streamed.finalChatCompletion()).choices[0].message;
  const call = message.tool_calls[0];
  assert.equal(call.function.name, "mail");
  assert.deepEqual(JSON.parse(call.function.arguments), q.MAIL_ARGUMENTS);
  const unstreamed = await create({ messages: user(q.TOOL_QUESTION), tools });
  assert.equal(unstreamed.choices[0].finish_reason, "tool_calls");
  assert.equal(unstreamed.choices[0].message.tool_calls[0].function.arguments,
    call.function.arguments);
  const reply = await create({
    messages: [...user(q.TOOL_QUESTION), message,
      { role: "tool", tool_call_id: call.id, content: q.MAIL_RESULT }],
    tools,
  });
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.ok(reply.choices[0].message.content);
}

async function completesText() {
  const reply = await client.completions.create(
    { model: q.MODEL, prompt: "The capital of", max_tokens: 5 });
  assert.ok(reply.choices[0].text);
  assert.equal(reply.usage.completion_tokens, 5);
}

async function tellsErrors() {
  await assert.rejects(create({ messages: user("x"), n: 2 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "n");
    assert.equal(error.code, "unsupported_value");
    assert.ok((error.request_id ?? error.requestID).startsWith("req_"));
    return true;
  });
}

async function abandonsAStream() {
  const stream = await create({ messages: user(q.FACT.question), stream: true });
  for await (const _ of stream) break;
  stream.controller.abort();
}

await listsModels();
await streams(await chats());
await callsATool();
await completesText();
await tellsErrors();
await abandonsAStream();
await chats();

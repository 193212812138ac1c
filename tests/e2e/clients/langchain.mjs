// SPDX-License-Identifier: Apache-2.0
// LangChain: langchain.mjs BASE_URL
import assert from "node:assert/strict";
import { ChatOpenAI } from "@langchain/openai";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import * as q from "./questions.mjs";

const model = new ChatOpenAI({
  model: q.MODEL, apiKey: "any", maxRetries: 0,
  configuration: { baseURL: process.argv[2] },
});

const reply = await model.invoke(q.FACT.question);
assert.match(reply.content, q.FACT.answer);
assert.ok(reply.usage_metadata.output_tokens > 0);

let content = "";
for await (const chunk of await model.stream(q.FACT.question)) content += chunk.content;
assert.equal(content, reply.content);

const bound = model.bindTools([{ type: "function", function: q.MAIL }]);
const question = new HumanMessage(q.TOOL_QUESTION);
const calling = await bound.invoke([question]);
assert.equal(calling.tool_calls[0].name, "mail");
assert.deepEqual(calling.tool_calls[0].args, q.MAIL_ARGUMENTS);
const answered = await bound.invoke([question, calling, new ToolMessage({
  tool_call_id: calling.tool_calls[0].id, content: q.MAIL_RESULT })]);
assert.ok(answered.content);

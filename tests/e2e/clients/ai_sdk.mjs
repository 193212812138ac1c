// SPDX-License-Identifier: Apache-2.0
// Vercel's ai with its provider for compatible servers: ai_sdk.mjs BASE_URL
import assert from "node:assert/strict";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as q from "./questions.mjs";

const provider = createOpenAICompatible(
  { name: "penstock", baseURL: process.argv[2], apiKey: "any", includeUsage: true });
const model = provider(q.MODEL);

const reply = await generateText({ model, prompt: q.FACT.question, maxRetries: 0 });
assert.match(reply.text, q.FACT.answer);
assert.ok(reply.reasoningText);
assert.equal(reply.finishReason, "stop");
assert.ok(reply.usage.inputTokens > 0 && reply.usage.outputTokens > 0);

const stream = streamText({ model, prompt: q.FACT.question, maxRetries: 0 });
let text = "";
for await (const part of stream.textStream) text += part;
assert.equal(text, reply.text);
assert.ok((await stream.usage).outputTokens > 0);

// Two steps: the call, and the answer to its result.
const calls = [];
const mail = tool({
  description: q.MAIL.description,
  inputSchema: jsonSchema(q.MAIL_PARAMETERS),
  execute: async (input) => {
    calls.push(input);
    return q.MAIL_RESULT;
  },
});
const steps = await generateText({
  model, prompt: q.TOOL_QUESTION, tools: { mail }, stopWhen: stepCountIs(3), maxRetries: 0,
});
assert.deepEqual(calls, [q.MAIL_ARGUMENTS]);
assert.equal(steps.steps.length, 2);
assert.ok(steps.text);

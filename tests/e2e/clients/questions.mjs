// SPDX-License-Identifier: Apache-2.0
// What the demo model is asked: it knows this fact and how to use this tool.
export const MODEL = "demo";
export const FACT = { question: "What is the capital of France?", answer: /Paris/ };
export const TOOL_QUESTION = "Email jane@test.net: thank you";
export const MAIL_PARAMETERS = {
  type: "object",
  properties: { to: { type: "string" }, message: { type: "string" } },
  required: ["to", "message"],
};
export const MAIL = { name: "mail", description: "Sends a mail.", parameters: MAIL_PARAMETERS };
export const MAIL_ARGUMENTS = { message: "thank you", to: "jane@test.net" };
export const MAIL_RESULT = "Sent.";

// An answer in the form of the chat completions API, whole or as a stream.

import { randomUUID } from "node:crypto";

import type { Answer } from "./script.ts";

/** The scripted model does not count tokens */
const USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

export function chatCompletion(model: string, answer: Answer): object {
  const message = { role: "assistant", content: answer.text, refusal: null, ...(answer.call ? { tool_calls: [toolCall(answer)] } : {}) };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: finishReason(answer) }];
  return { ...head("chat.completion", model), choices, usage: USAGE };
}

export function chatChunks(model: string, answer: Answer, opts: { usage: boolean }): object[] {
  const top = head("chat.completion.chunk", model);
  const chunk = (delta: object, finish: string | null = null): object => ({
    ...top,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  });
  return [
    chunk({ role: "assistant", content: "" }),
    ...answer.text.split(/(?<= )/).map((word) => chunk({ content: word })),
    ...(answer.call ? [chunk({ tool_calls: [{ index: 0, ...toolCall(answer) }] })] : []),
    chunk({}, finishReason(answer)),
    ...(opts.usage ? [{ ...top, choices: [], usage: USAGE }] : []),
  ];
}

function head(object: string, model: string): object {
  return { id: `chatcmpl-${randomUUID()}`, object, created: Math.floor(Date.now() / 1000), model };
}

function toolCall({ call }: Answer): object {
  return { id: `call_${randomUUID()}`, type: "function", function: { name: call?.tool, arguments: JSON.stringify(call?.arguments) } };
}

function finishReason({ call }: Answer): string {
  return call ? "tool_calls" : "stop";
}

// An answer in the form of the responses API, whole or as a stream of events.

import { randomUUID } from "node:crypto";

import type { Answer } from "./script.ts";

/** The scripted model does not count tokens */
const USAGE = {
  input_tokens: 0,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 0,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 0,
};

type Item = Record<string, unknown>;

export function responseOf(model: string, answer: Answer): Item {
  return {
    id: `resp_${randomUUID()}`,
    object: "response",
    created_at: Math.floor(Date.now() / 1000),
    status: "completed",
    model,
    output: [textItem(answer), ...(answer.call ? [callItem(answer)] : [])],
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    parallel_tool_calls: false,
    temperature: 1,
    top_p: 1,
    tool_choice: "auto",
    tools: [],
    usage: USAGE,
  };
}

export function responseEvents(model: string, answer: Answer): Item[] {
  const whole = responseOf(model, answer);
  const begun = { ...whole, status: "in_progress", output: [], usage: null };
  const output = whole["output"] as Item[];
  const events: Item[] = [
    { type: "response.created", response: begun },
    { type: "response.in_progress", response: begun },
    ...output.flatMap((item, index) => (item["type"] === "message" ? textEvents(item, index, answer.text) : callEvents(item, index))),
    { type: "response.completed", response: whole },
  ];
  return events.map((event, index) => ({ ...event, sequence_number: index }));
}

function textItem(answer: Answer): Item {
  return { type: "message", id: `msg_${randomUUID()}`, status: "completed", role: "assistant", content: [textPart(answer.text)] };
}

function textPart(text: string): Item {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

function callItem({ call }: Answer): Item {
  const ids = { id: `fc_${randomUUID()}`, call_id: `call_${randomUUID()}` };
  return { type: "function_call", ...ids, status: "completed", name: call?.tool, arguments: JSON.stringify(call?.arguments) };
}

function textEvents(item: Item, index: number, text: string): Item[] {
  const place = { item_id: item["id"], output_index: index, content_index: 0 };
  return [
    { type: "response.output_item.added", output_index: index, item: { ...item, status: "in_progress", content: [] } },
    { type: "response.content_part.added", ...place, part: textPart("") },
    ...text.split(/(?<= )/).map((delta) => ({ type: "response.output_text.delta", ...place, delta, logprobs: [] })),
    { type: "response.output_text.done", ...place, text, logprobs: [] },
    { type: "response.content_part.done", ...place, part: textPart(text) },
    { type: "response.output_item.done", output_index: index, item },
  ];
}

function callEvents(item: Item, index: number): Item[] {
  const place = { item_id: item["id"], output_index: index };
  return [
    { type: "response.output_item.added", output_index: index, item: { ...item, status: "in_progress", arguments: "" } },
    { type: "response.function_call_arguments.delta", ...place, delta: item["arguments"] },
    { type: "response.function_call_arguments.done", ...place, name: item["name"], arguments: item["arguments"] },
    { type: "response.output_item.done", output_index: index, item },
  ];
}

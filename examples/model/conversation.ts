// Requests of both OpenAI APIs, chat completions and responses, read as one kind of conversation.

import type { Conversation, Message } from "./script.ts";

type Part = { type?: string; text?: string };
type Content = string | Part[] | null | undefined;

export type ChatRequest = {
  model?: string;
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  messages?: { role: string; content?: Content }[];
  tools?: { function?: { name?: string } }[];
};

/** Items without a role are calls, their outputs, reasoning, and references to what was answered before */
type Item = { type?: string; role?: string; content?: Content; output?: Content };

export type ResponsesRequest = {
  model?: string;
  stream?: boolean;
  instructions?: string;
  input?: string | Item[];
  previous_response_id?: string;
  tools?: { name?: string }[];
};

export function fromChat(request: ChatRequest): Conversation {
  return {
    messages: (request.messages ?? []).map(({ role, content }) => ({ role: roleOf(role), text: textOf(content) })),
    tools: (request.tools ?? []).map((tool) => tool.function?.name ?? ""),
  };
}

export function fromResponses(request: ResponsesRequest): Conversation {
  const input = typeof request.input === "string" ? [{ role: "user", content: request.input }] : (request.input ?? []);
  return {
    messages: input.map(messageOf),
    tools: (request.tools ?? []).map((tool) => tool.name ?? ""),
  };
}

function messageOf(item: Item): Message {
  if (item.type === "function_call_output") return { role: "tool", text: textOf(item.output) };
  return { role: roleOf(item.role), text: textOf(item.content) };
}

function roleOf(role = "assistant"): Message["role"] {
  if (role === "developer") return "system";
  return role === "system" || role === "user" || role === "tool" ? role : "assistant";
}

function textOf(content: Content): string {
  if (typeof content === "string") return content;
  return (content ?? []).map(({ text }) => text ?? "").join("");
}

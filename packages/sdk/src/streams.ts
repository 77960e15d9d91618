// Text in pieces: lines, JSON lines, server-sent events. Incremental; buffers at most one line.

import { ForkdError } from "./errors.ts";

/** Limit of a line; the daemon's are shorter */
const MAX_LINE = 16 * 1024 * 1024;

/** One server-sent event */
export type ServerEvent = { id: string | undefined; type: string; data: string };

/** Decoded text; a character split between two chunks is returned with the second */
export async function* textOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    if (text !== "") yield text;
  }
  const rest = decoder.decode();
  if (rest !== "") yield rest;
}

/** Lines without line ends; an unterminated last line is returned too */
export async function* linesOf(chunks: AsyncIterable<Uint8Array>, maxLength: number = MAX_LINE): AsyncGenerator<string> {
  let pending = "";
  for await (const text of textOf(chunks)) {
    let start = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", start)) {
      yield bounded(pending + text.slice(start, end), maxLength).replace(/\r$/, "");
      pending = "";
      start = end + 1;
    }
    pending = bounded(pending + text.slice(start), maxLength);
  }
  if (pending !== "") yield pending.replace(/\r$/, "");
}

/** One value per line; empty lines are keep-alives */
export async function* jsonLinesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<unknown> {
  for await (const line of linesOf(chunks)) {
    if (line.trim() !== "") yield parseJson(line);
  }
}

/** Events that have data or an id. The last id applies to later events without one. Comments are skipped */
export async function* serverEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent> {
  let id: string | undefined;
  let type = "";
  let data: string[] = [];
  let length = 0;
  let hasId = false;
  for await (const line of linesOf(chunks)) {
    if (line === "") {
      if (data.length > 0 || hasId) yield { id, type: type || "message", data: data.join("\n") };
      hasId = false;
      type = "";
      data = [];
      length = 0;
      continue;
    }
    const [, field = "", value = ""] = /^([^:]*)(?::\s?(.*))?$/s.exec(line) ?? [];
    if (field === "id") {
      id = value;
      hasId = true;
    } else if (field === "event") type = value;
    else if (field === "data") {
      length += value.length;
      if (length > MAX_LINE) throw tooLong(MAX_LINE);
      data.push(value);
    }
  }
}

/** JSON from the daemon; other content means that the server is not a daemon */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ForkdError("BAD_ANSWER", `The answer is not JSON: ${JSON.stringify(text.slice(0, 100))}.`, {
      hint: "Check that the address is a forkd daemon's.",
      cause,
    });
  }
}

function bounded(line: string, maxLength: number): string {
  if (line.length > maxLength) throw tooLong(maxLength);
  return line;
}

function tooLong(maxLength: number): ForkdError {
  return new ForkdError("BAD_ANSWER", `A line of the answer is longer than ${maxLength} characters.`, {
    hint: "Check that the address is a forkd daemon's.",
  });
}

/** All pieces as one */
export async function concat(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    parts.push(chunk);
    length += chunk.length;
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

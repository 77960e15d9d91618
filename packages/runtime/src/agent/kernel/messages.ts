// Messages of an interpreter on its control channel. They are untrusted: the code that it runs can write there too.

import { z } from "zod";
import { GrowingBuffer } from "../../util/growing-buffer.ts";

/** The largest valid message is an error: a message and a traceback of 1 MiB characters each, up to 12 bytes per character as JSON */
export const MAX_CONTROL_LINE = 32 * 1024 * 1024;

/** The largest valid message has 1 MiB of JSON in `json`, and 500,000 values in `data`. A value takes up to 50 bytes of memory here */
export const MAX_CONTROL_VALUES = 1_200_000;

const Id = z.number().int().nonnegative();
const GeneratorName = z.string().max(64);
const Region = z.tuple([GeneratorName, z.number().int().nonnegative(), z.number().int().min(1).max(65536), z.enum(["random", "zero"])]);

const [QUOTE, COMMA, BRACKET, BACKSLASH, BRACE] = [0x22, 0x2c, 0x5b, 0x5c, 0x7b];
const MOST_FORMS = 64;
const Count = z.number().int().nonnegative();
/** Representations of a value by MIME type; JSON for JSON types, text or base64 for others */
const Bundle = z
  .record(z.string().max(256), z.unknown())
  .refine((bundle) => Object.keys(bundle).length <= MOST_FORMS, "too many representations");
const shown = { data: Bundle, omitted: z.record(z.string().max(256), Count).optional() };

const KernelMessage = z.discriminatedUnion("event", [
  z.object({ event: z.literal("ready"), version: z.string().max(64) }),
  z.object({ event: z.literal("generators"), regions: z.array(Region).max(64), complete: z.boolean() }),
  z.object({ event: z.literal("reseeded"), id: Id, generators: z.array(GeneratorName).max(64) }),
  z.object({ event: z.literal("display"), id: Id, ...shown }),
  z.object({
    event: z.literal("result"),
    id: Id,
    count: Count.default(0),
    text: z.string().nullable(),
    json: z.unknown().optional(),
    data: shown.data.optional(),
    omitted: shown.omitted,
  }),
  z.object({ event: z.literal("error"), id: Id, count: Count.default(0), type: z.string(), message: z.string(), traceback: z.string() }),
  z.object({ event: z.literal("status"), id: Id, count: Count, status: z.number().int().min(0).max(255) }),
]);

export type KernelMessage = z.infer<typeof KernelMessage>;
/** Outcome of an eval */
export type EndMessage = Extract<KernelMessage, { event: "result" | "error" | "status" }>;
export type GeneratorsMessage = Extract<KernelMessage, { event: "generators" }>;

/** An invalid line is a truncated message, or was written by code with access to the channel */
export function parseMessage(line: string): KernelMessage | undefined {
  if (!line.startsWith("{")) return undefined;
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  return KernelMessage.safeParse(message).data;
}

/** Number of values in a line of JSON: commas and brackets outside of strings. Each costs memory and time; strings cost little */
export function valuesIn(line: string): number {
  let values = 0;
  let isText = false;
  for (let at = 0; at < line.length; at++) {
    const code = line.charCodeAt(at);
    if (isText) {
      if (code === BACKSLASH) at++;
      else if (code === QUOTE) isText = false;
    } else if (code === QUOTE) isText = true;
    else if (code === COMMA || code === BRACKET || code === BRACE) values++;
  }
  return values;
}

/** Splits received bytes into lines */
export class LineReader {
  readonly #rest = new GrowingBuffer();

  /** The lines that these bytes complete; undefined when one exceeds the maximum */
  push(bytes: Buffer): string[] | undefined {
    const lines: string[] = [];
    let from = 0;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
      if (this.#rest.length === 0) {
        // most lines arrive in one piece and need no copy
        if (at - from > MAX_CONTROL_LINE) return undefined;
        lines.push(bytes.toString("utf8", from, at));
      } else {
        if (!this.#rest.add(bytes.subarray(from, at), MAX_CONTROL_LINE)) return undefined;
        lines.push(this.#rest.bytes().toString());
        this.#rest.clear();
      }
      from = at + 1;
    }
    return this.#rest.add(bytes.subarray(from), MAX_CONTROL_LINE) ? lines : undefined;
  }
}

// What an interpreter in the guest says on its control channel. It may be anything: the code it runs can write there too.

import { z } from "zod";
import { GrowingBuffer } from "./growing-buffer.ts";

/** The largest honest message is an error: a message and a traceback of 1 MiB characters each, of up to 12 bytes as JSON */
export const MAX_CONTROL_LINE = 32 * 1024 * 1024;

const Id = z.number().int().nonnegative();
const GeneratorName = z.string().max(64);
const Region = z.tuple([GeneratorName, z.number().int().nonnegative(), z.number().int().min(1).max(65536), z.enum(["random", "zero"])]);

const MOST_FORMS = 64;
const Count = z.number().int().nonnegative();
/** What a value shows, by MIME type; JSON for types that are JSON, text or base64 for others */
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
/** How an eval ended */
export type EndMessage = Extract<KernelMessage, { event: "result" | "error" | "status" }>;
export type GeneratorsMessage = Extract<KernelMessage, { event: "generators" }>;

/** A line that is no message is the half of one whose sender is gone, or the work of code that writes where it should not */
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

/** Cuts received bytes into lines */
export class LineReader {
  readonly #rest = new GrowingBuffer();

  /** The lines completed by these bytes; undefined when one is longer than any message can be */
  push(bytes: Buffer): string[] | undefined {
    const lines: string[] = [];
    let from = 0;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
      if (this.#rest.length === 0) {
        // nearly always a line comes whole, and needs no copy
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

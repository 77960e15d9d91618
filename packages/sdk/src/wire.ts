// Encodes options for the wire.

import { InvalidRequestError } from "./errors.ts";
import type { OnceOptions, ProgressOptions } from "./call-options.ts";

export type QueryValues = { [name: string]: string | number | boolean | readonly string[] | undefined };

type Snake<S extends string> = S extends `${infer Head}${infer Tail}`
  ? Head extends Lowercase<Head>
    ? `${Head}${Snake<Tail>}`
    : `_${Lowercase<Head>}${Snake<Tail>}`
  : "";

/** The same object with keys in snake_case; values are unchanged */
export type Wire<T> = T extends unknown ? { [K in keyof T & string as Snake<K>]: T[K] } : never;

export function toWire<T extends object>(fields: T): Wire<T> {
  const entries = Object.entries(fields).map(([key, value]) => [key.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]);
  return Object.fromEntries(entries) as Wire<T>;
}

/** Splits options into fields for the daemon and options of the call */
export function split<T extends ProgressOptions>(opts: T): { fields: Wire<Omit<T, keyof ProgressOptions>>; call: OnceOptions } {
  const { signal, timeoutMs, idempotencyKey, onProgress: _, ...fields } = opts;
  return { fields: toWire(fields), call: { signal, timeoutMs, idempotencyKey } };
}

/**
 * A path from single segments; their values are escaped, so that they cannot reach another route
 * @throws InvalidRequestError for an invalid name
 */
export function path(parts: TemplateStringsArray, ...values: string[]): string {
  const segments = values.map((value) => {
    if (typeof value !== "string" || value === "" || value === "." || value === "..") {
      throw new InvalidRequestError("BAD_NAME", `${JSON.stringify(value)} is not a name.`, {
        hint: "Use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter, a digit or '_'.",
      });
    }
    return encodeURIComponent(value);
  });
  return String.raw({ raw: parts }, ...segments);
}

/** `?a=1&b=x&b=y`; undefined and false are omitted */
export function queryString(values: QueryValues | undefined): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    if (value === undefined || value === false) continue;
    if (typeof value === "object") for (const item of value) search.append(name, item);
    else search.append(name, String(value));
  }
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
}

/** Filters in the form `key=value` */
export function pairs(metadata: Record<string, string> | undefined): string[] | undefined {
  return metadata === undefined ? undefined : Object.entries(metadata).map(([key, value]) => `${key}=${value}`);
}

/** A creation has an idempotency key, which makes it safe to repeat, unless the caller passes null */
export function withKey<T extends OnceOptions>(call: T): T {
  return call.idempotencyKey === undefined ? { ...call, idempotencyKey: newKey() } : call;
}

/** Not crypto.randomUUID, which is missing in pages without TLS */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

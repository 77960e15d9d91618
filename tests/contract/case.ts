// What a case is: one request in the wire's own words, and what must come of it whichever way it is sent.

import assert from "node:assert/strict";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { ErrorCode } from "@forkd/daemon";

export type DriverName = "rest" | "sdk" | "python" | "cli" | "mcp";

/** A request, in the names of the wire */
export type Args = {
  params?: Record<string, string>;
  query?: Record<string, string | number | boolean | string[]>;
  body?: Record<string, unknown>;
  /** of a file */
  bytes?: Buffer;
  headers?: Record<string, string>;
  /** how many events to wait for */
  take?: number;
  /** over TCP, with this token; "": with none */
  token?: string;
};

export type Outcome =
  | { value: unknown; next?: string | null; status?: number }
  | { code: string; message: string; status?: number; details?: unknown };

/** A way to the daemon */
export type Driver = {
  readonly name: DriverName;
  call: (route: RouteName, args: Args) => Promise<Outcome>;
  close?: () => Promise<void>;
};

export type Expected =
  | { value: unknown; status?: number }
  | {
      code: ErrorCode;
      message?: (c: Context) => RegExp;
      details?: unknown;
      /** the command line sees the mistake itself: exit code 2 */
      usage?: true;
    };

export type Case = {
  what: string;
  route: RouteName;
  args?: (c: Context) => Args;
  expect: Expected | ((c: Context) => Expected);
  /** name under which its value is kept for later cases */
  save?: string;
  /** asked again until it is so */
  until?: true;
  /** ways that cannot say this, each with the reason */
  not?: Partial<Record<DriverName, string>>;
};

/** Why a way cannot say a case; what one SDK cannot, nothing that builds on one can either */
export function reasonAgainst(item: Case, driver: DriverName): string | undefined {
  return item.not?.[driver] ?? (driver === "python" || driver === "mcp" ? item.not?.sdk : undefined);
}

/** The command line has no word for it */
export const REST_AND_SDK = (reason: string): NonNullable<Case["not"]> => ({ cli: reason });
export const REST_ONLY = (reason: string): NonNullable<Case["not"]> => ({ cli: reason, sdk: reason });

/** What the cases of one driver share */
export class Context {
  readonly driver: DriverName;
  readonly #saved = new Map<string, { value: unknown; next: string | null }>();

  constructor(driver: DriverName) {
    this.driver = driver;
  }

  /** A name of this driver's own */
  name(text: string): string {
    return `${this.driver}-${text}`;
  }

  save(name: string, outcome: Outcome): void {
    if ("value" in outcome) this.#saved.set(name, { value: outcome.value, next: outcome.next ?? null });
  }

  /** A part of a saved value, such as `a.0.id` */
  at(path: string): string {
    const value = this.get(path);
    assert.ok(typeof value === "string" || typeof value === "number", `${path} is ${JSON.stringify(value)}`);
    return String(value);
  }

  get(path: string): unknown {
    const [name = "", ...parts] = path.split(".");
    const saved = this.#saved.get(name);
    assert.ok(saved, `nothing was saved as ${name}`);
    let value = saved.value;
    for (const part of parts) value = (value as Record<string, unknown> | null | undefined)?.[part];
    return value;
  }

  next(name: string): string {
    const next = this.#saved.get(name)?.next;
    assert.ok(next, `${name} has no next page`);
    return next;
  }
}

export function gives(value: unknown, status?: number): Expected {
  return { value, ...(status === undefined ? {} : { status }) };
}

export function fails(code: ErrorCode, more: Omit<Extract<Expected, { code: ErrorCode }>, "code"> = {}): Expected {
  return { code, ...more };
}

/** What differs from a pattern: objects may have more fields; a function or a regular expression is asked */
export function differences(actual: unknown, pattern: unknown, at = "$"): string[] {
  if (typeof pattern === "function") return (pattern as (value: unknown) => boolean)(actual) ? [] : [`${at}: ${show(actual)} will not do`];
  if (pattern instanceof RegExp)
    return typeof actual === "string" && pattern.test(actual) ? [] : [`${at}: ${show(actual)} does not match ${pattern}`];
  if (Array.isArray(pattern)) {
    if (!Array.isArray(actual)) return [`${at}: ${show(actual)} is no list`];
    if (actual.length !== pattern.length) return [`${at}: has ${actual.length} items, not ${pattern.length}: ${show(actual)}`];
    return pattern.flatMap((item, i) => differences(actual[i], item, `${at}[${i}]`));
  }
  if (typeof pattern === "object" && pattern !== null && !Buffer.isBuffer(pattern)) {
    if (typeof actual !== "object" || actual === null) return [`${at}: ${show(actual)} is no object`];
    return Object.entries(pattern).flatMap(([key, item]) => differences((actual as Record<string, unknown>)[key], item, `${at}.${key}`));
  }
  if (Buffer.isBuffer(pattern)) return Buffer.isBuffer(actual) && actual.equals(pattern) ? [] : [`${at}: other bytes: ${show(actual)}`];
  return Object.is(actual, pattern) ? [] : [`${at}: ${show(actual)} is not ${show(pattern)}`];
}

/** A list with a match for each of these, in any order, and perhaps more */
export function including(...patterns: unknown[]): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && patterns.every((pattern) => value.some((item) => differences(item, pattern).length === 0));
}

/** A list without any match */
export function excluding(...patterns: unknown[]): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && !patterns.some((pattern) => value.some((item) => differences(item, pattern).length === 0));
}

/** These and no others, in any order */
export function exactly(...patterns: unknown[]): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && value.length === patterns.length && including(...patterns)(value);
}

export function size(count: number): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && value.length === count;
}

export function above(least: number): (value: unknown) => boolean {
  return (value) => typeof value === "number" && value > least;
}

export function isText(value: unknown): boolean {
  return typeof value === "string";
}

/** Seconds from now on the host's clock; the test may be slow, never early */
export function within(secs: number): (value: unknown) => boolean {
  return (value) => typeof value === "number" && value <= Date.now() / 1000 + secs + 1 && value > Date.now() / 1000 + secs - 120;
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 300);
}

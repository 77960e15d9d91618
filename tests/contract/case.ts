// Contract cases: a request in the names of the wire protocol, and its expected outcome for every driver.

import assert from "node:assert/strict";
import { patience } from "../helpers/patience.ts";
import type { RouteName } from "../../packages/daemon/src/api/routes.ts";
import type { ErrorCode } from "@forkd/runtime";

export type DriverName = "rest" | "sdk" | "python" | "cli" | "mcp" | "gateway";

/** A request in the names of the wire protocol */
export type Args = {
  params?: Record<string, string>;
  query?: Record<string, string | number | boolean | string[]>;
  body?: Record<string, unknown>;
  /** content of a file */
  bytes?: Buffer;
  headers?: Record<string, string>;
  /** number of events to wait for */
  take?: number;
  /** sent over TCP with this token; "": without a token */
  token?: string;
};

export type Outcome =
  | { value: unknown; next?: string | null; status?: number }
  | { code: string; message: string; status?: number; details?: unknown };

/** A client interface to the daemon */
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
      /** the CLI rejects it as a usage error: exit code 2 */
      usage?: true;
    };

export type Case = {
  what: string;
  route: RouteName;
  args?: (c: Context) => Args;
  expect: Expected | ((c: Context) => Expected);
  /** name under which later cases find the value */
  save?: string;
  /** repeated until the expectation holds */
  until?: true;
  /** drivers that cannot express the case, each with the reason */
  not?: Partial<Record<DriverName, string>>;
};

/** Reason why a driver cannot run a case; the Python and MCP drivers share the limits of the SDK */
export function reasonAgainst(item: Case, driver: DriverName): string | undefined {
  return item.not?.[driver] ?? (driver === "python" || driver === "mcp" ? item.not?.sdk : undefined);
}

/** For cases that the CLI cannot express */
export const REST_AND_SDK = (reason: string): NonNullable<Case["not"]> => ({ cli: reason });
export const REST_ONLY = (reason: string): NonNullable<Case["not"]> => ({ cli: reason, sdk: reason });

/** State shared by the cases of one driver */
export class Context {
  readonly driver: DriverName;
  readonly #saved = new Map<string, { value: unknown; next: string | null }>();

  constructor(driver: DriverName) {
    this.driver = driver;
  }

  /** A name that is unique to this driver */
  name(text: string): string {
    return `${this.driver}-${text}`;
  }

  save(name: string, outcome: Outcome): void {
    if ("value" in outcome) this.#saved.set(name, { value: outcome.value, next: outcome.next ?? null });
  }

  /** Part of a saved value, such as `a.0.id` */
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

/** Differences from a pattern. Objects may have more fields; functions and regular expressions are matched */
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

/** Matches a list with a match for each pattern, in any order; it may have more items */
export function including(...patterns: unknown[]): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && patterns.every((pattern) => value.some((item) => differences(item, pattern).length === 0));
}

/** Matches a list without any matching item */
export function excluding(...patterns: unknown[]): (value: unknown) => boolean {
  return (value) => Array.isArray(value) && !patterns.some((pattern) => value.some((item) => differences(item, pattern).length === 0));
}

/** Matches a list of exactly these items, in any order */
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

/** Matches a Unix time `secs` from now; the test may be late, never early */
export function within(secs: number): (value: unknown) => boolean {
  return (value) =>
    typeof value === "number" && value <= Date.now() / 1000 + secs + 1 && value > Date.now() / 1000 + secs - patience() / 1000;
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 300);
}

// Helpers that run code in a guest and expect errors.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { ForkdError, type ErrorCode, type Sandbox } from "@forkd/runtime";
import { patience } from "./patience.ts";

type Language = "python" | "node";

/** CONFIG_HZ of the guest kernel is at least 100 */
const GUEST_TICK_MS = 10;

/** JSON value of code that must succeed */
export async function value(sandbox: Sandbox, code: string, opts: { language?: Language } = {}): Promise<unknown> {
  const result = await sandbox.eval(code, { timeoutMs: patience(), ...opts });
  assert.equal(result.error, null, result.error?.traceback);
  return result.json;
}

/** Standard output of a shell command that must succeed */
export async function sh(sandbox: Sandbox, script: string): Promise<string> {
  const result = await sandbox.exec(["sh", "-c", script], { timeoutMs: patience() });
  assert.equal(result.code, 0, `${script}: ${result.stderr.toString()}`);
  return result.stdout.toString().trim();
}

/** Expects a rejection with this code and returns the error */
export async function rejection(work: Promise<unknown>, code: ErrorCode | readonly ErrorCode[]): Promise<ForkdError> {
  const codes: readonly ErrorCode[] = typeof code === "string" ? [code] : code;
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof ForkdError, `not a ForkdError: ${String(error)}`);
    assert.ok(codes.includes(error.code), `${error.code} instead of ${codes.join(" or ")}: ${error.message}`);
    assert.notEqual(error.message, "");
    assert.notEqual(error.hint, "");
    return error;
  }
  assert.fail(`expected ${codes.join(" or ")}, but it succeeded`);
}

/**
 * Maximum difference between the wall clocks of guest and host, in ms: the bound in the certificate, one tick of the
 * guest's timer (the resolution of file times), and 1 % drift since the clock was set.
 */
export function clockTolerance({ certificate }: Sandbox, forkedAt: number): number {
  return certificate.clock_skew_ms + GUEST_TICK_MS + (Date.now() - forkedAt) / 100;
}

export function sha256(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Asserts that all values differ */
export function assertDistinct(what: string, values: readonly unknown[]): void {
  const texts = values.map((item) => JSON.stringify(item));
  assert.ok(
    texts.every((text) => text !== undefined && text !== "null" && text !== '""'),
    `${what}: missing in ${texts.join(", ")}`,
  );
  assert.equal(new Set(texts).size, texts.length, `${what} repeats: ${texts.join(", ")}`);
}

// Short ways to ask a guest and to expect an error.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { ForkdError, type ErrorCode, type Sandbox } from "@forkd/daemon";

type Language = "python" | "node";

/** The JSON value of code that must succeed */
export async function value(sandbox: Sandbox, code: string, opts: { language?: Language } = {}): Promise<unknown> {
  const result = await sandbox.eval(code, { timeoutMs: 60_000, ...opts });
  assert.equal(result.error, null, result.error?.traceback);
  return result.json;
}

/** What a shell command that must succeed prints */
export async function sh(sandbox: Sandbox, script: string): Promise<string> {
  const result = await sandbox.exec(["sh", "-c", script], { timeoutMs: 60_000 });
  assert.equal(result.code, 0, `${script}: ${result.stderr.toString()}`);
  return result.stdout.toString().trim();
}

/** Expects a rejection with this code; gives the error back for a closer look */
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

export function sha256(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Asserts that no two are equal */
export function assertDistinct(what: string, values: readonly unknown[]): void {
  const texts = values.map((item) => JSON.stringify(item));
  assert.ok(
    texts.every((text) => text !== undefined && text !== "null" && text !== '""'),
    `${what}: missing in ${texts.join(", ")}`,
  );
  assert.equal(new Set(texts).size, texts.length, `${what} repeats: ${texts.join(", ")}`);
}

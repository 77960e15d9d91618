// Readiness and health checks, repeated until they pass or time out.

import { setTimeout as sleep } from "node:timers/promises";
import { matches } from "./pattern.ts";
import { wordsOf } from "./plan.ts";
import { outputOf } from "./steps.ts";
import type { Guest } from "./guest.ts";
import type { Check, Recipe } from "./schema.ts";

const POLL_MS = 50;
/** Minimum time limit of an attempt, also if the check's deadline is nearer */
const TRY_SECS = 10;
/** Errors that mean "not ready yet" */
const NOT_YET: ReadonlySet<string> = new Set([
  "PORT_CLOSED",
  "BAD_GATEWAY",
  "GATEWAY_TIMEOUT",
  "NOT_FOUND",
  "EXEC_FAILED",
  "EVAL_TIMEOUT",
  "AGENT_TIMEOUT",
]);

export type Unready = { check: string; why: string; output: string };

type Outcome = { ok: true } | { ok: false; why: string; output?: string; /** further attempts cannot pass */ final?: boolean };

/** undefined: all checks passed. Otherwise the failed check and the reason of its last attempt */
export async function waitForAll(checks: readonly Check[], recipe: Recipe, guest: Guest): Promise<Unready | undefined> {
  for (const check of checks) {
    const unready = await waitFor(check, recipe, guest);
    if (unready) return unready;
  }
  return undefined;
}

async function waitFor(check: Check, recipe: Recipe, guest: Guest): Promise<Unready | undefined> {
  const deadline = Date.now() + check.timeout_secs * 1000;
  for (;;) {
    const outcome = await attempt(check, recipe, guest, Math.max(TRY_SECS, (deadline - Date.now()) / 1000));
    if (outcome.ok) return undefined;
    if (outcome.final || Date.now() >= deadline) {
      const after = outcome.final ? "" : ` after ${check.timeout_secs} s`;
      return { check: describe(check), why: `${outcome.why}${after}`, output: outcome.output ?? "" };
    }
    await sleep(POLL_MS, undefined, { signal: guest.signal });
  }
}

async function attempt(check: Check, recipe: Recipe, guest: Guest, secs: number): Promise<Outcome> {
  try {
    return await once(check, recipe, guest, secs);
  } catch (error) {
    if (error instanceof Error && NOT_YET.has(String((error as { code?: unknown }).code))) return { ok: false, why: error.message };
    throw error;
  }
}

async function once(check: Check, recipe: Recipe, guest: Guest, timeoutSecs: number): Promise<Outcome> {
  switch (check.kind) {
    case "exec": {
      const { user = recipe.user, workdir: cwd = recipe.workdir, env } = check;
      const done = await guest.exec(check.exec, { user, cwd, env, timeoutSecs });
      return done.exit_code === 0 ? { ok: true } : { ok: false, why: `it ends with exit code ${done.exit_code}`, output: outputOf(done) };
    }
    case "eval": {
      const done = await guest.eval(check.eval, { language: check.language, timeoutSecs });
      return done.exit_code === 0 ? { ok: true } : { ok: false, why: done.error ?? "it failed", output: outputOf(done) };
    }
    case "port":
      return (await guest.ports()).includes(check.port) ? { ok: true } : { ok: false, why: "nothing listens there" };
    case "http": {
      const { port, path, status } = check.http;
      const answer = await guest.get(port, path, { timeoutSecs });
      return answer.status === status ? { ok: true } : { ok: false, why: `it answers with status ${answer.status}`, output: answer.body };
    }
    case "log": {
      const { process, line } = check.log;
      const { output, exitCode } = await guest.process(process);
      const printed = outputOf(output);
      if (matches(line, printed)) return { ok: true };
      if (exitCode !== null) return { ok: false, why: `process ${process} ended with exit code ${exitCode}`, output: printed, final: true };
      return { ok: false, why: "there is no such line", output: printed };
    }
  }
}

function describe(check: Check): string {
  switch (check.kind) {
    case "exec":
      return `exec ${wordsOf(check.exec)}`;
    case "eval":
      return `eval ${wordsOf([check.eval])}`;
    case "port":
      return `port ${check.port}`;
    case "http":
      return `http ${check.http.port}${check.http.path}`;
    case "log":
      return `log of ${check.log.process}: ${check.log.line}`;
  }
}

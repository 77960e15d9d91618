// Readiness and health: each check is tried until it is true or its time is over.

import { setTimeout as sleep } from "node:timers/promises";
import { codeOf } from "../errors.ts";
import { wordsOf } from "./plan.ts";
import { outputOf } from "./steps.ts";

import type { Check, Recipe } from "./schema.ts";
import type { Place } from "./steps.ts";

const POLL_MS = 50;
/** A try that has begun may take so long, however little time is left */
const TRY_SECS = 10;
/** Answers of a daemon or a guest that only mean: not yet */
const NOT_YET = new Set([
  "PORT_CLOSED",
  "BAD_GATEWAY",
  "GATEWAY_TIMEOUT",
  "NOT_FOUND",
  "EXEC_FAILED",
  "EVAL_TIMEOUT",
  "AGENT_TIMEOUT",
  "ECONNRESET",
]);

export type Unready = { check: string; why: string; output: string };

type Outcome = { ok: true } | { ok: false; why: string; output?: string; /** waiting is of no use */ final?: boolean };

/** undefined: all are true. Otherwise what was not, and why at the last try */
export async function waitForAll(checks: readonly Check[], recipe: Recipe, at: Place): Promise<Unready | undefined> {
  for (const check of checks) {
    const unready = await waitFor(check, recipe, at);
    if (unready) return unready;
  }
  return undefined;
}

async function waitFor(check: Check, recipe: Recipe, at: Place): Promise<Unready | undefined> {
  const deadline = Date.now() + check.timeout_secs * 1000;
  for (;;) {
    const outcome = await attempt(check, recipe, at, Math.max(TRY_SECS, (deadline - Date.now()) / 1000));
    if (outcome.ok) return undefined;
    if (outcome.final || Date.now() >= deadline) {
      const after = outcome.final ? "" : ` after ${check.timeout_secs} s`;
      return { check: describe(check), why: `${outcome.why}${after}`, output: outcome.output ?? "" };
    }
    await sleep(POLL_MS, undefined, { signal: at.signal });
  }
}

async function attempt(check: Check, recipe: Recipe, at: Place, secs: number): Promise<Outcome> {
  try {
    return await once(check, recipe, at, secs);
  } catch (error) {
    if (error instanceof Error && NOT_YET.has(codeOf(error) ?? "")) return { ok: false, why: error.message };
    throw error;
  }
}

async function once(check: Check, recipe: Recipe, { forkd, sandbox, signal }: Place, secs: number): Promise<Outcome> {
  switch (check.kind) {
    case "exec": {
      const { user = recipe.user, workdir: cwd = recipe.workdir, env } = check;
      const done = await forkd.execCommand(sandbox, check.exec, { user, cwd, env, timeoutSecs: secs, signal });
      return done.exit_code === 0 ? { ok: true } : { ok: false, why: `it ends with exit code ${done.exit_code}`, output: outputOf(done) };
    }
    case "eval": {
      const done = await forkd.evalCode(sandbox, check.eval, { language: check.language, timeoutSecs: secs, signal });
      return done.exit_code === 0 ? { ok: true } : { ok: false, why: done.error ?? "it failed", output: outputOf(done) };
    }
    case "port": {
      const ports = await forkd.listPorts(sandbox, { signal });
      return ports.some(({ port }) => port === check.port) ? { ok: true } : { ok: false, why: "nothing listens there" };
    }
    case "http": {
      const { port, path, status } = check.http;
      const late = AbortSignal.timeout(Math.ceil(secs * 1000));
      try {
        const answer = await forkd.fetchPort(sandbox, port, path, { signal: AbortSignal.any([signal, late]) });
        const body = await answer.text();
        return answer.status === status ? { ok: true } : { ok: false, why: `it answers with status ${answer.status}`, output: body };
      } catch (error) {
        if (late.aborted && !signal.aborted) return { ok: false, why: "it does not answer" };
        throw error;
      }
    }
    case "log": {
      const { process, line } = check.log;
      const output = await printedBy({ forkd, sandbox, signal }, process);
      if (new RegExp(line, "mu").test(output)) return { ok: true };
      const { state, exit_code: code } = await forkd.getProcess(sandbox, process, { signal });
      if (state === "ended") return { ok: false, why: `process ${process} ended with exit code ${code}`, output, final: true };
      return { ok: false, why: "there is no such line", output };
    }
  }
}

/** What a started process wrote so far, as far as it is kept */
export async function printedBy({ forkd, sandbox, signal }: Place, process: string): Promise<string> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  const text = { stdout: "", stderr: "" };
  for await (const event of forkd.watchProcess(sandbox, process, { follow: false, signal }))
    if (event.type === "stdout" || event.type === "stderr") text[event.type] += decoders[event.type].decode(event.bytes, { stream: true });
  return outputOf(text);
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

// Exec, eval, metrics and logs of a running sandbox.

import { exitCodeOf } from "@forkd/runtime/agent/process/exec";
import type { EvalRequest, EvalResult, ExecRequest, ExecResult, PingResult } from "../api/exec.ts";
import type { Language } from "@forkd/runtime/agent/kernel/language";
import type { GuestMetrics } from "@forkd/runtime/agent/metrics";
import type { LogsQuery } from "../api/sandbox.ts";
import type { Caller, Viewer } from "./caller.ts";
import type { Meter } from "./core.ts";
import { ConsoleLogs, logLines } from "./logs.ts";
import type { Registry } from "./registry.ts";
import { evalResult, runningEval, type RunningEval } from "./running-eval.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";

export type SandboxMetrics = GuestMetrics;

type EvalTarget = { timeoutMs: number; context?: string; language?: Language; env?: Record<string, string> };

export class Execution {
  readonly #sandboxes: Sandboxes;
  readonly #registry: Registry;
  readonly #meter: Meter;
  readonly #consoles = new ConsoleLogs();

  constructor(parts: { sandboxes: Sandboxes; registry: Registry; meter: Meter }) {
    this.#sandboxes = parts.sandboxes;
    this.#registry = parts.registry;
    this.#meter = parts.meter;
  }

  async ping(id: string, caller: Viewer): Promise<PingResult> {
    return this.#sandboxes.use(id, caller, async (sandbox) => {
      const from = performance.now();
      await sandbox.ping();
      return { pong: true, ms: performance.now() - from, kernels: sandbox.kernels };
    });
  }

  async exec(id: string, request: ExecRequest, caller: Caller): Promise<ExecResult> {
    const { args, stdin, env, cwd, user, encoding } = request;
    return this.#sandboxes.use(id, caller, async (sandbox) =>
      this.#measured(this.#meter.executed, async () => {
        const result = await sandbox.exec(args, {
          timeoutMs: request.timeout_secs * 1000,
          maxOutputBytes: request.max_output_bytes,
          env,
          cwd,
          user,
          signal: caller.signal,
          ...(stdin === undefined ? {} : { stdin: Buffer.from(stdin, encoding) }),
        });
        return {
          stdout: result.stdout.toString(encoding),
          stderr: result.stderr.toString(encoding),
          exit_code: exitCodeOf(result),
          signal: result.signal,
          timed_out: result.timedOut,
          truncated: result.truncated,
        };
      }),
    );
  }

  /** Not a use of the sandbox: a client that polls metrics must not reset the idle timeout */
  async metrics(id: string, caller: Pick<Caller, "project" | "signal">): Promise<SandboxMetrics | undefined> {
    return this.#sandboxes.use(id, caller, async (sandbox) => sandbox.metrics(caller.signal), { isUse: false });
  }

  async eval(id: string, request: EvalRequest, caller: Caller): Promise<EvalResult> {
    return this.#sandboxes.use(id, caller, async (sandbox) =>
      this.#measured(this.#meter.evaluated, async () => {
        return evalResult(await sandbox.eval(request.code, { ...optionsOf(request), signal: caller.signal }));
      }),
    );
  }

  /** Same, with output and results as events */
  evalEvents(id: string, request: EvalRequest, caller: Pick<Caller, "project" | "signal">): RunningEval {
    return runningEval(
      async (callbacks) =>
        this.#sandboxes.use(id, caller, async (sandbox) =>
          this.#measured(this.#meter.evaluated, async () => sandbox.eval(request.code, { ...optionsOf(request), ...callbacks })),
        ),
      caller.signal,
    );
  }

  logs(id: string, query: LogsQuery, caller: Pick<Caller, "project" | "signal">): AsyncIterable<string> {
    const entry = this.#registry.get(id, caller);
    // checked here, not in the generator: an ended sandbox must be an error (410), not an empty log
    const sandbox = liveOf(entry);
    return logLines(this.#consoles, sandbox, query, caller.signal);
  }

  async #measured<V>(report: (ms: number, ok: boolean) => void, work: () => Promise<V>): Promise<V> {
    const from = performance.now();
    let ok = false;
    try {
      const value = await work();
      ok = true;
      return value;
    } finally {
      report(performance.now() - from, ok);
    }
  }
}

function optionsOf({ context, language, env, timeout_secs: secs }: EvalRequest): EvalTarget {
  return { timeoutMs: secs * 1000, ...(context ? { context } : {}), ...(language ? { language } : {}), ...(env ? { env } : {}) };
}

// What is done inside a running sandbox.

import type { EvalRequest, EvalResult, ExecRequest, ExecResult, PingResult } from "../api/exec.ts";
import type { Language } from "../guest/language.ts";
import type { LogsQuery } from "../api/sandbox.ts";
import type { Caller } from "./caller.ts";
import type { Meter } from "./core.ts";
import { exitCodeOf } from "./exit-code.ts";
import { ConsoleLogs, logLines } from "./logs.ts";
import type { Registry } from "./registry.ts";
import { evalResult, runningEval, type RunningEval } from "./running-eval.ts";
import { liveOf, type Sandboxes } from "./sandboxes.ts";

type EvalTarget = { timeoutMs: number; context?: string; language?: Language; env?: Record<string, string> };

export class Inside {
  readonly #sandboxes: Sandboxes;
  readonly #registry: Registry;
  readonly #meter: Meter;
  readonly #consoles = new ConsoleLogs();

  constructor(parts: { sandboxes: Sandboxes; registry: Registry; meter: Meter }) {
    this.#sandboxes = parts.sandboxes;
    this.#registry = parts.registry;
    this.#meter = parts.meter;
  }

  async ping(id: string): Promise<PingResult> {
    return this.#sandboxes.use(id, async (sandbox) => {
      const from = performance.now();
      await sandbox.ping();
      return { pong: true, ms: performance.now() - from, kernels: sandbox.kernels };
    });
  }

  async exec(id: string, request: ExecRequest, caller: Caller): Promise<ExecResult> {
    const { args, stdin, env, cwd, user, encoding } = request;
    return this.#sandboxes.use(id, async (sandbox) =>
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

  async eval(id: string, request: EvalRequest, caller: Caller): Promise<EvalResult> {
    return this.#sandboxes.use(id, async (sandbox) =>
      this.#measured(this.#meter.evaluated, async () => {
        return evalResult(await sandbox.eval(request.code, { ...optionsOf(request), signal: caller.signal }));
      }),
    );
  }

  /** The same, with what comes of it meanwhile */
  evalEvents(id: string, request: EvalRequest, caller: Pick<Caller, "signal">): RunningEval {
    return runningEval(
      async (callbacks) =>
        this.#sandboxes.use(id, async (sandbox) =>
          this.#measured(this.#meter.evaluated, async () => sandbox.eval(request.code, { ...optionsOf(request), ...callbacks })),
        ),
      caller.signal,
    );
  }

  logs(id: string, query: LogsQuery, signal: AbortSignal): AsyncIterable<string> {
    const entry = this.#registry.get(id);
    // here and not at the first line: one that has ended is a 410, not an empty log
    const sandbox = liveOf(entry);
    return logLines(this.#consoles, sandbox, query, signal);
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

// Code execution as an event stream.

import { StringDecoder } from "node:string_decoder";
import type { DisplayResult, EvalEnd, EvalResult } from "../api/exec.ts";
import type { Display, EvalResult as GuestResult } from "@forkd/runtime/agent/kernel/eval-output";
import type { EvalOptions } from "@forkd/runtime/agent/kernel/pending-eval";

export type EvalEvent =
  | { event: "stdout" | "stderr"; data: { text: string } }
  | { event: "result"; data: DisplayResult }
  | { event: "end"; data: EvalEnd };

/** Events are pulled: the code blocks while its output is not read */
export type RunningEval = {
  readonly events: AsyncIterable<EvalEvent>;
  /** Interrupts the code unless it has ended */
  close(): void;
};

type Callbacks = Pick<EvalOptions, "onStdout" | "onStderr" | "onDisplay" | "signal">;

/** @param run runs the code to its end and reports through the callbacks */
export function runningEval(run: (callbacks: Callbacks) => Promise<GuestResult>, signal: AbortSignal): RunningEval {
  const closed = new AbortController();
  return {
    events: eventsOf(async (callbacks) => run({ ...callbacks, signal: AbortSignal.any([signal, closed.signal]) }), closed),
    close: () => closed.abort(new Error("the client disconnected")),
  };
}

async function* eventsOf(run: (callbacks: Callbacks) => Promise<GuestResult>, closed: AbortController): AsyncGenerator<EvalEvent> {
  const waiting: { event: EvalEvent; taken: () => void }[] = [];
  let wake = Promise.withResolvers<void>();
  const put = async (event: EvalEvent): Promise<void> =>
    new Promise((taken) => {
      waiting.push({ event, taken });
      wake.resolve();
    });
  const decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  const output = async (channel: "stdout" | "stderr", text: string): Promise<void> => {
    if (text !== "") await put({ event: channel, data: { text } });
  };
  let ended: { result: GuestResult } | { error: unknown } | undefined;
  run({
    onStdout: async (bytes) => output("stdout", decoders.stdout.write(bytes)),
    onStderr: async (bytes) => output("stderr", decoders.stderr.write(bytes)),
    onDisplay: async (display) => put({ event: "result", data: displayResult(display) }),
  })
    .then(
      (result) => (ended = { result }),
      (error: unknown) => (ended = { error }),
    )
    .finally(() => wake.resolve());
  try {
    for (;;) {
      const next = waiting.shift();
      if (next) {
        yield next.event;
        next.taken();
      } else if (ended) {
        break;
      } else {
        await wake.promise;
        wake = Promise.withResolvers();
      }
    }
    if ("error" in ended) throw ended.error;
    for (const channel of ["stdout", "stderr"] as const) {
      const text = decoders[channel].end();
      if (text !== "") yield { event: channel, data: { text } };
    }
    const { stdout: _stdout, stderr: _stderr, results: _results, ...end } = evalResult(ended.result);
    yield { event: "end", data: end };
  } finally {
    closed.abort();
    for (const { taken } of waiting) taken();
  }
}

export function evalResult(result: GuestResult): EvalResult {
  const { error } = result;
  return {
    result: result.text,
    ...(result.json === undefined ? {} : { value: result.json }),
    error: error && `${error.type}: ${error.message}`,
    error_type: error && error.type,
    traceback: error && error.traceback,
    exit_code: error ? error.status : 0,
    stdout: result.stdout,
    stderr: result.stderr,
    truncated: result.truncated,
    results: result.displays.map(displayResult),
    execution_count: result.count,
  };
}

function displayResult({ isMain, data, omitted }: Display): DisplayResult {
  return { is_main: isMain, data, ...(omitted ? { omitted } : {}) };
}

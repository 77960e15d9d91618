// Progress of long work on stderr: one line that is rewritten on a terminal, occasional lines elsewhere.

import { formatBytes, plain } from "./output.ts";

import type { Progress as ProgressEvent } from "forkd";

const QUIET_MS = 1000;
const TTY_INTERVAL_MS = 100;
const PLAIN_INTERVAL_MS = 5000;
const SPINNER = ["|", "/", "-", "\\"];
const BAR_WIDTH = 24;

type Sink = { write: (text: string) => unknown; isTTY?: boolean; columns?: number };

export type ProgressDisplay = {
  onEvent: (event: ProgressEvent) => void;
  /** Removes the line and the timer; idempotent */
  [Symbol.dispose]: () => void;
};

/** Work that ends within a second shows only notes */
export function showProgress(opts: { sink?: Sink; now?: () => number } = {}): ProgressDisplay {
  const sink = opts.sink ?? process.stderr;
  const now = opts.now ?? Date.now;
  const display = sink.isTTY ? rewritingLine(sink, now) : plainLines(sink, now);
  const onEvent = (event: ProgressEvent): void => {
    if (event.note) sink.write(`${sink.isTTY ? "\r\x1b[2K" : ""}Warning: ${plain(event.step)}\n`);
    else display.onEvent(event);
  };
  return { onEvent, [Symbol.dispose]: () => display[Symbol.dispose]() };
}

/** Work of one step; it may report more */
export async function working<T>(step: string, work: (progress: (event: ProgressEvent) => void) => Promise<T>): Promise<T> {
  using display = showProgress();
  display.onEvent({ step });
  return await work(display.onEvent);
}

/** The same for work that prints results meanwhile */
export async function withoutProgress<T>(_step: string, work: (progress: (event: ProgressEvent) => void) => Promise<T>): Promise<T> {
  return work(() => {});
}

/** For work that prints its own messages on stderr: a file or a pipe gets only those */
export async function workingOnTerminal<T>(step: string, work: (progress: (event: ProgressEvent) => void) => Promise<T>): Promise<T> {
  return process.stderr.isTTY ? working(step, work) : withoutProgress(step, work);
}

function rewritingLine(sink: Sink, now: () => number): ProgressDisplay {
  const started = now();
  let event: ProgressEvent | undefined;
  let frame = 0;
  let shown = false;
  const draw = (): void => {
    if (!event || now() - started < QUIET_MS) return;
    const width = Math.max(20, (sink.columns ?? 80) - 1);
    const text = `${SPINNER[frame++ % SPINNER.length]} ${describe(event, "bar")} ${seconds(now() - started)}`;
    sink.write(`\r\x1b[2K${text.slice(0, width)}`);
    shown = true;
  };
  const timer = setInterval(draw, TTY_INTERVAL_MS);
  timer.unref();
  return {
    onEvent: (next) => {
      event = next;
    },
    [Symbol.dispose]: () => {
      clearInterval(timer);
      if (shown) sink.write("\r\x1b[2K");
      shown = false;
    },
  };
}

function plainLines(sink: Sink, now: () => number): ProgressDisplay {
  const started = now();
  let event: ProgressEvent | undefined;
  let lastStep: string | undefined;
  let lastLineAt = -Infinity;
  const draw = (): void => {
    if (!event || now() - started < QUIET_MS) return;
    if (event.step === lastStep && now() - lastLineAt < PLAIN_INTERVAL_MS) return;
    sink.write(`${describe(event, "text")} (${seconds(now() - started)})\n`);
    lastStep = event.step;
    lastLineAt = now();
  };
  const timer = setInterval(draw, QUIET_MS);
  timer.unref();
  return {
    onEvent: (next) => {
      event = next;
      draw();
    },
    [Symbol.dispose]: () => clearInterval(timer),
  };
}

function describe(event: ProgressEvent, style: "bar" | "text"): string {
  if (event.done === undefined) return event.step;
  const amount = event.unit === "items" ? String : formatBytes;
  if (!event.total) return `${event.step} ${amount(event.done)}`;
  const part = Math.min(1, event.done / event.total);
  const counts = `${Math.floor(part * 100)}% of ${amount(event.total)}`;
  if (style === "text") return `${event.step} ${counts}`;
  const filled = Math.round(part * BAR_WIDTH);
  return `${event.step} [${"#".repeat(filled)}${".".repeat(BAR_WIDTH - filled)}] ${counts}`;
}

function seconds(ms: number): string {
  return `${Math.floor(ms / 1000)} s`;
}

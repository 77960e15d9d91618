// Output and results in the form of E2B's code interpreter.

import { ForkdError } from "@forkd/runtime/errors";
import { isGone } from "../../dispatch/problem.ts";
import type { DisplayResult, EvalEnd } from "../../api/exec.ts";
import type { EvalEvent } from "../../service/running-eval.ts";

export type Line = { type: string; [field: string]: unknown };

/** Field names by media type; other formats keep their media type as name */
const FIELDS: Record<string, string> = {
  "text/plain": "text",
  "text/html": "html",
  "text/markdown": "markdown",
  "text/latex": "latex",
  "image/svg+xml": "svg",
  "image/png": "png",
  "image/jpeg": "jpeg",
  "application/pdf": "pdf",
  "application/json": "json",
  "application/javascript": "javascript",
  "application/vnd.forkd.data+json": "data",
  "application/vnd.forkd.chart+json": "chart",
};

export async function* executionLines(events: AsyncIterable<EvalEvent>): AsyncGenerator<Line> {
  let main: DisplayResult | undefined;
  try {
    for await (const said of events) {
      if (said.event === "end") yield* endLines(said.data, main);
      // held back: its text comes with the end event
      else if (said.event === "result" && said.data.is_main) main = said.data;
      else if (said.event === "result") yield resultLine(said.data);
      else yield { type: said.event, text: said.data.text, timestamp: new Date().toISOString() };
    }
  } catch (error) {
    if (!(error instanceof ForkdError) || isGone(error) || error.code === "CANCELLED") throw error;
    yield { type: "error", name: error.code, value: error.message, traceback: error.message };
  }
  yield { type: "end_of_execution" };
}

/** ASCII only: some clients decode chunk by chunk and break multi-byte characters */
export function lineOf(line: Line): string {
  const text = JSON.stringify(line).replaceAll(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `${text}\n`;
}

function* endLines(end: EvalEnd, main: DisplayResult | undefined): Generator<Line> {
  yield { type: "number_of_executions", execution_count: end.execution_count };
  if (end.result !== null) yield resultLine({ is_main: true, data: { "text/plain": end.result, ...main?.data }, omitted: main?.omitted });
  if (end.error === null) return;
  const name = end.error_type ?? "Error";
  yield { type: "error", name, value: end.error.slice(name.length + 2), traceback: end.traceback ?? end.error };
}

function resultLine({ is_main: isMain, data, omitted }: DisplayResult): Line {
  const fields = Object.entries(data).map(([mime, value]) => [FIELDS[mime] ?? mime, mime === "text/plain" ? unquoted(value) : value]);
  const left = Object.entries(omitted ?? {}).map(([mime, bytes]) => `${mime} (${bytes} bytes)`);
  return {
    type: "result",
    is_main_result: isMain,
    ...Object.fromEntries(fields),
    ...(left.length > 0 ? { omitted: left.join(", ") } : {}),
  };
}

/** String without the quotes of its literal */
function unquoted(value: unknown): unknown {
  return typeof value === "string" && value.length > 1 && value.startsWith("'") && value.endsWith("'") ? value.slice(1, -1) : value;
}

// One action for several names: all are tried, each has its result, and one failure makes the exit code 1.

import { EXIT_FAILURE, printProblem, problemOf } from "./exit.ts";
import { printJson, printLine } from "./terminal/output.ts";
import { working } from "./terminal/progress.ts";

import type { Cli } from "./cli.ts";
import type { Problem } from "./exit.ts";

const AT_A_TIME = 16;

type Outcome = { id: string; ok: true } | ({ id: string; ok: false } & Problem);

export type EachOptions = {
  /** progress text, such as "Pausing" */
  step: string;
  /** message of a success; %s is the name */
  done: string;
  quiet?: boolean | undefined;
  atATime?: number;
};

export async function forEach(
  cli: Cli,
  names: readonly string[],
  act: (name: string) => Promise<unknown>,
  opts: EachOptions,
): Promise<void> {
  const atATime = opts.atATime ?? AT_A_TIME;
  const outcomes = await working(opts.step, async () => {
    const all: Outcome[] = [];
    for (let i = 0; i < names.length; i += atATime) {
      cli.signal.throwIfAborted();
      all.push(...(await Promise.all(names.slice(i, i + atATime).map(async (id) => attempt(cli, id, act)))));
    }
    return all;
  });
  if (outcomes.some((outcome) => !outcome.ok)) cli.exitCode = EXIT_FAILURE;
  if (cli.json) {
    printJson(outcomes);
    return;
  }
  for (const outcome of outcomes) {
    if (outcome.ok) printLine(opts.quiet ? outcome.id : opts.done.replace("%s", outcome.id));
    else printProblem(outcome);
  }
}

async function attempt(cli: Cli, id: string, act: (name: string) => Promise<unknown>): Promise<Outcome> {
  try {
    await act(id);
    return { id, ok: true };
  } catch (error) {
    if (cli.signal.aborted) throw error;
    return { id, ok: false, ...problemOf(error) };
  }
}

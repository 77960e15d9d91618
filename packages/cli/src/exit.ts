// Ends the process and formats every error message; no other module does either.

import { constants } from "node:os";
import { inOwnWords } from "./hints.ts";
import { printJson, printNote } from "./terminal/output.ts";

export const EXIT_FAILURE = 1;
const EXIT_USAGE = 2;
/** Only for `forkd status`, as in systemctl */
export const EXIT_NOT_RUNNING = 3;
/** Time for clean-up after a signal; VMs end with the process in any case */
const CLEAN_UP_MS = 15_000;

export type Problem = { error: string; code: string; hint: string };

let taker: ((name: NodeJS.Signals) => void) | undefined;

/** Disables signal handling until it is disposed: the program that this command runs gets the signals */
export function takeSignals(handler: (name: NodeJS.Signals) => void): Disposable {
  const before = taker;
  taker = handler;
  return {
    [Symbol.dispose]: () => {
      taker = before;
    },
  };
}

/** First signal: abort and let the command clean up. Second: end at once. */
export function installSignals(): { signal: AbortSignal; receivedSignal: () => NodeJS.Signals | undefined } {
  const controller = new AbortController();
  let received: NodeJS.Signals | undefined;
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(name, () => {
      if (taker) {
        taker(name);
        return;
      }
      if (received) process.exit(signalExitCode(name));
      received = name;
      setTimeout(() => process.exit(signalExitCode(name)), CLEAN_UP_MS).unref();
      controller.abort(new Error(`Interrupted by ${name}.`));
    });
  }
  return { signal: controller.signal, receivedSignal: () => received };
}

/** Prints the error of a failed command and returns the exit code */
export function reportFailure(
  error: unknown,
  opts: { json: boolean; interruptedBy: NodeJS.Signals | undefined; isViewer?: boolean | undefined },
): number {
  if (opts.interruptedBy && opts.isViewer) {
    // the terminal shows ^C, and the shell's prompt would follow on the same line
    if (process.stderr.isTTY) printNote("");
    return signalExitCode(opts.interruptedBy);
  }
  if (opts.interruptedBy) {
    report({ error: "Interrupted.", code: "CANCELLED", hint: "Incomplete results are removed; run the command again." }, opts.json);
    return signalExitCode(opts.interruptedBy);
  }
  report(problemOf(error), opts.json);
  if (process.env["FORKD_DEBUG"] && error instanceof Error) printNote(error.stack ?? error.message);
  return failureExitCode(error);
}

/** As in a shell, for a program that could not be started: 127 when it does not exist, 126 when it cannot be run */
function failureExitCode(error: unknown): number {
  const { code, details } = error as { code?: unknown; details?: Record<string, unknown> };
  const given = code === "EXEC_FAILED" ? details?.["exit_code"] : undefined;
  return typeof given === "number" ? given : EXIT_FAILURE;
}

/** Prints the error of an invalid command line and returns the exit code */
export function reportUsage(error: Error & { code: string }, opts: { json: boolean; hint: string }): number {
  // Commander prints the help itself when a group is called without a verb.
  if (error.code === "commander.help") return EXIT_USAGE;
  const [first = "", ...rest] = error.message.replace(/^error: /, "").split("\n");
  const guess = rest.join(" ").replace(/^\((.*)\)$/, "$1");
  report({ error: sentence(first), code: "USAGE", hint: `${guess ? `${guess} ` : ""}${opts.hint}` }, opts.json);
  return EXIT_USAGE;
}

/** Replaces this process by another program, which keeps the process id and the standard streams */
export function becomeProgram(file: string, args: string[], env: NodeJS.ProcessEnv): never {
  if (!process.execve) throw new Error("This Node cannot replace itself: process.execve is missing.");
  return process.execve(file, [file, ...args], env);
}

/** Ends the process when all output is written */
export function exit(code: number): void {
  process.exitCode = code;
  process.stdout.write("", () => process.stderr.write("", () => process.exit(code)));
}

function report(problem: Problem, json: boolean): void {
  if (json) printJson(problem);
  else printProblem(problem);
}

/** The format of an error message */
export function printProblem(problem: Problem): void {
  printNote(`forkd: ${problem.error}`);
  printNote(`${problem.hint} [${problem.code}]`);
}

/** Recognised by shape, not by class: errors of the daemon, the SDK and the CLI have it */
export function problemOf(error: unknown): Problem {
  if (!(error instanceof Error)) return { error: sentence(String(error)), code: "INTERNAL", hint: INTERNAL_HINT };
  const { code, hint } = error as Error & { code?: unknown; hint?: unknown };
  if (typeof code === "string" && typeof hint === "string") return { error: sentence(error.message), code, hint: inOwnWords(hint) };
  if (typeof code === "string" && /^E[A-Z]+$/.test(code))
    return {
      error: sentence(error.message),
      code,
      hint: PATH_CODES.has(code) ? "Check the path." : "Run 'forkd doctor' to check the host.",
    };
  return { error: sentence(error.message || error.name), code: "INTERNAL", hint: INTERNAL_HINT };
}

/** Errors of the operating system that usually mean a mistyped path */
const PATH_CODES = new Set(["ENOENT", "EACCES", "EISDIR", "ENOTDIR"]);
const INTERNAL_HINT = "This is a fault in forkd. Set FORKD_DEBUG=1 to see where, and report it.";

function sentence(text: string): string {
  const trimmed = text.trim();
  return /[.!?:]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

export function signalExitCode(name: NodeJS.Signals): number {
  return 128 + constants.signals[name];
}

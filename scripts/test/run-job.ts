// Runs one job in its own process group and returns its result.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ROOT } from "./job.ts";
import { signalProcess } from "./leftovers.ts";

import type { Job } from "./job.ts";
import type { Places } from "./places.ts";

const REPORTER = join(import.meta.dirname, "reporter.mjs");
const LOWEST = "19";
const LOWEST_PRIORITY = ["nice", "-n", LOWEST];
/** A background job gets only the time that others leave, as long as there are others */
const BACKGROUND_PATIENCE = 4;
/** Time from SIGTERM to SIGKILL */
const GRACE_MS = 10_000;
/** Time to wait for the end of a job's output, which a running grandchild may hold open */
const OUTPUT_MS = 2000;
/** Maximum length of a failed job's output */
const TAIL_CHARS = 20_000;

export type TestResult = { name: string; ms: number; outcome: "passed" | "failed" | "skipped"; reason: string; error: string };

export type JobResult = {
  job: Job;
  ms: number;
  tests: TestResult[];
  /** reasons for failure other than failed tests */
  problems: string[];
  /** end of the job's output */
  output: string;
};

export type RunOptions = {
  places: Places;
  /** variables for all jobs of this run */
  env: NodeJS.ProcessEnv;
  /** time after which a job counts as hung */
  withinMs: number;
  /** only tests whose names match */
  namePattern: string | null;
  signal: AbortSignal;
};

export async function runJob(job: Job, opts: RunOptions): Promise<JobResult> {
  const place = await opts.places.forFile({ buildsImages: job.images !== null });
  const results = join(place.dir, "results.jsonl");
  const log = join(place.dir, "output.log");
  const [program = "", ...args] = job.command ?? [
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    `--test-reporter=${REPORTER}`,
    `--test-reporter-destination=${results}`,
    ...(opts.namePattern === null ? [] : [`--test-name-pattern=${opts.namePattern}`]),
    join(ROOT, job.name),
  ];
  const from = performance.now();
  const problems: string[] = [];
  const isBackground = job.background !== null;
  const [started, ...rest] = [...(isBackground ? LOWEST_PRIORITY : []), program, ...args];
  const withinMs = opts.withinMs * (isBackground ? BACKGROUND_PATIENCE : 1);
  const code = await runProcess(started ?? program, rest, {
    ...opts,
    withinMs,
    env: { ...opts.env, ...place.env },
    log,
    problems,
    isBackground,
  });
  const ms = Math.round(performance.now() - from);
  const tests = job.command ? [] : await readResults(results);
  const output = (await readFile(log, "utf8")).slice(-TAIL_CHARS);
  if (code !== 0 && !tests.some(({ outcome }) => outcome === "failed")) problems.push(`it ended with ${code}`);
  if (!job.command && code === 0 && tests.length === 0 && opts.namePattern === null) problems.push("it has no test");
  problems.push(...(await opts.places.release(place)));
  return { job, ms, tests, problems, output };
}

type ProcessOptions = RunOptions & { log: string; problems: string[]; isBackground: boolean };

/** Exit code, or the signal that ended the process */
async function runProcess(program: string, args: string[], opts: ProcessOptions): Promise<number | string> {
  const log = createWriteStream(opts.log);
  const child = spawn(program, args, { cwd: ROOT, env: opts.env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  const closed = once(child, "close").catch(() => undefined);
  const ended = new AbortController();
  const stop = async (reason: string): Promise<void> => {
    opts.problems.push(reason);
    signalGroup(child.pid, "SIGTERM");
    await sleep(GRACE_MS, undefined, { signal: ended.signal }).catch(() => undefined);
    if (!ended.signal.aborted) signalGroup(child.pid, "SIGKILL");
  };
  const onAbort = (): void => void stop("the run was stopped");
  opts.signal.addEventListener("abort", onAbort);
  if (opts.signal.aborted) onAbort();
  const hung = setTimeout(() => void stop(`it did not end within ${Math.round(opts.withinMs / 1000)} s`), opts.withinMs);
  try {
    const lowered = opts.isBackground ? lowerSession(child.pid) : undefined;
    const [[code, signal]] = (await Promise.all([once(child, "exit"), lowered])) as [[number | null, NodeJS.Signals | null], void];
    return code ?? signal ?? "an unknown signal";
  } finally {
    ended.abort();
    clearTimeout(hung);
    opts.signal.removeEventListener("abort", onAbort);
    // At exit, the last output, which has the reason of a failure, may still be in the pipes.
    await Promise.race([closed, sleep(OUTPUT_MS, undefined, { ref: false })]);
    child.stdout.destroy();
    child.stderr.destroy();
    log.end();
    await once(log, "close");
  }
}

async function readResults(path: string): Promise<TestResult[]> {
  // a killed process may leave an incomplete last line
  const lines = (await readFile(path, "utf8").catch(() => "")).split("\n").slice(0, -1);
  await rm(path, { force: true });
  return lines.map((line) => JSON.parse(line) as TestResult);
}

/**
 * Gives the session of a process the lowest priority. Linux shares the CPUs among sessions first ("autogroup"), so `nice`
 * alone has an effect only within a session, and a job is one of its own
 */
async function lowerSession(pid: number | undefined): Promise<void> {
  await writeFile(`/proc/${pid}/autogroup`, LOWEST).catch((error: NodeJS.ErrnoException) => {
    // ENOENT: a kernel without it, or the process has ended; EINVAL, EIO: it is switched off
    if (!["ENOENT", "ESRCH", "EINVAL", "EIO"].includes(error.code ?? "")) throw error;
  });
}

function signalGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid !== undefined) signalProcess(-pid, signal);
}

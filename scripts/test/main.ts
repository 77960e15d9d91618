// Test runner: three files at a time, longest first, each with its own store.
// Usage: scripts/test/main.ts [--all] [--again] [--file PART]... [--name PATTERN] SUITE...   (check, rust, python, unit, e2e,
// recipes, cluster)

import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { controlPlane } from "../../tests/helpers/control-plane.ts";
import { CACHE, readDurations, longestFirst, writeDurations } from "./durations.ts";
import { commandJob, fileJobs, ROOT, SUITES } from "./job.ts";
import { Places } from "./places.ts";
import { pythonJobs } from "./python.ts";
import { runJob } from "./run-job.ts";
import { runAll } from "./schedule.ts";
import { failedText, failureText, hasFailed, jobLine, skippedText, slowestText, totalText, unsteadyText } from "./summary.ts";

import type { Job, Suite } from "./job.ts";
import type { JobResult, RunOptions } from "./run-job.ts";

const REFERENCE = join(import.meta.dirname, "reference.ts");
const AT_ONCE = 3;
/** With --again */
const MOST_AGAIN = 3;
/** Multiple of the reference after which a job counts as hung */
const JOB_PATIENCE = 300;
/** Used in a run without VMs, which does not measure the reference */
const ASSUMED_REFERENCE_MS = 10_000;
/** The reference may include the build of an image */
const REFERENCE_WITHIN_MS = 3_600_000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    all: { type: "boolean", default: false },
    again: { type: "boolean", default: false },
    file: { type: "string", multiple: true, default: [] },
    name: { type: "string" },
  },
});
process.exitCode = await main();

async function main(): Promise<number> {
  const started = performance.now();
  const unknown = positionals.filter((name) => !(SUITES as readonly string[]).includes(name));
  if (positionals.length === 0 || unknown.length > 0) {
    console.error(`usage: scripts/test/main.ts [--all] [--again] [--file PART]... [--name PATTERN] SUITE...   (${SUITES.join(", ")})`);
    return 2;
  }
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => tellStop(stop));

  const suites = SUITES.filter((suite) => positionals.includes(suite));
  const jobs = await jobsOf(suites);
  if (jobs.length === 0) {
    console.error(`test: no test file of ${suites.join(", ")} has "${values.file.join('" or "')}" in its path`);
    return 1;
  }
  // Before the first job: each one has a time limit, and the build takes minutes.
  const noCluster = jobs.some(({ suite }) => suite === "cluster") ? await prepareControlPlane() : null;
  const vms = suites.some((suite) => suite === "e2e" || suite === "recipes" || suite === "cluster");
  if (vms) console.log("test: preparing the shared image and snapshot");
  const places = await Places.make({ vms });
  try {
    const results: JobResult[] = [];
    const env: NodeJS.ProcessEnv = { ...process.env, PATH: `${join(ROOT, "node_modules/.bin")}:${process.env["PATH"]}` };
    // Short test files spend most of their time on type stripping and compilation of shared modules.
    env["NODE_COMPILE_CACHE"] ??= join(CACHE, "node-tests");
    if (values.all) env["FORKD_TEST_ALL"] = "1";
    if (noCluster !== null) env["FORKD_TEST_NO_CLUSTER"] = noCluster;
    const shared = { places, env, namePattern: values.name ?? null, signal: stop.signal };
    const referenceMs = vms ? await reference({ ...shared, withinMs: REFERENCE_WITHIN_MS }) : ASSUMED_REFERENCE_MS;
    if (referenceMs === null) return 1;
    env["FORKD_TEST_REFERENCE_MS"] = String(referenceMs);
    const opts = { ...shared, withinMs: JOB_PATIENCE * referenceMs };
    const durations = await readDurations();
    const run = async (job: Job): Promise<void> => {
      const result = await runJob(job, opts);
      results.push(result);
      if (!hasFailed(result)) durations[job.name] = result.ms;
      console.log(jobLine(result, results.length, jobs.length));
      const failure = failureText(result);
      if (failure !== "") console.log(failure);
    };
    await runAll(longestFirst(jobs, durations), run, { atOnce: AT_ONCE, signal: stop.signal });
    await writeDurations(durations);
    const unsteady = values.again ? await runAgain(results, opts) : [];
    console.log(
      [slowestText(results), skippedText(results), unsteadyText(unsteady), failedText(results)].filter((text) => text !== "").join("\n"),
    );
    console.log(totalText(results, performance.now() - started));
    if (stop.signal.aborted) console.log(`test: stopped; ${jobs.length - results.length} of ${jobs.length} jobs were not begun`);
    return results.some(hasFailed) || stop.signal.aborted ? 1 : 0;
  } finally {
    for (const problem of await places.remove()) console.log(`test: at the end of the run, ${problem}`);
  }
}

/** Stopping takes a while and is bounded, so further signals do not end this process before it has ended the others */
function tellStop(stop: AbortController): void {
  console.log("test: stopping: ending all processes of the run");
  stop.abort();
}

/**
 * Runs failed jobs again, alone. A second result replaces the first; returns the first results of those that passed then.
 * Many failures have another cause than a busy machine, so they are not tried again
 */
async function runAgain(results: JobResult[], opts: RunOptions): Promise<JobResult[]> {
  const failed = results.filter(hasFailed);
  if (failed.length > MOST_AGAIN) return [];
  const unsteady: JobResult[] = [];
  for (const first of failed) {
    if (opts.signal.aborted) break;
    const second = await runJob(first.job, opts);
    console.log(`again, alone: ${jobLine(second, 1, 1)}`);
    const failure = failureText(second);
    if (failure === "") unsteady.push(first);
    else console.log(failure);
    results[results.indexOf(first)] = second;
  }
  return unsteady;
}

async function jobsOf(suites: readonly Suite[]): Promise<Job[]> {
  const jobs: Job[] = [];
  for (const suite of suites) {
    if (suite === "check") jobs.push(commandJob(suite, "check", ["scripts/check.sh"]));
    else if (suite === "rust") jobs.push(commandJob(suite, "rust", ["cargo", "test", "--release", "--locked", "--quiet"]));
    else if (suite === "python") jobs.push(...(await pythonJobs()));
    else jobs.push(...(await fileJobs(suite, { long: values.all, parts: values.file })));
  }
  return jobs;
}

/** The reason why there is none; its tests then skip themselves with the same one, and do not build it again */
async function prepareControlPlane(): Promise<string | null> {
  try {
    await controlPlane((line) => console.log(`test: ${line}`));
    return null;
  } catch (error) {
    const { message } = error as Error;
    console.log(`test: tests/cluster is skipped: ${message}`);
    return message;
  }
}

/** Builds the default test image if it is missing, and measures this machine; null if that failed */
async function reference(opts: RunOptions): Promise<number | null> {
  const result = await runJob(commandJob("e2e", "reference", [process.execPath, "--disable-warning=ExperimentalWarning", REFERENCE]), opts);
  const ms = Number(result.output.trimEnd().split("\n").at(-1));
  if (hasFailed(result) || !(ms > 0)) {
    console.log(`test: the reference could not be measured\n${failureText(result)}`);
    return null;
  }
  console.log(
    `test: reference: boot, fork and eval took ${ms} ms on this machine (${availableParallelism()} cores); waits are multiples of that`,
  );
  return ms;
}

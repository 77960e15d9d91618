// Output of a test run: one line per finished job, then the slowest tests, the failures and the counts.

import { SUITES } from "./job.ts";

import type { JobResult, TestResult } from "./run-job.ts";

const SLOWEST = 20;
/** Lines of a failure that are repeated at the end */
const REPEATED_LINES = 8;

export function hasFailed({ problems, tests }: JobResult): boolean {
  return problems.length > 0 || tests.some(({ outcome }) => outcome === "failed");
}

export function jobLine(result: JobResult, done: number, all: number): string {
  const { job, ms, tests } = result;
  const count = tests.length > 0 ? ` (${tests.length} tests)` : "";
  return `[${String(done).padStart(String(all).length)}/${all}] ${hasFailed(result) ? "FAILED" : "ok"} ${seconds(ms)} ${job.name}${count}`;
}

/** Failures and output of a job, or "" */
export function failureText(result: JobResult): string {
  if (!hasFailed(result)) return "";
  const failed = result.tests.filter(({ outcome }) => outcome === "failed");
  const lines = [
    ...failed.flatMap(({ name, error }) => [`✖ ${name}`, indent(error)]),
    ...result.problems.map((problem) => `✖ ${result.job.name}: ${problem}`),
    ...(result.output.trim() === "" ? [] : ["printed:", indent(result.output.trimEnd())]),
  ];
  return lines.map((line) => indent(line)).join("\n");
}

export function skippedText(results: readonly JobResult[]): string {
  const skipped = results.flatMap(({ job, tests }) => ofOutcome(tests, "skipped").map((test) => ({ job, test })));
  if (skipped.length === 0) return "";
  const lines = skipped.map(({ job, test }) => `  ${job.name}: ${test.name}: ${test.reason || "no reason given"}`);
  return ["=== skipped", ...lines].join("\n");
}

/** First failures of jobs that passed when they ran again: each is a defect of the product or of the test */
export function unsteadyText(results: readonly JobResult[]): string {
  const lines = failureLines(results);
  return lines.length === 0 ? "" : ["=== unsteady: failed, and passed when run again alone", ...lines].join("\n");
}

/** All failures again, shortened: readers start at the end of a long log */
export function failedText(results: readonly JobResult[]): string {
  const lines = failureLines(results);
  return lines.length === 0 ? "" : ["=== failed", ...lines].join("\n");
}

function failureLines(results: readonly JobResult[]): string[] {
  return results
    .filter(hasFailed)
    .flatMap(({ job, problems, tests }) => [
      ...ofOutcome(tests, "failed").flatMap(({ name, error }) => [`  ${job.name}: ${name}`, indent(firstLines(error))]),
      ...problems.map((problem) => `  ${job.name}: ${problem}`),
    ]);
}

export function slowestText(results: readonly JobResult[]): string {
  const jobs = results.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST);
  const tests = results
    .flatMap(({ job, tests }) => tests.map(({ name, ms }) => ({ job, name, ms })))
    .toSorted((a, b) => b.ms - a.ms)
    .slice(0, SLOWEST);
  return [
    `=== the ${jobs.length} slowest files`,
    ...jobs.map(({ job, ms }) => `  ${seconds(ms)} ${job.name}`),
    `=== the ${tests.length} slowest tests`,
    ...tests.map(({ job, name, ms }) => `  ${seconds(ms)} ${job.name}: ${name}`),
  ].join("\n");
}

/** Last lines: the result of each suite, and the counts */
export function totalText(results: readonly JobResult[], wallMs: number): string {
  const parts = SUITES.flatMap((suite) => {
    const own = results.filter(({ job }) => job.suite === suite);
    if (own.length === 0) return [];
    const busy = own.reduce((sum, { ms }) => sum + ms, 0);
    return [`${suite} ${own.some(hasFailed) ? "FAILED" : "ok"} (${Math.round(busy / 1000)} s)`];
  });
  const tests = results.flatMap((result) => result.tests);
  const count = (outcome: TestResult["outcome"]): number => ofOutcome(tests, outcome).length;
  // A job without tests, or one that failed outside its tests, counts as one.
  const jobs = results.filter(({ job, problems }) => job.command !== undefined || problems.length > 0);
  const failedJobs = jobs.filter(({ problems }) => problems.length > 0).length;
  const passedJobs = jobs.filter(({ job, problems }) => job.command !== undefined && problems.length === 0).length;
  const failed = results.some(hasFailed);
  return [
    `=== test: ${failed ? "FAILED" : "passed"} in ${Math.round(wallMs / 1000)} s: ${parts.join(", ")}`,
    `${count("passed") + passedJobs} passed, ${count("failed") + failedJobs} failed, ${count("skipped")} skipped`,
  ].join("\n");
}

function ofOutcome(tests: readonly TestResult[], outcome: TestResult["outcome"]): TestResult[] {
  return tests.filter((test) => test.outcome === outcome);
}

function firstLines(text: string): string {
  return text.split("\n", REPEATED_LINES).join("\n").trimEnd();
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1).padStart(6)} s`;
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, "    ");
}

// The test runner: order of jobs and reports of failed files.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { longestFirst, readDurations, writeDurations } from "./durations.ts";
import { runAll } from "./schedule.ts";
import { failedText, failureText, hasFailed, totalText, unsteadyText } from "./summary.ts";

import type { Job } from "./job.ts";
import type { JobResult, TestResult } from "./run-job.ts";

const job = (name: string, more: Partial<Job> = {}): Job => ({
  name,
  suite: "e2e",
  alone: null,
  background: null,
  images: null,
  weight: 1,
  ...more,
});
const passed: TestResult = { name: "works", ms: 5, outcome: "passed", reason: "", error: "" };
const result = (more: Partial<JobResult> = {}): JobResult => ({
  job: job("a"),
  ms: 10,
  tests: [passed],
  problems: [],
  output: "",
  ...more,
});

test("unmeasured jobs start first, then the longest job of the last run", () => {
  const jobs = [job("short"), job("new", { weight: 2 }), job("long"), job("newer", { weight: 3 })];
  const names = longestFirst(jobs, { short: 1, long: 9 }).map(({ name }) => name);
  assert.deepEqual(names, ["newer", "new", "long", "short"]);
});

test("durations are stored, and an unreadable file counts as empty", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-durations-"));
  try {
    const file = join(dir, "deep", "durations.json");
    assert.deepEqual(await readDurations(file), {});
    await writeDurations({ a: 1 }, file);
    assert.deepEqual(await readDurations(file), { a: 1 });
    await writeFile(file, '{"a":');
    assert.deepEqual(await readDurations(file), {});
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("two jobs run at a time, and a job that must run alone runs without others", async () => {
  const running = new Set<string>();
  const beside = new Map<string, string[]>();
  let most = 0;
  const jobs = [job("alone", { alone: "it measures time" }), ...["a", "b", "c", "d"].map((name) => job(name))];
  const run = async ({ name }: Job): Promise<void> => {
    beside.set(name, [...running]);
    running.add(name);
    most = Math.max(most, running.size);
    await sleep(5);
    running.delete(name);
  };
  await runAll(jobs, run, { atOnce: 2, signal: new AbortController().signal });
  assert.deepEqual([most, beside.size, beside.get("alone")], [2, 5, []]);
});

test("a background job takes no place of the others, and is over before a job that runs alone", async () => {
  const running = new Set<string>();
  const beside = new Map<string, string[]>();
  const jobs = [job("alone", { alone: "it measures time" }), job("a"), job("b"), job("slow", { background: "it only needs CPU time" })];
  const run = async ({ name }: Job): Promise<void> => {
    running.add(name);
    await sleep(5);
    beside.set(name, [...running]);
    if (name === "slow") await sleep(50);
    running.delete(name);
  };
  await runAll(jobs, run, { atOnce: 1, signal: new AbortController().signal });
  assert.deepEqual([beside.get("a"), beside.get("b"), beside.get("alone")], [["slow", "a"], ["slow", "b"], ["alone"]]);
});

test("a stopped run starts no further job", async () => {
  const stop = new AbortController();
  const begun: string[] = [];
  const run = async ({ name }: Job): Promise<void> => {
    begun.push(name);
    stop.abort();
  };
  await runAll([job("a"), job("b"), job("c", { alone: "it fills the machine" })], run, { atOnce: 1, signal: stop.signal });
  assert.deepEqual(begun, ["a"]);
});

test("a file fails by a failed test, by leftovers, and by its exit code", () => {
  assert.equal(hasFailed(result()), false);
  assert.equal(hasFailed(result({ problems: ["it left process 7 running: qemu"] })), true);
  const broken = result({ tests: [passed, { ...passed, name: "breaks", outcome: "failed", error: "Error: no" }], output: "noise" });
  assert.match(failureText(broken), /✖ breaks\n\s+Error: no\n\s+printed:\n\s+noise/);
  assert.equal(failureText(result()), "");
  assert.match(failedText([result(), broken]), /^=== failed\n  a: breaks\n\s+Error: no$/);
  assert.equal(failedText([result()]), "");
});

test("what passed only at the second attempt is listed with its first failure", () => {
  assert.equal(unsteadyText([]), "");
  const first = result({ tests: [{ ...passed, outcome: "failed", error: "Error: late" }] });
  assert.match(unsteadyText([first]), /^=== unsteady: .*\n  a: works\n    Error: late$/);
});

test("the last line counts tests, and jobs that are not test files", () => {
  const check = result({ job: job("check", { suite: "check", command: ["true"] }), tests: [] });
  const skipped = result({ tests: [passed, { ...passed, outcome: "skipped", reason: "not root" }] });
  assert.match(
    totalText([check, skipped], 2000),
    /^=== test: passed in 2 s: check ok \(0 s\), e2e ok \(0 s\)\n2 passed, 0 failed, 1 skipped$/,
  );
  const left = result({ problems: ["it left files"] });
  assert.match(totalText([left], 2000), /FAILED.*\n1 passed, 1 failed, 0 skipped$/);
});

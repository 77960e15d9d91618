// A recipe's own tests, each in a fork of its own.

import { isDeepStrictEqual } from "node:util";
import { failure } from "../errors.ts";
import { withSandbox } from "../temporary.ts";
import { wordsOf } from "./plan.ts";
import { outputOf } from "./steps.ts";

import type { Work } from "./build.ts";
import type { Recipe, RecipeTest } from "./schema.ts";
import type { Place } from "./steps.ts";

export type TestResult = { name: string; ms: number };

/** All of them, and then the error when one failed */
export async function runTests(work: Work, recipe: Recipe, tag: string): Promise<TestResult[]> {
  const { cli, forkd } = work;
  const results: TestResult[] = [];
  const failed: string[] = [];
  for (const test of recipe.tests) {
    const name = titleOf(test);
    const began = performance.now();
    const why = await work.during(`Test: ${name}`, async () =>
      withSandbox(cli, forkd, tag, async (sandbox) => runTest(work, test, recipe, { forkd, sandbox, signal: cli.signal })),
    );
    if (why === undefined) results.push({ name, ms: Math.round(performance.now() - began) });
    else failed.push(`“${name}”: ${why}`);
  }
  if (failed.length > 0)
    throw failure(
      "TESTS_FAILED",
      `${failed.length} of ${recipe.tests.length} tests of ${recipe.name} failed: ${failed.join("; ")}`,
      "Mend the recipe or the test; 'forkd recipes test' runs them again.",
    );
  return results;
}

/** Why it failed */
async function runTest(work: Work, test: RecipeTest, recipe: Recipe, at: Place): Promise<string | undefined> {
  const { forkd, sandbox, signal } = at;
  const { timeout_secs: timeoutSecs, expect } = test;
  const given = { timeoutSecs, signal };
  if (test.kind === "exec") {
    const { user = recipe.user, workdir: cwd = recipe.workdir, env, stdin } = test;
    const done = await forkd.execCommand(sandbox, test.exec, { user, cwd, env, stdin, ...given });
    const wanted = test.expect.exit_code;
    return told(work, done, done.exit_code === wanted ? unlike(done, expect) : `its exit code is ${done.exit_code}, not ${wanted}`);
  }
  const done = await forkd.evalCode(sandbox, test.eval, { language: test.language, ...given });
  if (done.exit_code !== 0) return told(work, done, done.error ?? "it failed");
  const wanted = test.expect.value;
  const isWanted = wanted === undefined || isDeepStrictEqual(done.value, wanted);
  return told(work, done, isWanted ? unlike(done, expect) : `its value is ${done.result ?? "nothing"}, not ${JSON.stringify(wanted)}`);
}

async function told(work: Work, done: { stdout: string; stderr: string }, why: string | undefined): Promise<string | undefined> {
  if (why !== undefined) await work.output(outputOf(done));
  return why;
}

function unlike(done: { stdout: string; stderr: string }, expect: RecipeTest["expect"]): string | undefined {
  for (const stream of ["stdout", "stderr"] as const) {
    const pattern = expect[stream];
    if (pattern !== undefined && !new RegExp(pattern, "mu").test(done[stream])) return `its ${stream} is not like ${pattern}`;
  }
  return undefined;
}

function titleOf(test: RecipeTest): string {
  return test.name ?? (test.kind === "exec" ? wordsOf(test.exec) : wordsOf([test.eval]));
}

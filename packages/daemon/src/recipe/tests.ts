// Tests of a recipe, each in its own fork.

import { isDeepStrictEqual } from "node:util";
import { ForkdError } from "@forkd/runtime/errors";
import { matches } from "./pattern.ts";
import { wordsOf } from "./plan.ts";
import { outputOf } from "./steps.ts";
import type { Guest } from "./guest.ts";
import type { Recipe, RecipeTest } from "./schema.ts";

export type TestResult = { name: string; ms: number };

type Failure = { why: string; output: string };

/** Runs `test` in its own fork, as a titled part of the build */
type InFork = (title: string, test: (guest: Guest) => Promise<Failure | undefined>) => Promise<Failure | undefined>;

/** Runs all tests, then throws TESTS_FAILED if any failed */
export async function runTests(recipe: Recipe, inFork: InFork): Promise<TestResult[]> {
  const results: TestResult[] = [];
  const failed: ({ name: string } & Failure)[] = [];
  for (const test of recipe.tests) {
    const name = titleOf(test);
    const began = performance.now();
    const failure = await inFork(`Test: ${name}`, async (guest) => runTest(test, recipe, guest));
    if (failure === undefined) results.push({ name, ms: Math.round(performance.now() - began) });
    else failed.push({ name, ...failure });
  }
  if (failed.length === 0) return results;
  const reasons = failed.map(({ name, why }) => `“${name}”: ${why}`).join("; ");
  throw new ForkdError("TESTS_FAILED", `${failed.length} of ${recipe.tests.length} tests of ${recipe.name} failed: ${reasons}.`, {
    details: { output: failed.map(({ output }) => output).join("") },
  });
}

async function runTest(test: RecipeTest, recipe: Recipe, guest: Guest): Promise<Failure | undefined> {
  const { timeout_secs: timeoutSecs } = test;
  if (test.kind === "exec") {
    const { user = recipe.user, workdir: cwd = recipe.workdir, env, stdin } = test;
    const done = await guest.exec(test.exec, { user, cwd, env, stdin, timeoutSecs });
    const wanted = test.expect.exit_code;
    return failureOf(done, done.exit_code === wanted ? difference(done, test.expect) : `its exit code is ${done.exit_code}, not ${wanted}`);
  }
  const done = await guest.eval(test.eval, { language: test.language, timeoutSecs });
  if (done.exit_code !== 0) return failureOf(done, done.error ?? "it failed");
  const wanted = test.expect.value;
  const isWanted = wanted === undefined || isDeepStrictEqual(done.value, wanted);
  return failureOf(
    done,
    isWanted ? difference(done, test.expect) : `its value is ${done.result ?? "nothing"}, not ${JSON.stringify(wanted)}`,
  );
}

function failureOf(done: { stdout: string; stderr: string }, why: string | undefined): Failure | undefined {
  return why === undefined ? undefined : { why, output: outputOf(done) };
}

function difference(done: { stdout: string; stderr: string }, expect: RecipeTest["expect"]): string | undefined {
  for (const stream of ["stdout", "stderr"] as const) {
    const pattern = expect[stream];
    if (pattern !== undefined && !matches(pattern, done[stream])) return `its ${stream} does not match ${pattern}`;
  }
  return undefined;
}

function titleOf(test: RecipeTest): string {
  return test.name ?? (test.kind === "exec" ? wordsOf(test.exec) : wordsOf([test.eval]));
}

// Builds a recipe with the real CLI.

import assert from "node:assert/strict";

import type { TestDaemon } from "./daemon.ts";

type Options = { set?: Record<string, string>; tag?: string; /** the recipe's own tests must succeed too */ test?: boolean };

/** Returns the tag of the snapshot. Images come from the machine's store, so they are built once for all test files */
export async function buildRecipe(daemon: TestDaemon, name: string, opts: Options = {}): Promise<string> {
  const set = Object.entries(opts.set ?? {}).flatMap(([key, value]) => ["--set", `${key}=${value}`]);
  const tag = opts.tag === undefined ? [] : ["--tag", opts.tag];
  const { code, stdout, stderr } = await daemon.cli(["build", name, "-q", ...set, ...tag, ...(opts.test ? ["--test"] : [])]);
  assert.equal(code, 0, `forkd build ${name}:\n${stderr}`);
  return stdout.trim();
}

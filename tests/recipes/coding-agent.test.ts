// The recipe coding-agent: its own tests, and the demo, whose patch fixes the project on the host.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { buildRecipe } from "../helpers/recipe.ts";

const run = promisify(execFile);
const RECIPE = resolve(import.meta.dirname, "..", "..", "recipes", "coding-agent");

describe("recipe coding-agent", () => {
  let daemon: TestDaemon;
  let dir: string;

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-test-coding-agent-"));
    daemon = await TestDaemon.start();
    await buildRecipe(daemon, "coding-agent", { test: true });
  });

  after(async () => {
    await daemon[Symbol.asyncDispose]();
    await rm(dir, { recursive: true, force: true });
  });

  it("tries three fixes in three branches of a running machine, and exports the best patch", async () => {
    const patch = join(dir, "winner.patch");
    const args = ["--disable-warning=ExperimentalWarning", join(RECIPE, "demo.ts"), patch];
    const { stdout } = await run(process.execPath, args, { env: daemon.env, timeout: patience(40) });

    assert.match(stdout, /^The repository: 3 failed, 2 passed/m);
    assert.match(stdout, /^✗ average the two in the middle: 1 failed, 4 passed/m);
    assert.match(stdout, /^✓ sort a copy: 5 passed/m);
    assert.match(stdout, /^✗ count without sorting: 1 failed, 4 passed/m);
    assert.match(stdout, /^The winner: sort a copy$/m);
    assert.ok(stdout.includes(await readFile(patch, "utf8")));

    const project = join(dir, "project");
    await cp(join(RECIPE, "project"), project, { recursive: true });
    await run("git", ["apply", patch], { cwd: project });
    assert.match(await readFile(join(project, "stats.c"), "utf8"), /free\(sorted\)/);
    assert.deepEqual(await daemon.controller.listSandboxes({ state: ["running"] }), []);
  });
});

// The recipe nodejs: its own tests, and its use through the SDK.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { buildRecipe } from "../helpers/recipe.ts";

describe("recipe nodejs", () => {
  let daemon: TestDaemon;

  before(async () => {
    daemon = await TestDaemon.start();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("builds, and its own tests succeed", async () => {
    assert.equal(await buildRecipe(daemon, "nodejs", { test: true }), "nodejs");
  });

  it("has in every fork a Node kernel that keeps its state, and programs besides", async () => {
    await using sandbox = await Sandbox.create("nodejs", { controller: daemon.controller });
    await sandbox.eval("var total = 0; for (const n of [1, 2, 3]) total += n");
    assert.equal((await sandbox.eval("total * 7")).value, 42);
    const { stdout } = await sandbox.exec(["node", "-p", "process.version"]);
    assert.match(stdout, /^v\d+\./);
  });
});

// The recipe python-numpy: its own tests, and its use through the SDK.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { buildRecipe } from "../helpers/recipe.ts";

describe("recipe python-numpy", () => {
  let daemon: TestDaemon;

  before(async () => {
    daemon = await TestDaemon.start();
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("builds, and its own tests succeed", async () => {
    assert.equal(await buildRecipe(daemon, "python-numpy", { test: true }), "python-numpy");
  });

  it("has numpy imported in every fork", async () => {
    await using sandbox = await Sandbox.create("python-numpy", { controller: daemon.controller });
    const { value } = await sandbox.eval("int(numpy.arange(1000).sum())");
    assert.equal(value, 499_500);
  });

  it("is not built a second time", async () => {
    const { code, stdout } = await daemon.cli(["build", "python-numpy", "--json"]);
    assert.equal(code, 0);
    assert.equal((JSON.parse(stdout) as { unchanged: boolean }).unchanged, true);
  });
});

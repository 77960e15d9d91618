// The recipe e2b-base, used as a template by E2B's own SDK.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "e2b";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { buildRecipe } from "../helpers/recipe.ts";

describe("recipe e2b-base", () => {
  let e2b: E2bDaemon;

  before(async () => {
    forgetClocks();
    e2b = await E2bDaemon.start(async (daemon) => {
      assert.equal(await buildRecipe(daemon, "e2b-base", { test: true }), "base");
    });
    Object.assign(process.env, e2b.env);
  });

  after(async () => {
    for (const name of Object.keys(e2b.env)) delete process.env[name];
    await e2b[Symbol.asyncDispose]();
  });

  it("is the default template of E2B's SDK", async () => {
    const { id } = await e2b.daemon.controller.getSnapshot("base");
    const sandbox = await Sandbox.create(PATIENT);
    try {
      const [forked] = await e2b.daemon.controller.listSandboxes();
      assert.equal(forked?.snapshot_id, id);
      assert.equal((await sandbox.commands.run("id -un; pwd")).stdout, "user\n/home/user\n");
      assert.equal((await sandbox.commands.run("sudo id -un; python -c 'print(6 * 7)'")).stdout, "root\n42\n");
      await sandbox.files.write("note", "kept");
      assert.equal((await sandbox.commands.run("git --version && cat note")).stdout.split("\n").at(1), "kept");
    } finally {
      await sandbox.kill();
    }
  });
});

// The recipe e2b-code-interpreter, used as a template by E2B's own package.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { buildRecipe } from "../helpers/recipe.ts";

describe("recipe e2b-code-interpreter", () => {
  let e2b: E2bDaemon;

  before(async () => {
    forgetClocks();
    e2b = await E2bDaemon.start(async (daemon) => {
      assert.equal(await buildRecipe(daemon, "e2b-code-interpreter", { test: true }), "code-interpreter-v1");
    });
    Object.assign(process.env, e2b.env);
  });

  after(async () => {
    for (const name of Object.keys(e2b.env)) delete process.env[name];
    await e2b[Symbol.asyncDispose]();
  });

  it("is the default template of E2B's code interpreter: a table and a figure", async () => {
    const { id } = await e2b.daemon.controller.getSnapshot("code-interpreter-v1");
    const sandbox = await Sandbox.create(PATIENT);
    try {
      const [forked] = await e2b.daemon.controller.listSandboxes();
      assert.equal(forked?.snapshot_id, id);
      const table = await sandbox.runCode("import pandas; pandas.DataFrame({'a': [1, 2]}).sum().a", PATIENT);
      assert.equal(table.text, "3");
      const figure = await sandbox.runCode("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()", PATIENT);
      assert.ok(figure.results.some(({ png }) => png));
      assert.equal((await sandbox.runCode("process.cwd()", { language: "js" })).text, "/home/user");
    } finally {
      await sandbox.kill();
    }
  });
});

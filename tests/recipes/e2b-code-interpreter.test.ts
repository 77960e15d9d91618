// The recipe e2b-code-interpreter: E2B's own package finds it as its template.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";
import { E2bDaemon, forgetClocks } from "../helpers/e2b.ts";
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

  it("is what E2B's code interpreter begins with: a table and a figure", async () => {
    const { id } = await e2b.daemon.controller.getSnapshot("code-interpreter-v1");
    const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
    try {
      const [forked] = await e2b.daemon.controller.listSandboxes();
      assert.equal(forked?.snapshot_id, id);
      const table = await sandbox.runCode("import pandas; pandas.DataFrame({'a': [1, 2]}).sum().a");
      assert.equal(table.text, "3");
      const figure = await sandbox.runCode("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()");
      assert.ok(figure.results.some(({ png }) => png));
      assert.equal((await sandbox.runCode("process.cwd()", { language: "js" })).text, "/home/user");
    } finally {
      await sandbox.kill();
    }
  });
});

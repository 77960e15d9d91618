// The recipe e2b-languages: TypeScript, R and Java through E2B's own package.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "@e2b/code-interpreter";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { buildRecipe } from "../helpers/recipe.ts";

const TEMPLATE = "code-interpreter-languages";

describe("recipe e2b-languages", () => {
  let e2b: E2bDaemon;
  let sandbox: Sandbox;

  before(async () => {
    forgetClocks();
    e2b = await E2bDaemon.start(async (daemon) => {
      assert.equal(await buildRecipe(daemon, "e2b-languages", { test: true }), TEMPLATE);
    });
    Object.assign(process.env, e2b.env);
    sandbox = await Sandbox.create(TEMPLATE, PATIENT);
  });

  after(async () => {
    for (const name of Object.keys(e2b.env)) delete process.env[name];
    await e2b[Symbol.asyncDispose]();
  });

  it("runs TypeScript", async () => {
    await sandbox.runCode("interface Point { x: number }\nconst point: Point = { x: 20 }", { language: "ts" });
    assert.equal((await sandbox.runCode("point.x + 1", { language: "typescript" })).text, "21");
  });

  it("runs R, and shows its figures", async () => {
    await sandbox.runCode("x <- c(1, 2, 3)", { language: "r" });
    const { text, results } = await sandbox.runCode("plot(x)\nsum(x)", { language: "r" });
    assert.equal(text, "[1] 6");
    assert.deepEqual(
      Buffer.from(results.find(({ png }) => png)?.png ?? "", "base64")
        .subarray(1, 4)
        .toString(),
      "PNG",
    );
    assert.equal((await sandbox.runCode("stop('no')", { language: "r" })).error?.value, "no");
  });

  it("runs Java", async () => {
    await sandbox.runCode("int twice(int n) { return 2 * n; }", { language: "java" });
    const { text, logs } = await sandbox.runCode('System.out.println("hello");\ntwice(21)', { language: "java" });
    assert.deepEqual([text, logs.stdout.join("")], ["42", "hello\n"]);
  });

  it("has different random numbers in each sandbox", async () => {
    const codes = { ts: "Math.random()", r: "runif(1)", java: "Math.random()" };
    const other = await Sandbox.create(TEMPLATE, PATIENT);
    for (const [language, code] of Object.entries(codes)) {
      const drawn = await Promise.all([sandbox, other].map(async (each) => (await each.runCode(code, { language })).text));
      assert.notEqual(drawn[0], drawn[1], language);
    }
    await other.kill();
  });
});

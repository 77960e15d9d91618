// The Python SDK on real VMs: its own tests, and every program of its documentation.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { withoutPython } from "../contract/python-driver.ts";
import { TestDaemon } from "../helpers/daemon.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
const TESTS = join(ROOT, "python", "tests");
const MODULE_WITHIN_MS = 300_000;

const modules = readdirSync(join(TESTS, "e2e"))
  .filter((name) => name.startsWith("test_"))
  .map((name) => name.replace(".py", ""));

describe("the Python SDK", { skip: withoutPython() }, () => {
  let daemon: TestDaemon;
  let token: string;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await daemon.makePython();
    ({ token } = await daemon.controller.createToken("python", { scope: "admin" }));
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("has tests", () => assert.ok(modules.length > 0));

  for (const name of modules) {
    it(name, { timeout: MODULE_WITHIN_MS }, async (context) => {
      const { code, output } = await python([join(TESTS, "run.py"), "e2e", name]);
      assert.equal(code, 0, output);
      context.diagnostic(output.trim().split("\n").at(-1) ?? "");
      assert.deepEqual(await daemon.controller.listSandboxes(), [], "sandboxes are left");
      assert.deepEqual(
        (await daemon.controller.listSnapshots()).map(({ tag }) => tag),
        ["python"],
        "snapshots are left",
      );
    });
  }

  async function python(args: string[]): Promise<{ code: number; output: string }> {
    const env = {
      ...daemon.env,
      PYTHONPATH: join(ROOT, "python", "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      FORKD_TEST_URL: `http://${daemon.bind}`,
      FORKD_TEST_TOKEN: token,
    };
    return new Promise((done) => {
      execFile("python3", args, { cwd: ROOT, env, timeout: MODULE_WITHIN_MS, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
        done({ code: error ? (typeof error.code === "number" ? error.code : 1) : 0, output: `${stderr}${stdout}` });
      });
    });
  }
});

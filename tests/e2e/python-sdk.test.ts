// The Python SDK on real VMs: its own tests, and every program of its documentation.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
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

  it("is installed by pip, and works from there", { timeout: MODULE_WITHIN_MS }, async (context) => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-test-venv-"));
    const pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"];
    const program = "import forkd; sb = forkd.Sandbox.create('python'); print(sb.eval('6 * 7').value); sb.kill()";
    try {
      const made = await run("python3", ["-m", "venv", dir]);
      if (made.code !== 0) return context.skip("there is no python3-venv");
      // what builds it comes from the package index; the package itself needs nothing from there
      const builder = await run(join(dir, "bin", "python"), [...pip, "hatchling>=1.27"]);
      if (builder.code !== 0) return context.skip("the package index cannot be reached");
      const installed = await run(join(dir, "bin", "python"), [...pip, "--no-build-isolation", "--no-index", join(ROOT, "python")]);
      assert.equal(installed.code, 0, installed.output);
      assert.deepEqual(await run(join(dir, "bin", "python"), ["-c", program], daemon.env), { code: 0, output: "42\n" });
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  async function python(args: string[]): Promise<Outcome> {
    return run("python3", args, {
      ...daemon.env,
      PYTHONPATH: join(ROOT, "python", "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      FORKD_TEST_URL: `http://${daemon.bind}`,
      FORKD_TEST_TOKEN: token,
    });
  }
});

type Outcome = { code: number; output: string };

async function run(program: string, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<Outcome> {
  return new Promise((done) => {
    execFile(program, args, { cwd: ROOT, env, timeout: MODULE_WITHIN_MS, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      done({ code: error ? (typeof error.code === "number" ? error.code : 1) : 0, output: `${stderr}${stdout}` });
    });
  });
}

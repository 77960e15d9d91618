// The Python SDK on real VMs: its own tests and every program in its documentation.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { access, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { withoutPython } from "../contract/python-driver.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import sdk from "../../packages/sdk/package.json" with { type: "json" };
import { patience } from "../helpers/patience.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
const TESTS = join(ROOT, "python", "tests");
const TOOLS = join(ROOT, "dist", "python-tools", "bin");
const PIP = ["--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-build-isolation"];

const noTools = existsSync(join(TOOLS, "hatchling")) ? false : "what builds it comes with 'scripts/setup.sh --tests'";

const modules = readdirSync(join(TESTS, "e2e"))
  .filter((name) => name.startsWith("test_"))
  .map((name) => name.replace(".py", ""));

describe("the Python SDK", { skip: withoutPython() }, () => {
  let daemon: TestDaemon;
  let token: string;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await daemon.makePython();
    ({ token } = await daemon.controller.createToken("python", { scope: "operator" }));
  });

  after(async () => daemon[Symbol.asyncDispose]());

  it("has tests", () => assert.ok(modules.length > 0));

  for (const name of modules) {
    it(name, async (context) => {
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

  it("works as the published package, built and installed without network", { skip: noTools }, async () => {
    const program = "import forkd; sb = forkd.Sandbox.create('python'); print(forkd.__file__, sb.eval('6 * 7').value); sb.kill()";
    const dir = await mkdtemp(join(tmpdir(), "forkd-test-package-"));
    try {
      const built = await run(join(ROOT, "scripts", "build-python.sh"), [dir]);
      assert.equal(built.code, 0, built.output);
      const archives = await readdir(dir);
      assert.deepEqual(archives.toSorted(), [`forkd_vm-${sdk.version}-py3-none-any.whl`, `forkd_vm-${sdk.version}.tar.gz`]);
      for (const archive of archives) {
        const place = join(dir, archive.endsWith(".whl") ? "wheel" : "sdist");
        const installed = await run(join(TOOLS, "pip"), [...PIP, "--target", place, join(dir, archive)]);
        assert.equal(installed.code, 0, installed.output);
        assert.deepEqual((await readdir(place)).toSorted(), ["forkd", `forkd_vm-${sdk.version}.dist-info`], "nothing else comes with it");
        assert.deepEqual(await sourcesIn(join(place, "forkd")), await sourcesIn(join(ROOT, "python", "src", "forkd")));
        await access(join(place, `forkd_vm-${sdk.version}.dist-info`, "licenses", "LICENSE"));
        const env = { ...daemon.env, PYTHONPATH: place };
        assert.deepEqual(await run("python3", ["-c", program], env), { code: 0, output: `${place}/forkd/__init__.py 42\n` });
      }
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

/** Files of a package, without the bytecode that pip compiles */
async function sourcesIn(dir: string): Promise<string[]> {
  const found = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = found.filter((entry) => entry.isFile() && !entry.name.endsWith(".pyc"));
  return files.map((entry) => relative(dir, join(entry.parentPath, entry.name))).toSorted();
}

type Outcome = { code: number; output: string };

async function run(program: string, args: string[], env: NodeJS.ProcessEnv = process.env): Promise<Outcome> {
  return new Promise((done) => {
    execFile(program, args, { cwd: ROOT, env, timeout: patience(60), maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      done({ code: error ? (typeof error.code === "number" ? error.code : 1) : 0, output: `${stderr}${stdout}` });
    });
  });
}

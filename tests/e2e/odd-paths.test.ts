// A checkout and a store whose paths contain a space, a colon and a comma.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { ensurePythonImage, PYTHON_IMAGE } from "../helpers/vm.ts";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "../..");
const COPIED = ["forkd", "package.json", "packages", "guest/kernels", "dist/bin", "deploy"];
/** packages of the workspace, linked to the copy */
const OWN_PACKAGES: Record<string, string> = {
  "@forkd/cli": "cli",
  "@forkd/daemon": "daemon",
  "@forkd/runtime": "runtime",
  forkd: "sdk",
  "forkd-mcp": "mcp",
};

describe("a checkout at a path with a space and a colon", () => {
  let dir: string;
  let env: NodeJS.ProcessEnv;
  const forkd = async (...args: string[]): Promise<{ stdout: string; stderr: string }> => run(join(dir, "a b:c", "forkd"), args, { env });

  before(async () => {
    const machine = await prepareHome(resolveHome());
    await ensurePythonImage(machine);
    dir = await mkdtemp(join(tmpdir(), "forkd-odd-"));
    const root = join(dir, "a b:c");
    for (const path of COPIED) await cp(join(ROOT, path), join(root, path), { recursive: true });
    await mkdir(join(root, "node_modules/@forkd"), { recursive: true });
    for (const name of await readdir(join(ROOT, "node_modules")))
      if (name !== "@forkd" && !(name in OWN_PACKAGES)) await symlink(join(ROOT, "node_modules", name), join(root, "node_modules", name));
    for (const [name, folder] of Object.entries(OWN_PACKAGES))
      await symlink(join(root, "packages", folder), join(root, "node_modules", name));
    const home = resolveHome({ FORKD_HOME: join(dir, "store, its: own"), FORKD_RUN: join(dir, "r n:1") });
    await mkdir(home.root, { mode: 0o700 });
    for (const part of ["images", "guestKernels", "cache"] as const) await symlink(machine[part], home[part]);
    const { FORKD_URL: _url, FORKD_TOKEN: _token, ...rest } = process.env;
    env = { ...rest, FORKD_HOME: home.root, FORKD_RUN: home.run, NO_COLOR: "1" };
  });
  after(async () => {
    try {
      await forkd("down", "--kill-sandboxes");
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it("confines its VMMs and prints no warning about confinement", async () => {
    const { confinement } = JSON.parse((await forkd("doctor", "--json")).stdout) as { confinement: string };
    assert.equal(confinement, "namespaces");
    await forkd("snapshot", "create", "odd", "--image", PYTHON_IMAGE, "--memory-mib", "256", "--disk-mib", "64", "-c", "1");
    const { stdout, stderr } = await forkd("fork", "odd", "--json");
    const [sandbox] = JSON.parse(stdout) as { id: string; confinement: string }[];
    assert.equal(sandbox?.confinement, "namespaces");
    assert.doesNotMatch(stderr, /confined/);
    assert.equal((await forkd("eval", sandbox.id, "print(6 * 7)")).stdout.trim(), "42");
  });
});

// Runs alone: it fills the machine with processes.
// Limits of commands in image builds, and the warning of a build that is not confined.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { ForkdError } from "../../src/errors.ts";
import { installation } from "../../src/host/installation.ts";
import { run } from "../../src/host/command.ts";
import { buildFailure, mmdebstrapArgs, refuseOrTell, stepReporter } from "../../src/image/build.ts";
import { tempDir } from "../image/helpers/temp-home.ts";

const exec = promisify(execFile);
const MIB = 1024 * 1024;

/** A root file system that has only a shell */
async function treeOf(t: TestContext): Promise<string> {
  const dir = await tempDir(t);
  const { stdout } = await exec("ldd", ["/bin/sh"]);
  const libraries = stdout.match(/\/\S+/g) ?? [];
  for (const path of ["/bin/sh", ...libraries]) {
    await mkdir(join(dir, dirname(path)), { recursive: true });
    await cp(path, join(dir, path), { dereference: true });
  }
  await mkdir(join(dir, "proc"));
  // standard input of background commands
  await mkdir(join(dir, "dev"));
  await writeFile(join(dir, "dev", "null"), "");
  // the hook takes the time of the build from it
  await cp("/usr/bin/env", join(dir, "bin", "env"), { dereference: true });
  return dir;
}

/** Starts a command of `run` as mmdebstrap does */
function hookOf(command: string, confinement: "required" | "preferred", mode: "root" | "fakechroot", mark = "/bin/sh"): string[] {
  const paths = { copyTar: undefined, sourcesList: "/l", setupTar: "/s", finishTar: "/f", warden: installation.warden };
  const words = mmdebstrapArgs({ mode, suite: "s", packages: [], run: [command], confinement, ...paths });
  const hook = words.map((word) => word.replace(/^--customize-hook=/, "")).find((word) => word.includes(mark));
  return ["/bin/sh", "-c", hook ?? "", "sh"];
}

async function processesOf(mark: string): Promise<number> {
  let found = 0;
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (line.includes(mark)) found++;
  }
  return found;
}

const BOUNDS = ["--seconds", "600", "--memory-bytes", String(256 * MIB), "--tasks", "50", "--"];
/** Doubles a string without end */
const HOG = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done";
/** Mark in the command lines of its processes; another run of the tests has a different one */
const MARK = `forkd-test-bomb-${randomBytes(6).toString("hex")}`;
const BOMB = `: ${MARK}; f() { f & f & while :; do :; done; }; f`;

const skip = await allowed();

async function allowed(): Promise<string | false> {
  if (process.getuid?.() !== 0) return "only root can build a tree that it enters as root";
  try {
    await run([installation.warden, "--inside", "/usr", ...BOUNDS]);
    return false;
  } catch (error) {
    return `this host does not allow it: ${String(error)}`;
  }
}

for (const [what, start] of [
  ["confined", (tree: string) => [installation.warden, "--inside", tree, ...BOUNDS]],
  ["in a chroot alone", (tree: string) => [installation.warden, "--limit", ...BOUNDS, "chroot", tree]],
] as const) {
  test(
    `a command that exceeds a limit is ended, with all processes that it started (${what})`,
    { skip, timeout: patience(20) },
    async (t) => {
      const tree = await treeOf(t);
      const sh = async (script: string): Promise<unknown> => run([...start(tree), "/bin/sh", "-c", script]);
      await sh("exit 0");
      await assert.rejects(sh("exit 7"), { message: /exit status 7/ });
      await assert.rejects(sh(HOG), { message: /exit status 124.*\nforkd-warden: it takes more than 256 MiB of memory$/s });
      await assert.rejects(sh(BOMB), { message: /exit status 124.*forkd-warden: it has more than 50 processes and threads/s });
      await until(async () => (await processesOf(MARK)) === 0);
      // processes that share their memory count little
      await sh(
        "x=aaaaaaaa; i=0; while [ $i -lt 23 ]; do x=$x$x; i=$((i+1)); done; for i in 1 2 3 4 5 6; do (sleep() { :; }; sleep) & done; wait",
      );
    },
  );
}

test("a fork bomb in `run` ends the build with a hint", { skip, timeout: patience(20) }, async (t) => {
  const tree = await treeOf(t);
  for (const [confinement, mode] of [
    ["required", "root"],
    ["preferred", "fakechroot"],
  ] as const) {
    // fewer than in a real build, to spare the test machine
    const words = hookOf(BOMB, confinement, mode).map((word) => word.replace("--tasks 2048", "--tasks 50"));
    const failure: unknown = await run([...words, tree]).then(() => undefined, buildFailure);
    assert.ok(failure instanceof ForkdError, String(failure));
    assert.equal(failure.code, "BUILD_FAILED");
    assert.match(failure.message, /a command of `run` has more than 50 processes and threads, and was ended\.$/);
    assert.match(failure.hint ?? "", /recipe/);
    await until(async () => (await processesOf(MARK)) === 0);
  }
});

test("a tree whose folders lead out of it is not passed to mmdebstrap again", async (t) => {
  const tree = await treeOf(t);
  const [, , check] = hookOf("true", "required", "root", "readlink");
  assert.ok(check);
  for (const path of ["sys", "usr/sbin"]) await mkdir(join(tree, path), { recursive: true });
  await symlink("usr/sbin", join(tree, "sbin"));
  await run(["/bin/sh", "-c", check, "sh", tree]);
  for (const target of ["/usr/sbin", "../../../usr/sbin"]) {
    await rm(join(tree, "usr", "sbin"), { recursive: true });
    await symlink(target, join(tree, "usr", "sbin"));
    await assert.rejects(run(["/bin/sh", "-c", check, "sh", tree]), { message: /\/sbin of the image leads out of it/ });
  }
});

test("a build in fakechroot reports once that it is not confined, and is refused if confinement is required", () => {
  const told: unknown[] = [];
  refuseOrTell({ progress: (event) => void told.push(event) });
  assert.equal(told.length, 1);
  assert.match(JSON.stringify(told), /The build is not confined: .* fakechroot.*"note":true/);
  assert.throws(() => refuseOrTell({ confinement: "required" }), { code: "CONFINEMENT_UNAVAILABLE", message: /must be confined/ });
});

test("unconfined commands are reported once", () => {
  const told: unknown[] = [];
  const report = stepReporter((event) => void told.push(event));
  for (let at = 0; at < 3; at++) report("I: running hook...\nforkd-warden: cannot confine it: making namespaces: EPERM\n");
  assert.equal(told.filter((event) => JSON.stringify(event).includes('"note":true')).length, 1);
});

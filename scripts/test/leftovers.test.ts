// Jobs that are stopped or killed leave no process, no mount and no folder.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { isRunning } from "../../tests/helpers/host.ts";
import { until } from "../../tests/helpers/until.ts";
import { commandJob } from "./job.ts";
import { endProcesses, processesOf } from "./leftovers.ts";
import { Places } from "./places.ts";
import { runJob } from "./run-job.ts";

/** In its own session, without a folder of the job in its command line, as a daemon; it writes its pid to the file `$1` */
const DAEMON = `setsid sh -c 'echo $$ > "$1"; exec sleep 1000' sh "$1" &`;

/** A store for runs inside of this test, and a folder that no job owns */
async function prepare(t: TestContext): Promise<{ dir: string; ready: string }> {
  const dir = await mkdtemp(join(tmpdir(), "left-"));
  const variables = { FORKD_HOME: join(dir, "home"), FORKD_RUN: join(dir, "run"), TMPDIR: dir };
  for (const [name, value] of Object.entries(variables)) {
    const before = process.env[name];
    process.env[name] = value;
    t.after(() => (before === undefined ? delete process.env[name] : (process.env[name] = before)));
  }
  t.after(async () => rm(dir, { recursive: true }));
  return { dir, ready: join(dir, "ready") };
}

/** Runs a script as a job, stops the run when the file `ready` has content, and returns the problems of the job and that content */
async function stopped(script: string, ready: string): Promise<{ problems: string[]; told: string }> {
  const places = await Places.make({ vms: false });
  try {
    const stop = new AbortController();
    const opts = { places, env: process.env, withinMs: 60_000, namePattern: null, signal: stop.signal };
    const running = runJob(commandJob("unit", "stopped", ["sh", "-c", script, "sh", ready]), opts);
    await until(async () => (await textOf(ready)) !== "");
    stop.abort();
    return { problems: (await running).problems, told: (await textOf(ready)).trim() };
  } finally {
    assert.deepEqual(await places.remove(), []);
  }
}

test("a stopped job leaves no process, in whatever session it is", async (t) => {
  const { dir, ready } = await prepare(t);
  const { problems, told } = await stopped(`${DAEMON} sleep 1000`, ready);
  assert.deepEqual(problems, ["the run was stopped", "it ended with SIGTERM", `it left process ${told} running: sleep 1000`]);
  assert.equal(isRunning(Number(told)), false);
  assert.deepEqual(
    (await readdir(dir)).filter((name) => name.startsWith("fkt-")),
    [],
  );
});

test("a stopped job leaves no mount, and files behind its mounts stay", async (t) => {
  const { dir, ready } = await prepare(t);
  const probe = spawn("unshare", ["--mount", "mount", "-t", "tmpfs", "none", dir], { stdio: "ignore" });
  const [code] = (await once(probe, "exit")) as [number];
  if (code !== 0) return t.skip("this user may not mount file systems");
  const kept = join(dir, "kept");
  await mkdir(kept);
  await writeFile(join(kept, "file"), "kept");
  const script = `set -e; mkdir "$TMPDIR/a tree"; cd "$TMPDIR/a tree"; mkdir dev
    mount --bind "${kept}" dev; mkdir dev/inner; mount -t tmpfs none dev/inner; pwd > "$1"; sleep 1000`;
  const { problems, told } = await stopped(script, ready);
  const mounted = ["dev", "dev/inner"].map((name) => `it left a file system mounted at ${told}/${name}`);
  assert.deepEqual(problems, ["the run was stopped", "it ended with SIGTERM", "it left files in its temporary folder: a tree", ...mounted]);
  assert.equal(await textOf(join(kept, "file")), "kept");
  assert.equal((await textOf("/proc/self/mountinfo")).includes(dir), false);
});

test("a process that ignores SIGTERM is killed, and one of a folder with a similar name is not", async (t) => {
  const { dir } = await prepare(t);
  const [mine, other] = [join(dir, "1"), join(dir, "10")];
  const start = (folder: string): number =>
    spawn("sh", ["-c", "trap '' TERM; exec sleep 1000"], { env: { ...process.env, TMPDIR: folder }, stdio: "ignore" }).pid ?? 0;
  const [ended, spared] = [start(mine), start(other)];
  await until(async () => (await processesOf([dir])).filter(({ command }) => command === "sleep 1000").length === 2);
  assert.deepEqual(await endProcesses([mine], 200), [{ pid: ended, command: "sleep 1000" }]);
  assert.deepEqual([isRunning(ended), isRunning(spared)], [false, true]);
  await endProcesses([other], 0);
  assert.equal(isRunning(spared), false);
});

test("the next run ends the processes of a killed one, and removes its folders", async (t) => {
  const { dir, ready } = await prepare(t);
  const program = `import { commandJob } from "${import.meta.resolve("./job.ts")}";
    import { Places } from "${import.meta.resolve("./places.ts")}";
    import { runJob } from "${import.meta.resolve("./run-job.ts")}";
    const opts = { places: await Places.make({ vms: false }), env: process.env, withinMs: 60_000, namePattern: null, signal: new AbortController().signal };
    await runJob(commandJob("unit", "killed", ["sh", "-c", ${JSON.stringify(`${DAEMON} sleep 1001`)}, "sh", "${ready}"]), opts);`;
  const runner = spawn(process.execPath, ["--input-type=module-typescript", "-e", program], { stdio: ["ignore", "ignore", "inherit"] });
  await until(async () => runner.exitCode !== null || (await textOf(ready)) !== "");
  assert.equal(runner.exitCode, null, "it ended by itself");
  runner.kill("SIGKILL");
  await once(runner, "exit");
  const pid = Number(await textOf(ready));
  assert.equal(isRunning(pid), true);
  const places = await Places.make({ vms: false });
  assert.equal(isRunning(pid), false);
  assert.equal((await readdir(join(dir, "home", "tests"))).filter((name) => name.startsWith("run-")).length, 1);
  assert.deepEqual(await places.remove(), []);
  assert.deepEqual(
    (await readdir(dir)).filter((name) => name.startsWith("fkt-")),
    [],
  );
});

async function textOf(path: string): Promise<string> {
  return readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
    return "";
  });
}

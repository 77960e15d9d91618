// Confined children of the warden. tests/e2e has the attacks of a compromised child.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { release } from "node:os";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "../../src/errors.ts";
import { WardenFault } from "../../src/warden/channel.ts";
import { isAlive, MIB, Scratch } from "./target.ts";

import type { Confinement, Exit, SpawnSpec } from "../../src/warden/warden.ts";

const NAMESPACES = ["user", "mnt", "pid", "ipc", "uts", "net"];

/** A confined program with its own folder */
function confined(scratch: Scratch, argv: string[], over: Partial<Confinement> = {}, more: Partial<SpawnSpec> = {}): SpawnSpec {
  const own = scratch.path("own");
  mkdirSync(own, { recursive: true, mode: 0o700 });
  const shown = { writable: [own, ...(over.writable ?? [])], readable: [], devices: [], maxFileBytes: MIB };
  return { argv, env: {}, cwd: own, log: scratch.path("log"), confinement: { ...shown, ...over, writable: shown.writable }, ...more };
}

test("every namespace is separate, and no capability remains", async () => {
  await using scratch = await Scratch.make();
  const children = await Promise.all([1, 2].map(async () => scratch.warden.spawn(confined(scratch, ["/usr/bin/sleep", "100"]))));
  for (const name of NAMESPACES) {
    const ids = ["self", ...children.map(({ pid }) => pid)].map((pid) => readlinkSync(`/proc/${pid}/ns/${name}`));
    assert.equal(new Set(ids).size, 3, `${name}: ${ids.join(", ")}`);
  }
  for (const { pid } of children) {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    for (const set of ["Inh", "Prm", "Eff", "Bnd", "Amb"]) assert.match(status, new RegExp(`^Cap${set}:\\s+0+$`, "m"));
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    assert.match(status, /^NSpid:\s+\d+\s+1$/m);
    assert.match(readFileSync(`/proc/${pid}/uid_map`, "utf8"), new RegExp(`^\\s*1000\\s+${process.getuid?.()}\\s+1\\n$`));
    const limits = readFileSync(`/proc/${pid}/limits`, "utf8");
    assert.match(limits, /^Max core file size\s+0\s+0/m);
    assert.match(limits, new RegExp(`^Max file size\\s+${MIB}\\s+${MIB}`, "m"));
  }
});

test("its root has the given files and the system's programs, and is read-only", async () => {
  await using scratch = await Scratch.make();
  const image = scratch.path("image");
  writeFileSync(image, "image");
  const spec = confined(scratch, ["/usr/bin/sleep", "100"], { readable: [image] });
  const { pid } = await scratch.warden.spawn(spec);
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .trim()
    .split("\n")
    .map((line) => line.split(" "))
    .map(([, , , , at = "", options = ""]) => ({ at, options: options.split(",") }));
  const writable = mounts.filter(({ options }) => options.includes("rw")).map(({ at }) => at);
  assert.deepEqual(writable, [spec.cwd]);
  for (const { at, options } of mounts) {
    assert.ok(options.includes("nosuid"), at);
    assert.equal(options.includes("nodev"), !at.startsWith("/dev/"), at);
  }
  const known = ["/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache"];
  const others = mounts.map(({ at }) => at).filter((at) => !known.includes(at));
  assert.deepEqual(others.toSorted(), ["/dev/null", "/dev/urandom", "/dev/zero", image, spec.cwd].toSorted());
});

test("its descriptors are the given ones, opened in its own root", async () => {
  await using scratch = await Scratch.make();
  const image = scratch.path("image");
  writeFileSync(image, "image");
  const socket = scratch.path("socket");
  const files = [
    { fd: 5, path: image, mode: "read" as const },
    { fd: 9, path: socket, mode: "listen" as const },
  ];
  const { pid } = await scratch.warden.spawn(confined(scratch, ["/usr/bin/sleep", "100"], { readable: [image] }, { files }));
  const mountOf = (fd: number): string | undefined => /^mnt_id:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8"))?.[1];
  const mount = readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .split("\n")
    .find((line) => line.includes(` ${image} `));
  assert.equal(mountOf(5), mount?.split(" ")[0], "it could be changed through a mount of the host");
  await new Promise<void>((resolve, reject) => connect(socket).once("connect", resolve).once("error", reject));
  assert.equal(statSync(socket).mode & 0o777, 0o700);
  const outside = confined(scratch, ["/usr/bin/true"], {}, { files: [{ fd: 5, path: image, mode: "read" }] });
  await assert.rejects(scratch.warden.spawn(outside), faultOf("ENOENT"));
});

test("it ends with the warden, and by an outside signal", async () => {
  await using scratch = await Scratch.make();
  const spec = (): SpawnSpec => confined(scratch, ["/usr/bin/sleep", "100"]);
  const killed = await scratch.warden.spawn(spec());
  await killed.kill("SIGKILL");
  assert.deepEqual(await killed.exited, { code: null, signal: "SIGKILL" });
  const orphan = await scratch.warden.spawn(spec());
  process.kill((await scratch.warden.info()).pid, "SIGKILL");
  await until(() => !isAlive(orphan.pid));
});

test("a file that cannot be mounted or started is an error with the reason", async () => {
  await using scratch = await Scratch.make();
  const attempts: [SpawnSpec, string][] = [
    [confined(scratch, ["/usr/bin/true"], { readable: ["/no/such/file"] }), "ENOENT"],
    [confined(scratch, ["/usr/bin/true"], { readable: ["relative"] }), "EINVAL"],
    [confined(scratch, ["/usr/bin/true"], { readable: ["/usr/../etc"] }), "EINVAL"],
    [confined(scratch, ["/usr/bin/true"], { devices: ["/dev/no-such"] }), "ENOENT"],
    [confined(scratch, ["/no/such/program"]), "ENOENT"],
    [confined(scratch, ["/usr/bin/true"], {}, { cwd: "/var" }), "ENOENT"],
    [confined(scratch, ["/usr/bin/true"], {}, { group: "/no/such/group" }), "ENOENT"],
  ];
  for (const [spec, code] of attempts) await assert.rejects(scratch.warden.spawn(spec), faultOf(code));
  assert.deepEqual(await (await scratch.warden.spawn(confined(scratch, ["/usr/bin/true"]))).exited, { code: 0, signal: null });
});

for (const filter of ["deny", "listed"] as const)
  test(`a call that the filter ${filter} refuses ends it, and its log names the call`, async () => {
    await using scratch = await Scratch.make();
    const run = async (argv: string[]): Promise<{ exit: Exit; log: string }> => {
      const spec = confined(scratch, argv, { filter });
      const exit = await (await scratch.warden.spawn(spec)).exited;
      return { exit, log: readFileSync(spec.log, "utf8") };
    };
    // replaces the program with execve
    const started = await run(["/usr/bin/env", "true"]);
    assert.deepEqual(started.exit, { code: null, signal: "SIGKILL" });
    assert.match(started.log, /^forkd: ended, because it made the system call execve \(59\), which its filter does not allow$/m);
    // a call that QEMU does not need
    const made = await run(["/usr/bin/mkdir", "made"]);
    assert.deepEqual(made.exit, filter === "deny" ? { code: 0, signal: null } : { code: null, signal: "SIGKILL" });
    if (filter !== "deny") assert.match(made.log, /made the system call mkdir \(83\), which its filter does not allow$/m);
    assert.deepEqual((await run(["/usr/bin/true"])).exit, { code: 0, signal: null });
  });

test("the number of its threads is limited", async (t) => {
  const [major = 0, minor = 0] = release().split(".").map(Number);
  if (major < 5 || (major === 5 && minor < 14)) return t.skip("before Linux 5.14 the limit would count all threads of the user");
  await using scratch = await Scratch.make();
  const { pid } = await scratch.warden.spawn(confined(scratch, ["/usr/bin/sleep", "100"]));
  assert.match(readFileSync(`/proc/${pid}/limits`, "utf8"), /^Max processes\s+512\s+512/m);
});

test("on memory shortage it is killed before the warden", async () => {
  await using scratch = await Scratch.make();
  const scoreOf = (pid: number): number => Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8"));
  const own = scoreOf((await scratch.warden.info()).pid);
  const free = { argv: ["/usr/bin/sleep", "100"], env: {}, cwd: "/", log: scratch.path("free") };
  for (const spec of [free, confined(scratch, ["/usr/bin/sleep", "100"])]) {
    const { pid } = await scratch.warden.spawn(spec);
    assert.equal(scoreOf(pid), Math.min(1000, own + 300));
  }
  assert.equal(scoreOf((await scratch.warden.info()).pid), own);
});

test("no mount and no file remains on the host", async () => {
  await using scratch = await Scratch.make();
  const spec = confined(scratch, ["/usr/bin/true"]);
  // Other programs may mount something at the same time, so retry: a leak of the warden would fail each attempt.
  await until(async () => {
    const before = readFileSync("/proc/self/mountinfo", "utf8");
    await (
      await scratch.warden.spawn(spec)
    ).exited;
    return readFileSync("/proc/self/mountinfo", "utf8") === before;
  });
  assert.equal(statSync(spec.cwd).mode & 0o777, 0o700);
});

function faultOf(code: string): (error: unknown) => boolean {
  return (error) => error instanceof ForkdError && error.cause instanceof WardenFault && error.cause.code === code;
}

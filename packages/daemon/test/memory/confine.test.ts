// Children of the warden in namespaces of their own. What somebody who breaks into one can do is tried in tests/e2e.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { ForkdError } from "../../src/errors.ts";
import { WardenFault } from "../../src/memory/warden-channel.ts";
import { isAlive, MIB, Scratch, until } from "./target.ts";

import type { Confinement, SpawnSpec } from "../../src/memory/warden.ts";

const NAMESPACES = ["user", "mnt", "pid", "ipc", "uts", "net"];

/** A confined program, which has its own folder and what else is given */
function confined(scratch: Scratch, argv: string[], over: Partial<Confinement> = {}, more: Partial<SpawnSpec> = {}): SpawnSpec {
  const own = scratch.path("own");
  mkdirSync(own, { mode: 0o700 });
  const shown = { writable: [own, ...(over.writable ?? [])], readable: [], devices: [], maxFileBytes: MIB };
  return { argv, env: {}, cwd: own, log: scratch.path("log"), confinement: { ...shown, ...over, writable: shown.writable }, ...more };
}

test("every namespace is its own, and nothing is left of its rights", async () => {
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

test("its root holds what it was given and the system's programs, and cannot be changed", async () => {
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

test("its descriptors are those it was given, opened in its own root", async () => {
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

test("it ends with the warden, and by a signal from outside", async () => {
  await using scratch = await Scratch.make();
  const spec = (): SpawnSpec => confined(scratch, ["/usr/bin/sleep", "100"]);
  const killed = await scratch.warden.spawn(spec());
  await killed.kill("SIGKILL");
  assert.deepEqual(await killed.exited, { code: null, signal: "SIGKILL" });
  const orphan = await scratch.warden.spawn(spec());
  process.kill((await scratch.warden.info()).pid, "SIGKILL");
  await until(() => !isAlive(orphan.pid));
});

test("what cannot be shown, or started there, is an error with the reason", async () => {
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

test("no mount is left on the host, nor anything in the folders", async () => {
  await using scratch = await Scratch.make();
  const before = readFileSync("/proc/self/mountinfo", "utf8");
  const spec = confined(scratch, ["/usr/bin/true"]);
  await (
    await scratch.warden.spawn(spec)
  ).exited;
  assert.equal(readFileSync("/proc/self/mountinfo", "utf8"), before);
  assert.equal(statSync(spec.cwd).mode & 0o777, 0o700);
});

function faultOf(code: string): (error: unknown) => boolean {
  return (error) => error instanceof ForkdError && error.cause instanceof WardenFault && error.cause.code === code;
}

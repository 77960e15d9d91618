// The warden as a parent: spawning, exits, and no process that outlives it.

import assert from "node:assert/strict";
import { execFileSync, spawn as spawnChild } from "node:child_process";
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { ForkdError } from "../../src/errors.ts";
import { Warden, type SpawnSpec } from "../../src/warden/warden.ts";
import { WardenFault } from "../../src/warden/channel.ts";
import { startTimeOf } from "../../src/util/process-id.ts";
import { isAlive, makeBase, MIB, Scratch, shell, startTarget, wardenBinary } from "./target.ts";

/** The warden's pid, as the parent of one of its children */
function parentOf(pid: number): number {
  return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

test("exit codes, signals and the log", async () => {
  await using scratch = await Scratch.make();
  const first = shell(scratch, "echo out; echo err >&2; echo $GREETING; pwd; exit 7", { env: { GREETING: "hello world" } });
  const child = await scratch.warden.spawn(first);
  assert.deepEqual(await child.exited, { code: 7, signal: null });
  assert.equal(readFileSync(first.log, "utf8"), `out\nerr\nhello world\n${scratch.dir}\n`);
  assert.equal(statSync(first.log).mode & 0o777, 0o600);

  const slept = await scratch.warden.spawn(shell(scratch, "exec sleep 100"));
  assert.equal(slept.startTime, await startTimeOf(slept.pid));
  await slept.kill();
  assert.deepEqual(await slept.exited, { code: null, signal: "SIGTERM" });
  await slept.kill("SIGKILL");
});

test("the end of a short-lived child is not missed", async () => {
  await using scratch = await Scratch.make();
  const children = await Promise.all(Array.from({ length: 50 }, (_, code) => scratch.warden.spawn(shell(scratch, `exit ${code}`))));
  const exits = await Promise.all(children.map((child) => child.exited));
  assert.deepEqual(
    exits.map((exit) => exit.code),
    children.map((_, code) => code),
  );
});

test("the arguments, environment and descriptors of a child", async () => {
  await using scratch = await Scratch.make();
  const input = scratch.path("input");
  writeFileSync(input, "from a file");
  const output = scratch.path("output");
  const socket = scratch.path("socket");
  const child = await scratch.warden.spawn(
    shell(scratch, "cat <&5; echo written >&7; touch made; exec sleep 100", {
      files: [
        { fd: 7, path: output, mode: "create" },
        { fd: 5, path: input, mode: "read" },
        { fd: 9, path: socket, mode: "listen" },
      ],
    }),
  );
  await until(() => readlinkSync(`/proc/${child.pid}/exe`).includes("sleep") && existsSync(`${scratch.dir}/made`));
  assert.equal(readFileSync(output, "utf8"), "written\n");
  assert.equal(statSync(output).mode & 0o777, 0o600);
  assert.equal(statSync(`${scratch.dir}/made`).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(`/proc/${child.pid}/fd`).toSorted(), ["0", "1", "2", "5", "7", "9"]);
  assert.equal(readlinkSync(`/proc/${child.pid}/fd/0`), "/dev/null");
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  assert.match(status, /^NoNewPrivs:\s+1$/m);
  assert.match(status, /^SigBlk:\s+0+$/m);
  assert.match(status, /^SigIgn:\s+0+$/m);
  assert.match(readFileSync(`/proc/${child.pid}/limits`, "utf8"), /^Max core file size\s+0\s+0/m);
  // pid, name, state, ppid, process group, session
  const stat = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(" ");
  assert.deepEqual(stat.slice(4, 6), [String(child.pid), String(child.pid)]);
  await new Promise<void>((resolve, reject) => connect(socket).once("connect", resolve).once("error", reject));
});

test("a program that cannot be started is an error with the reason", async () => {
  await using scratch = await Scratch.make();
  const attempts: [Partial<SpawnSpec>, string][] = [
    [{ argv: ["/no/such/program"] }, "ENOENT"],
    [{ argv: [scratch.dir] }, "EACCES"],
    [{ argv: ["sh"] }, "EINVAL"],
    [{ argv: [] }, "EINVAL"],
    [{ cwd: "/no/such/folder" }, "ENOENT"],
    [{ log: "/no/such/folder/log" }, "ENOENT"],
    [{ files: [{ fd: 3, path: "/no/such/file", mode: "read" }] }, "ENOENT"],
    [{ files: [{ fd: 2, path: "/dev/null", mode: "read" }] }, "EINVAL"],
    [{ env: { NUL: "a\0b" } }, "EINVAL"],
  ];
  for (const [wrong, code] of attempts) {
    await assert.rejects(scratch.warden.spawn(shell(scratch, "exit 0", wrong)), (error: unknown) => {
      assert.ok(error instanceof ForkdError && error.cause instanceof WardenFault);
      assert.deepEqual([error.code, error.cause.code], ["VMM_FAILED", code]);
      return true;
    });
  }
  const tooLong = shell(scratch, "x".repeat(2 * MIB));
  await assert.rejects(scratch.warden.spawn(tooLong), { code: "VMM_FAILED" });
  assert.deepEqual(await (await scratch.warden.spawn(shell(scratch, "exit 0"))).exited, { code: 0, signal: null });
});

test("only own children can be signalled or captured", async () => {
  await using scratch = await Scratch.make();
  const capture = { pid: process.pid, ramPath: "/dev/null", ramBytes: 4096, deltaPath: scratch.path("delta") };
  await assert.rejects(scratch.warden.captureBegin(capture), { code: "BRANCH_FAILED" });
  assert.equal(existsSync(capture.deltaPath), false);
});

test("closing ends all children, and incomplete files are removed", async () => {
  const scratch = await Scratch.make();
  try {
    const base = makeBase(scratch, 8 * MIB, MIB);
    const target = await startTarget(scratch, base, 8 * MIB);
    await target.tell("fill 10 20 1");
    const delta = scratch.path("delta");
    await scratch.warden.captureBegin({ pid: target.process.pid, ramPath: base, ramBytes: 8 * MIB, deltaPath: delta });
    assert.ok(existsSync(delta));
    const stubborn = await scratch.warden.spawn(shell(scratch, "trap '' TERM INT HUP; while :; do sleep 1; done"));
    await Promise.all([scratch.warden.close(), scratch.warden.close()]);
    assert.deepEqual([isAlive(stubborn.pid), isAlive(target.process.pid), existsSync(delta)], [false, false, false]);
    await stubborn.exited;
    await assert.rejects(scratch.warden.info(), { code: "WARDEN_FAILED" });
  } finally {
    await scratch.remove();
  }
});

test("a killed warden ends its children, and every client is notified", async () => {
  await using scratch = await Scratch.make();
  const base = makeBase(scratch, 8 * MIB, MIB);
  const target = await startTarget(scratch, base, 8 * MIB);
  const pid = parentOf(target.process.pid);
  process.kill(pid, "SIGSTOP");
  const asked = scratch.warden.trim(base);
  process.kill(pid, "SIGKILL");
  await assert.rejects(asked, { code: "WARDEN_FAILED" });
  await target.process.exited;
  await until(() => !isAlive(target.process.pid));
  await target.process.kill();
  await assert.rejects(scratch.warden.info(), { code: "WARDEN_FAILED" });
});

test("a warden on pipes cannot be detached, and lists its children", async () => {
  await using scratch = await Scratch.make();
  const child = await scratch.warden.spawn(shell(scratch, "exec sleep 100"));
  await assert.rejects(scratch.warden.disconnect(), { code: "BAD_REQUEST" });
  assert.equal(scratch.warden.adopted, false);
  assert.deepEqual(await scratch.warden.list(), [{ pid: child.pid, startTime: child.startTime, running: true }]);
  assert.equal(scratch.warden.adopt(child.pid, child.startTime), child);
  assert.equal((await scratch.warden.info()).pid, parentOf(child.pid));
});

test("the terminal's signals do not end it", async () => {
  await using scratch = await Scratch.make();
  const child = await scratch.warden.spawn(shell(scratch, "exec sleep 100"));
  const pid = parentOf(child.pid);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.kill(pid, signal);
  assert.equal((await scratch.warden.info()).threads > 0, true);
  assert.equal(isAlive(child.pid), true);
  assert.equal(readFileSync(`/proc/${pid}/stat`, "utf8").split(" ")[5], String(pid));
});

test("a missing binary is reported", async () => {
  await assert.rejects(Warden.start({ binary: "/no/such/warden" }), { code: "WARDEN_FAILED" });
  await assert.rejects(Warden.start({ binary: "/bin/true" }), { code: "WARDEN_FAILED" });
});

test("an invalid stream of messages ends it with an error", async () => {
  const child = spawnChild(wardenBinary, [], { stdio: ["pipe", "ignore", "ignore"] });
  child.stdin.write(Buffer.from("ffffffff0000", "hex"));
  assert.equal(await new Promise((resolve) => child.once("exit", resolve)), 1);
});

test("it is static", () => {
  const header = execFileSync("readelf", ["-l", wardenBinary], { encoding: "utf8" });
  assert.doesNotMatch(header, /INTERP/);
});

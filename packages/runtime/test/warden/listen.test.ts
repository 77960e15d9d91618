// A warden at a socket: its start, access control and end.

import assert from "node:assert/strict";
import { execFileSync, spawn as spawnChild, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { dirname, join } from "node:path";
import { test, type TestContext } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { Warden } from "../../src/warden/warden.ts";
import { isAlive, isPending, listenOptions, makeBase, MIB, Scratch, shell, startTarget, wardenBinary } from "./target.ts";

const SLEEP = "exec sleep 1000";
const NOBODY = 65534;

type Outcome = { ready: boolean; code: number | null; stderr: string };

/** A warden as an ordinary child, and its outcome */
function run(args: string[]): { child: ChildProcess; ended: Promise<Outcome> } {
  const child = spawnChild(wardenBinary, args, { stdio: ["ignore", "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk: Buffer) => (said.stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (said.stderr += chunk.toString()));
  const ended = once(child, "close").then(([code]) => ({ ready: said.stdout === "ready\n", code: code as number, stderr: said.stderr }));
  return { child, ended };
}

/** Creates a socket file without a listener */
async function makeStale(path: string): Promise<void> {
  const script = `import net from "node:net"; net.createServer().listen(process.argv[1], () => process.kill(process.pid, "SIGKILL"));`;
  const child = spawnChild(process.execPath, ["--input-type=module", "--eval", script, path], { stdio: "inherit" });
  await once(child, "exit");
  assert.ok(existsSync(path));
}

test("the socket belongs to its user alone, and exists when the warden reports ready", async () => {
  await using scratch = await Scratch.listening();
  const { socket, log } = listenOptions(scratch.dir);
  assert.equal(statSync(socket).mode & 0o777, 0o600);
  assert.equal(statSync(log).mode & 0o777, 0o600);
  assert.equal(scratch.warden.adopted, false);
});

test("END removes all children, incomplete files, the socket and the warden", async () => {
  await using scratch = await Scratch.listening();
  const base = makeBase(scratch, 8 * MIB, MIB);
  const target = await startTarget(scratch, base, 8 * MIB);
  const stubborn = await scratch.warden.spawn(shell(scratch, "trap '' TERM INT HUP; while :; do sleep 1; done"));
  const delta = scratch.path("delta");
  await target.tell("fill 3 50 1");
  await scratch.warden.captureBegin({ pid: target.process.pid, ramPath: base, ramBytes: 8 * MIB, deltaPath: delta });
  const { pid } = await scratch.warden.info();
  await Promise.all([scratch.warden.end(), scratch.warden.close(), scratch.warden.end()]);
  const { socket } = listenOptions(scratch.dir);
  assert.deepEqual(
    [existsSync(socket), existsSync(delta), isAlive(stubborn.pid), isAlive(target.process.pid)],
    [false, false, false, false],
  );
  await until(() => !isAlive(pid));
  assert.deepEqual(await stubborn.exited, { code: null, signal: "SIGKILL" });
  await assert.rejects(scratch.warden.info(), { code: "WARDEN_FAILED" });
  assert.equal(await isPending(scratch.warden.lost), true);
});

test("a killed warden ends its children, every client is notified, and the next one replaces its socket", async () => {
  await using scratch = await Scratch.listening();
  const { warden } = scratch;
  const child = await warden.spawn(shell(scratch, SLEEP));
  const { pid } = await warden.info();
  process.kill(pid, "SIGSTOP");
  const asked = warden.trim(scratch.path("file"));
  process.kill(pid, "SIGKILL");
  await assert.rejects(asked, { code: "WARDEN_FAILED" });
  assert.equal(typeof (await warden.lost), "string");
  await child.exited;
  await until(() => !isAlive(child.pid));
  assert.ok(existsSync(listenOptions(scratch.dir).socket), "the socket file should remain");
  const next = await scratch.connect();
  assert.equal(next.adopted, false);
  assert.deepEqual(await next.list(), []);
});

test("a second warden at the same path refuses, without effect on the first", async () => {
  await using scratch = await Scratch.listening();
  const { socket } = listenOptions(scratch.dir);
  const child = await scratch.warden.spawn(shell(scratch, SLEEP));
  const second = await run(["--listen", socket]).ended;
  assert.deepEqual([second.ready, second.code], [false, 1]);
  assert.match(second.stderr, /another warden listens there/);
  assert.equal((await scratch.warden.list())[0]?.pid, child.pid);
  assert.equal(await isPending(scratch.warden.lost), true);
});

test("of several wardens that find a stale socket together one stays", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  await makeStale(socket);
  const starters = Array.from({ length: 6 }, () => run(["--listen", socket]));
  await Promise.race(starters.map(async ({ child }) => child.stdout && once(child.stdout, "data")));
  await until(() => starters.filter(({ child }) => child.exitCode !== null).length === 5);
  const warden = await scratch.connect();
  assert.equal(warden.adopted, true);
  await warden.end();
  const codes = (await Promise.all(starters.map(async ({ ended }) => ended))).map(({ code }) => code);
  assert.equal(codes.filter((code) => code === 1).length, 5);
  assert.equal(codes.filter((code) => code === 0).length, 1);
});

test("it survives the end of its starter, with its pipes", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  const { child } = run(["--listen", socket]);
  child.stdout?.destroy();
  child.stderr?.destroy();
  await until(() => existsSync(socket));
  await scratch.connect();
  const raw = connect(socket);
  raw.resume();
  // an invalid message: the warden logs an error, and its stderr is closed
  raw.write(Buffer.from("ffffffff0000", "hex"));
  await once(raw, "close");
  const warden = await scratch.connect();
  assert.deepEqual([warden.adopted, (await warden.info()).pid], [true, child.pid]);
});

test("it ends by itself without a client", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  assert.deepEqual(await run(["--listen", socket, "--idle-ms", "50"]).ended, { ready: true, code: 0, stderr: "" });
  assert.equal(existsSync(socket), false);
});

/** A warden with a short idle time and its first client. On a busy machine the client may be late, so it tries again */
async function startImpatient(scratch: Scratch, idleMs: number): Promise<{ pid: number; ended: Promise<Outcome> }> {
  for (;;) {
    const { child, ended } = run(["--listen", listenOptions(scratch.dir).socket, "--idle-ms", String(idleMs)]);
    if (child.stdout) await once(child.stdout, "data");
    const warden = await scratch.connect();
    const { pid } = await warden.info();
    if (pid === child.pid) return { pid, ended };
    await warden.end();
  }
}

test("it stays while it has a client or a child, and then ends by itself", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const idleMs = 60;
  const wait = async (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 3 * idleMs));
  const { pid, ended } = await startImpatient(scratch, idleMs);
  const first = scratch.warden;
  await wait();
  const slept = await first.spawn(shell(scratch, SLEEP));
  await first.disconnect();
  await wait();
  const second = await scratch.connect();
  assert.deepEqual([second.adopted, (await second.info()).pid, (await second.list()).length], [true, pid, 1]);
  await second.adopt(slept.pid, slept.startTime).kill();
  await second.disconnect();
  assert.deepEqual(await ended, { ready: true, code: 0, stderr: "" });
  assert.equal(existsSync(listenOptions(scratch.dir).socket), false);
});

test("clients that connect while it ends reach it or another one", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  for (let round = 0; round < 30; round++) {
    const { child, ended } = run(["--listen", socket, "--idle-ms", "3"]);
    if (child.stdout) await once(child.stdout, "data");
    await new Promise((resolve) => setTimeout(resolve, round % 6));
    const warden = await scratch.connect();
    const slept = await warden.spawn(shell(scratch, SLEEP));
    assert.equal(isAlive(slept.pid), true);
    await warden.end();
    assert.equal((await ended).code, 0);
  }
});

test("the reason why it cannot listen is in the error", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const options = listenOptions(scratch.dir);
  const attempts: [Partial<typeof options>, RegExp][] = [
    [{ binary: "/no/such/warden" }, /ENOENT/],
    [{ binary: "/bin/true" }, /ended with code 0/],
    [{ log: "/no/such/folder/log" }, /ENOENT/],
    [{ socket: "/no/such/folder/socket" }, /cannot listen at .*No such file/],
    [{ socket: join(scratch.dir, "x".repeat(200)) }, /path|SUN_LEN|EINVAL|ENAMETOOLONG/i],
  ];
  for (const [wrong, why] of attempts) {
    await assert.rejects(Warden.connect({ ...options, ...wrong }), (error: Error & { code?: string }) => {
      assert.equal(error.code, "WARDEN_FAILED");
      assert.match(error.message, why);
      return true;
    });
  }
  writeFileSync(options.socket, "precious");
  await assert.rejects(Warden.connect(options), /no socket/);
  assert.equal(readFileSync(options.socket, "utf8"), "precious");
  writeFileSync(options.socket, "");
  const wrongArguments = [["--listen"], ["--listen", "relative"], ["--listen", "/x", "--idle-ms", "soon"], ["--what"]];
  for (const args of wrongArguments) assert.equal((await run(args).ended).code, 1);
  execFileSync("rm", [options.socket]);
});

test("a warden that does not answer is an error", async () => {
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  // An invalid answer stands in for no answer, whose timeout would make the test slow.
  const server = createServer((client) => client.resume().end(Buffer.from("ffffffff", "hex"))).listen(socket);
  await once(server, "listening");
  await assert.rejects(Warden.connect(listenOptions(scratch.dir)), { code: "WARDEN_FAILED" });
  server.close();
  await once(server, "close");
});

/** Reason why the test cannot run as another user; the python in PATH may be in root's home */
function cannotSwitchUser(): string | undefined {
  if (process.getuid?.() !== 0) return "only root can run a program as another user";
  try {
    execFileSync("setpriv", [`--reuid=${NOBODY}`, "--clear-groups", "/usr/bin/python3", "-c", "pass"], { stdio: "ignore" });
    return undefined;
  } catch (error) {
    return `cannot run python3 as another user: ${String(error)}`;
  }
}

function skipped(context: TestContext): boolean {
  const reason = cannotSwitchUser();
  if (reason !== undefined) context.skip(reason);
  return reason !== undefined;
}

test("another user is refused, without effect on clients", async (context) => {
  if (skipped(context)) return;
  await using scratch = await Scratch.listening();
  const { socket, log } = listenOptions(scratch.dir);
  // The socket's mode already refuses other users. Open it, so that only the peer check remains.
  chmodSync(scratch.dir, 0o755);
  chmodSync(socket, 0o666);
  const script = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex("050000000801000000"))
    print("answer", len(s.recv(100)))
except ConnectionError:
    print("answer", 0)
`;
  const said = execFileSync("setpriv", [`--reuid=${NOBODY}`, "--clear-groups", "/usr/bin/python3", "-c", script, socket], {
    encoding: "utf8",
  });
  assert.equal(said, "answer 0\n");
  assert.match(readFileSync(log, "utf8"), /not served: it is of user 65534/);
  assert.ok((await scratch.warden.info()).pid > 0);
});

test("root is served by another user's warden", async (context) => {
  if (skipped(context)) return;
  await using scratch = await Scratch.listening();
  await scratch.warden.end();
  const { socket } = listenOptions(scratch.dir);
  const theirs = join(scratch.dir, "theirs", "socket");
  mkdirSync(dirname(theirs));
  execFileSync("chown", [String(NOBODY), dirname(theirs)]);
  chmodSync(scratch.dir, 0o755);
  const binary = join(scratch.dir, "warden");
  copyFileSync(wardenBinary, binary);
  chmodSync(binary, 0o755);
  const child = spawnChild("setpriv", [`--reuid=${NOBODY}`, "--clear-groups", binary, "--listen", theirs], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  const warden = await Warden.connect({ ...listenOptions(scratch.dir), socket: theirs });
  assert.deepEqual([warden.adopted, existsSync(socket)], [true, false]);
  await warden.end();
});

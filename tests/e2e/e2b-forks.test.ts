// What E2B's newest package can do beside running one sandbox: snapshots, forks, networks, servers, measurements.

import assert from "node:assert/strict";
import { get } from "node:http";
import { after, before, test } from "node:test";
import {
  CommandExitError,
  type FilesystemEvent,
  NotFoundError,
  Sandbox,
  SandboxError,
  SandboxNotFoundError,
  Template,
  TimeoutError,
} from "e2b";
import { E2bDaemon, forgetClocks } from "../helpers/e2b.ts";
import { until } from "../helpers/until.ts";

let e2b: E2bDaemon;
let sandbox: Sandbox;

before(async () => {
  forgetClocks();
  e2b = await E2bDaemon.start();
  Object.assign(process.env, e2b.env);
  sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { COLOUR: "blue" } });
});

after(async () => {
  for (const name of Object.keys(e2b.env)) delete process.env[name];
  await e2b[Symbol.asyncDispose]();
});

test("a snapshot keeps what was there, and is a template", async () => {
  await sandbox.files.write("state", "before");
  const { snapshotId, names } = await sandbox.createSnapshot({ name: "kept" });
  assert.deepEqual([snapshotId, names], ["kept", ["kept"]]);
  await sandbox.files.write("state", "after");
  const child = await Sandbox.create("kept", { timeoutMs: 60_000 });
  assert.equal(await child.files.read("state"), "before");
  assert.equal((await child.commands.run("echo $COLOUR $E2B_SANDBOX_ID")).stdout, `blue ${child.sandboxId}\n`);
  await child.kill();
});

test("a name that is given again means the newer snapshot; without a name each is another one", async () => {
  await sandbox.files.write("state", "newer");
  await sandbox.createSnapshot({ name: "kept" });
  const { snapshotId } = await sandbox.createSnapshot();
  const child = await Sandbox.create("kept", { timeoutMs: 60_000 });
  assert.equal(await child.files.read("state"), "newer");
  await child.kill();
  const listed = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems();
  assert.deepEqual(new Set(listed.map((snapshot) => snapshot.snapshotId)), new Set(["kept", snapshotId]));
  assert.deepEqual([await Sandbox.deleteSnapshot(snapshotId), await Sandbox.deleteSnapshot(snapshotId)], [true, false]);
  await assert.rejects(Sandbox.create(snapshotId), SandboxError);
});

test("forks go on from where the sandbox is, each by itself", async () => {
  const counter = await sandbox.commands.run("for i in $(seq 1000); do echo $i > count; sleep 0.1; done", { background: true });
  await until(async () => sandbox.files.exists("count"));
  const forks = (await sandbox.fork({ count: 3, timeoutMs: 60_000 })).map((fork) => {
    if (fork instanceof Error) throw fork;
    return fork;
  });
  assert.equal(new Set([sandbox.sandboxId, ...forks.map(({ sandboxId }) => sandboxId)]).size, 4);
  for (const [at, fork] of forks.entries()) {
    assert.equal((await fork.commands.list())[0]?.pid, counter.pid);
    await fork.files.write("own", String(at));
  }
  assert.deepEqual(await Promise.all(forks.map(async (fork) => fork.files.read("own"))), ["0", "1", "2"]);
  assert.equal(await sandbox.files.exists("own"), false);
  await counter.kill();
  await Promise.all(forks.map(async (fork) => fork.kill()));
});

test("a paused sandbox sleeps on disk and goes on where it was", async () => {
  const tired = await Sandbox.create({ timeoutMs: 60_000 });
  const program = await tired.commands.run("for i in $(seq 10000); do echo $i > count; sleep 0.1; done", {
    background: true,
    timeoutMs: 0,
  });
  const broken = assert.rejects(program.wait(), TimeoutError);
  await until(async () => tired.files.exists("count"));
  assert.deepEqual([await tired.pause(), await tired.pause()], [true, false]);
  await broken;
  assert.equal(await tired.isRunning(), false);
  await assert.rejects(tired.commands.run("true"), SandboxNotFoundError);
  assert.equal((await tired.getInfo()).state, "paused");
  const paused = await Sandbox.list({ query: { state: ["paused"] } }).nextItems();
  assert.deepEqual(
    paused.map(({ sandboxId }) => sandboxId),
    [tired.sandboxId],
  );
  const awake = await Sandbox.connect(tired.sandboxId);
  assert.equal((await awake.commands.list())[0]?.pid, program.pid);
  const before = await awake.files.read("count");
  await until(async () => (await awake.files.read("count")) !== before);
  await awake.kill();
});

test("a sandbox may sleep when its time is over, and be woken up by being used", async () => {
  const lifecycle = { onTimeout: "pause", autoResume: true } as const;
  const sleepy = await Sandbox.create({ timeoutMs: 60_000, lifecycle });
  assert.deepEqual((await sleepy.getInfo()).lifecycle, lifecycle);
  await sleepy.files.write("kept", "yes");
  assert.equal(await sleepy.pause(), true);
  assert.equal(await sleepy.isRunning(), false, "nobody is woken up by being asked after");
  assert.equal(await sleepy.files.read("kept"), "yes");
  assert.equal((await sleepy.getInfo()).state, "running");
  await sleepy.setTimeout(1);
  await until(async () => (await sleepy.getInfo()).state === "paused");
  await sleepy.kill();
});

test("a server in the guest has a host name, behind a token unless it is public", async () => {
  const open = await Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: true } });
  for (const each of [sandbox, open]) await each.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
  const token = { "e2b-traffic-access-token": sandbox.trafficAccessToken ?? "" };
  await until(async () => (await statusOf({ host: sandbox.getHost(3000), ...token })) === 200);
  assert.equal(await statusOf({ host: sandbox.getHost(3000) }), 401);
  assert.equal(await statusOf({ host: sandbox.getHost(3000), "e2b-traffic-access-token": open.trafficAccessToken ?? "" }), 401);
  await until(async () => (await statusOf({ host: open.getHost(3000) })) === 200);
  assert.equal(await statusOf({ "e2b-sandbox-id": open.sandboxId, "e2b-sandbox-port": "3000" }), 200);
  await open.kill();
});

test("changes come with what the files are then", async () => {
  await sandbox.files.makeDir("watched");
  const seen: FilesystemEvent[] = [];
  const watch = await sandbox.files.watchDir("watched", (event) => void seen.push(event), { includeEntry: true });
  await sandbox.files.write("watched/new", "12345");
  await until(() => seen.some(({ name, entry }) => name === "new" && entry?.size === 5 && entry.path === "/home/user/watched/new"));
  await watch.stop();
});

test("what was noted about a file stays with it until it is written again", async () => {
  const { files } = sandbox;
  const metadata = { source: "a b=c", "x-kind": "" };
  assert.deepEqual((await files.write("noted/one", "1", { metadata })).metadata, metadata);
  await files.write("noted/two", "2");
  const listed = await files.list("noted");
  assert.deepEqual(
    listed.map((entry) => [entry.name, entry.metadata]),
    [
      ["one", metadata],
      ["two", undefined],
    ],
  );
  await sandbox.commands.run(`python3 -c "import os; os.setxattr('noted/two', 'user.e2b.own', b'set inside')"`);
  assert.deepEqual((await files.getInfo("noted/two")).metadata, { own: "set inside" });
  assert.deepEqual((await files.rename("noted/one", "noted/three")).metadata, metadata);
  await files.write("noted/three", "3", { metadata: { other: "1" } });
  assert.deepEqual((await files.getInfo("noted/three")).metadata, { other: "1" });
  const [child] = await sandbox.fork({ timeoutMs: 60_000 });
  assert.ok(child && !(child instanceof Error));
  assert.deepEqual((await child.files.getInfo("noted/three")).metadata, { other: "1" });
  await child.kill();
  await files.write("noted/three", "4");
  assert.equal((await files.getInfo("noted/three")).metadata, undefined);
  await assert.rejects(files.write("noted/x", "x", { metadata: { a: "b".repeat(5000) } }), /4096 are the most/);
});

test("networks are what E2B's settings say", async () => {
  const { network } = await sandbox.getInfo();
  assert.deepEqual([network?.allowOut, network?.denyOut], [[], []]);
  const rules = { allowOut: ["example.org", "192.0.2.0/24"], denyOut: ["0.0.0.0/0"] };
  const closed = await Sandbox.create({ timeoutMs: 60_000, allowInternetAccess: false });
  assert.equal((await closed.getInfo()).allowInternetAccess, false);
  await closed.updateNetwork(rules);
  const { mode, allow } = await e2b.daemon.controller.getNetwork(closed.sandboxId.replace("sb", "sb-"));
  assert.deepEqual([mode, allow], ["allow", rules.allowOut]);
  await assert.rejects(closed.updateNetwork({ denyOut: ["192.0.2.1"] }), /501.*single addresses/);
  await closed.kill();
});

test("measurements are of now", async () => {
  const [metrics] = await sandbox.getMetrics();
  assert.ok(metrics);
  assert.equal(metrics.cpuCount, 1);
  assert.ok(metrics.memUsed > 0 && metrics.memUsed < metrics.memTotal && metrics.memTotal <= 256 * 1024 * 1024);
});

test("templates have names and tags", async () => {
  assert.deepEqual([await Template.exists("base"), await Template.exists("nowhere")], [true, false]);
  await Template.assignTags("base:default", ["v1"]);
  assert.deepEqual(new Set((await Template.getTags("base")).map(({ tag }) => tag)), new Set(["default", "v1"]));
  const tagged = await Sandbox.create("base:v1", { timeoutMs: 60_000 });
  assert.equal((await tagged.commands.run("whoami")).stdout, "user\n");
  await tagged.kill();
  await Template.removeTags("base", "v1");
  assert.equal(await Template.exists("base:v1"), false);
});

test("a client goes on when the daemon comes back", async () => {
  const program = await sandbox.commands.run("sleep 4321", { background: true, timeoutMs: 0 });
  const cut = assert.rejects(program.wait());
  await e2b.restart();
  await cut;
  assert.equal(await sandbox.isRunning(), true);
  assert.equal((await sandbox.commands.list()).at(-1)?.pid, program.pid);
  const again = await sandbox.commands.connect(program.pid, { timeoutMs: 0 });
  assert.equal(await again.kill(), true);
  await assert.rejects(again.wait(), CommandExitError);
});

test("lists come in pages", async () => {
  const others = [await Sandbox.create({ timeoutMs: 60_000 }), await Sandbox.create({ timeoutMs: 60_000 })];
  const pages = Sandbox.list({ limit: 1 });
  const seen: string[] = [];
  while (pages.hasNext) {
    const page = await pages.nextItems();
    assert.equal(page.length, 1);
    seen.push(...page.map(({ sandboxId }) => sandboxId));
  }
  assert.deepEqual(seen.toSorted(), [sandbox, ...others].map(({ sandboxId }) => sandboxId).toSorted());
  await Promise.all(others.map(async (each) => each.kill()));
});

test("what there is not is said to be so", async () => {
  await assert.rejects(sandbox.pause({ keepMemory: false }), /501: .*without its memory/);
  await assert.rejects(Sandbox.create({ volumeMounts: { "/data": "mine" } }), /501: .*volumes/);
  await assert.rejects(Sandbox.getInfo("sbaaaaaaaaaaaaaaaa"), NotFoundError);
  assert.equal((await sandbox.commands.run("echo on")).stdout, "on\n");
});

async function statusOf(headers: Record<string, string>): Promise<number> {
  const { port } = new URL(e2b.url);
  return new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    }).once("error", reject);
  });
}

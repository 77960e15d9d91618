// Features of E2B's newest package beyond a single sandbox: snapshots, forks, networks, servers, metrics.

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
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { until } from "../helpers/until.ts";

/** Counts the `sleep` processes in the guest */
const SLEEPERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$' || true";

let e2b: E2bDaemon;
let sandbox: Sandbox;

before(async () => {
  forgetClocks();
  e2b = await E2bDaemon.start();
  Object.assign(process.env, e2b.env);
  sandbox = await Sandbox.create({ ...PATIENT, envs: { COLOUR: "blue" } });
});

after(async () => {
  for (const name of Object.keys(e2b.env)) delete process.env[name];
  await e2b[Symbol.asyncDispose]();
});

test("a snapshot keeps the state, and is a template", async () => {
  await sandbox.files.write("state", "before");
  const { snapshotId, names } = await sandbox.createSnapshot({ name: "kept" });
  assert.deepEqual([snapshotId, names], ["kept", ["kept"]]);
  await sandbox.files.write("state", "after");
  const child = await Sandbox.create("kept", PATIENT);
  assert.equal(await child.files.read("state"), "before");
  assert.equal((await child.commands.run("echo $COLOUR $E2B_SANDBOX_ID")).stdout, `blue ${child.sandboxId}\n`);
  await child.kill();
});

test("a reused name refers to the newer snapshot; without a name each snapshot is separate", async () => {
  await sandbox.files.write("state", "newer");
  await sandbox.createSnapshot({ name: "kept" });
  const { snapshotId } = await sandbox.createSnapshot();
  const child = await Sandbox.create("kept", PATIENT);
  assert.equal(await child.files.read("state"), "newer");
  await child.kill();
  const listed = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems();
  assert.deepEqual(new Set(listed.map((snapshot) => snapshot.snapshotId)), new Set(["kept", snapshotId]));
  assert.deepEqual([await Sandbox.deleteSnapshot(snapshotId), await Sandbox.deleteSnapshot(snapshotId)], [true, false]);
  await assert.rejects(Sandbox.create(snapshotId), SandboxError);
});

test("forks continue from the sandbox's state, independently", async () => {
  const counter = await sandbox.commands.run("for i in $(seq 100000); do echo $i > count; sleep 0.1; done", {
    background: true,
    timeoutMs: 0,
  });
  await until(async () => sandbox.files.exists("count"));
  const forks = (await sandbox.fork({ count: 3, ...PATIENT })).map((fork) => {
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

test("a paused sandbox is stored on disk and continues where it was", async () => {
  const tired = await Sandbox.create(PATIENT);
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

test("a sandbox can be suspended at its time-out, and resumes on use", async () => {
  const lifecycle = { onTimeout: "pause", autoResume: true } as const;
  const sleepy = await Sandbox.create({ ...PATIENT, lifecycle });
  assert.deepEqual((await sleepy.getInfo()).lifecycle, lifecycle);
  await sleepy.files.write("kept", "yes");
  assert.equal(await sleepy.pause(), true);
  assert.equal(await sleepy.isRunning(), false, "a status request resumed it");
  assert.equal(await sleepy.files.read("kept"), "yes");
  assert.equal((await sleepy.getInfo()).state, "running");
  await sleepy.setTimeout(1);
  await until(async () => (await sleepy.getInfo()).state === "paused");
  await sleepy.kill();
});

test("a sandbox that is paused without its memory keeps its files and is restarted", async () => {
  const paused = await Sandbox.create(PATIENT);
  const bootId = async (): Promise<string> => paused.files.read("/proc/sys/kernel/random/boot_id");
  const sleepers = async (): Promise<string> => (await paused.commands.run(SLEEPERS)).stdout;
  const start = async (): Promise<void> => void (await paused.commands.run("setsid sleep 4321 >/dev/null 2>&1 & echo begun"));
  await paused.files.write("marker", "persisted");
  await start();
  assert.equal(await sleepers(), "1\n");
  const first = await bootId();
  assert.equal(await paused.pause({ keepMemory: false }), true);
  assert.equal(await paused.isRunning(), false);
  assert.equal((await paused.connect()).sandboxId, paused.sandboxId);
  assert.equal(await paused.files.read("marker"), "persisted");
  const second = await bootId();
  assert.notEqual(second, first);
  assert.equal(await sleepers(), "0\n");
  // suspended with its memory, but rebooted on request
  await start();
  await paused.pause();
  await paused.connect({ onResume: "reboot" });
  assert.deepEqual([await paused.files.read("marker"), await sleepers()], ["persisted", "0\n"]);
  assert.notEqual(await bootId(), second);
  await paused.kill();
});

test("a sandbox can keep only its files at its time-out", async () => {
  const lifecycle = { onTimeout: { action: "pause", keepMemory: false } } as const;
  const short = await Sandbox.create({ ...PATIENT, lifecycle });
  await short.files.write("marker", "persisted");
  await short.commands.run("setsid sleep 4321 >/dev/null 2>&1 & echo begun");
  await short.setTimeout(1);
  await until(async () => (await short.getInfo()).state === "paused");
  await short.connect();
  assert.equal((await short.commands.run(`cat marker; ${SLEEPERS}`)).stdout, "persisted0\n");
  await short.kill();
});

test("a server in the guest has a host name, and needs a token unless it is public", async () => {
  const open = await Sandbox.create({ ...PATIENT, network: { allowPublicTraffic: true } });
  for (const each of [sandbox, open]) await each.commands.run("python3 -m http.server 3000", { background: true, timeoutMs: 0 });
  const token = { "e2b-traffic-access-token": sandbox.trafficAccessToken ?? "" };
  await until(async () => (await statusOf({ host: sandbox.getHost(3000), ...token })) === 200);
  assert.equal(await statusOf({ host: sandbox.getHost(3000) }), 403);
  assert.equal(await statusOf({ host: sandbox.getHost(3000), "e2b-traffic-access-token": open.trafficAccessToken ?? "" }), 403);
  await until(async () => (await statusOf({ host: open.getHost(3000) })) === 200);
  assert.equal(await statusOf({ "e2b-sandbox-id": open.sandboxId, "e2b-sandbox-port": "3000" }), 200);
  const at = { "e2b-sandbox-id": open.sandboxId, "e2b-sandbox-port": "3001" };
  const closed = await fetch(e2b.url, { headers: at });
  const message = "The sandbox is running but port is not open";
  assert.deepEqual([closed.status, await closed.json()], [502, { sandboxId: open.sandboxId, message, port: 3001, code: 502 }]);
  await open.kill();
  const gone = { sandboxId: open.sandboxId, message: "The sandbox was not found", code: 502 };
  assert.deepEqual(await (await fetch(e2b.url, { headers: at })).json(), gone);
  assert.equal(await statusOf({ host: open.getHost(3000) }), 502);
});

test("a server in the guest gets the host name that its sandbox was created with", async () => {
  const network = { allowPublicTraffic: true, maskRequestHost: "custom-host.example.com:${PORT}" };
  const masked = await Sandbox.create({ ...PATIENT, network });
  const echo = `import http.server as s
class H(s.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(self.headers["Host"].encode())
s.HTTPServer(("", 3000), H).serve_forever()`;
  await masked.commands.run(`python3 -c '${echo}'`, { background: true, timeoutMs: 0 });
  const headers = { "e2b-sandbox-id": masked.sandboxId, "e2b-sandbox-port": "3000" };
  await until(async () => (await fetch(e2b.url, { headers })).status === 200);
  assert.equal(await (await fetch(e2b.url, { headers })).text(), "custom-host.example.com:3000");
  assert.equal((await masked.getInfo()).network?.maskRequestHost, network.maskRequestHost);
  await masked.kill();
});

test("changes are reported with the attributes of the files", async () => {
  await sandbox.files.makeDir("watched");
  const seen: FilesystemEvent[] = [];
  const watch = await sandbox.files.watchDir("watched", (event) => void seen.push(event), { includeEntry: true });
  await sandbox.files.write("watched/new", "12345");
  await until(() => seen.some(({ name, entry }) => name === "new" && entry?.size === 5 && entry.path === "/home/user/watched/new"));
  await watch.stop();
});

test("metadata of a file stays until the file is written again", async () => {
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
  const [child] = await sandbox.fork(PATIENT);
  assert.ok(child && !(child instanceof Error));
  assert.deepEqual((await child.files.getInfo("noted/three")).metadata, { other: "1" });
  await child.kill();
  await files.write("noted/three", "4");
  assert.equal((await files.getInfo("noted/three")).metadata, undefined);
  await assert.rejects(files.write("noted/x", "x", { metadata: { a: "b".repeat(5000) } }), /4096 are the most/);
});

test("networks follow E2B's settings", async () => {
  const { network } = await sandbox.getInfo();
  assert.deepEqual([network?.allowOut, network?.denyOut], [[], []]);
  const rules = { allowOut: ["example.org", "192.0.2.0/24"], denyOut: ["0.0.0.0/0"] };
  const closed = await Sandbox.create({ ...PATIENT, allowInternetAccess: false });
  assert.equal((await closed.getInfo()).allowInternetAccess, false);
  await closed.updateNetwork(rules);
  const { mode, allow } = await e2b.daemon.controller.getNetwork(closed.sandboxId.replace("sb", "sb-"));
  assert.deepEqual([mode, allow], ["allow", rules.allowOut]);
  const some = ["203.0.113.7", "198.51.100.0/24"];
  await closed.updateNetwork({ denyOut: some });
  assert.deepEqual((await closed.getInfo()).network?.denyOut, some);
  await assert.rejects(closed.updateNetwork({ denyOut: ["example.org"] }), /400.*only addresses can be denied/);
  await closed.kill();
});

test("measurements are current", async () => {
  const hourMs = 3_600_000;
  const past = { start: new Date(Date.now() - 2 * hourMs), end: new Date(Date.now() - hourMs) };
  const [metrics] = await sandbox.getMetrics();
  assert.ok(metrics);
  assert.equal(metrics.cpuCount, 1);
  assert.ok(metrics.memUsed > 0 && metrics.memUsed < metrics.memTotal && metrics.memTotal <= 256 * 1024 * 1024);
  assert.equal((await sandbox.getMetrics({ ...past, end: new Date() })).length, 1);
  assert.deepEqual(await sandbox.getMetrics(past), []);
});

test("templates have names and tags", async () => {
  assert.deepEqual([await Template.exists("base"), await Template.exists("nowhere")], [true, false]);
  await Template.assignTags("base:default", ["v1"]);
  assert.deepEqual(new Set((await Template.getTags("base")).map(({ tag }) => tag)), new Set(["default", "v1"]));
  const tagged = await Sandbox.create("base:v1", PATIENT);
  assert.equal((await tagged.commands.run("whoami")).stdout, "user\n");
  await tagged.kill();
  await Template.removeTags("base", "v1");
  assert.equal(await Template.exists("base:v1"), false);
});

test("a client continues after a restart of the daemon", async () => {
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

test("lists are paginated", async () => {
  const others = [await Sandbox.create(PATIENT), await Sandbox.create(PATIENT)];
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

test("missing objects are reported as missing", async () => {
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

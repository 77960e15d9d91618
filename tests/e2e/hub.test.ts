// Transfer of snapshots between stores: through a registry, a web server and a hub index, with real VMs at both ends.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Sandbox } from "forkd";
import { startFileServer } from "../../packages/runtime/test/hub/helpers/file-server.ts";
import { startGate } from "../../packages/runtime/test/hub/helpers/gate.ts";
import { hasRegistry, PASSWORD, startRegistry, USER } from "../../packages/runtime/test/image/helpers/registry.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { namesIn } from "../helpers/host.ts";
import { warmSnapshot } from "../helpers/shared-stores.ts";
import { until } from "../helpers/until.ts";
import { DISK_WARM } from "../helpers/vm.ts";

import type { Progress, PushedSnapshot } from "forkd";

const skip = (await hasRegistry()) ? false : "docker-registry is not installed";
const LOGIN = { FORKD_REGISTRY_USER: USER, FORKD_REGISTRY_PASSWORD: PASSWORD };
const SECRET = "X-Signature=s3cret";

async function started(daemon: TestDaemon): Promise<TestDaemon> {
  await daemon.up();
  return daemon;
}

/** Destinations of pushes, from the events */
async function pushedTo({ controller }: TestDaemon, count: number): Promise<string> {
  const places: string[] = [];
  for await (const { metadata } of controller.events({ since: 0, types: ["snapshot.pushed"] })) {
    places.push(JSON.stringify(metadata));
    if (places.length === count) break;
  }
  return places.join("\n");
}

async function says(daemon: TestDaemon, tag: string, code: string): Promise<unknown> {
  await using sandbox = await Sandbox.create(tag, { controller: daemon.controller });
  return (await sandbox.eval(code)).value;
}

test("a warm snapshot and a branch of it are transferred to another store, and continue there", { skip }, async (t) => {
  await using a = await started(await TestDaemon.make(["images", "guestKernels"]));
  await using b = await started(await TestDaemon.make(["guestKernels"]));
  const registry = await startRegistry(t, { auth: "htpasswd" });
  const gate = await startGate(t, registry.host);
  const place = (tag: string): string => `oci://${gate.host}/team/agent:${tag}`;

  await warmSnapshot(a.home, "warm", DISK_WARM);
  {
    await using sandbox = await Sandbox.create("warm", { controller: a.controller });
    await sandbox.eval("import os; y = os.urandom(1 << 20); open('/srv/word', 'w').write('kept')");
    await sandbox.branch("tuned");
  }

  await t.test("a push needs the login, and sends only parts that the registry lacks", async () => {
    const refused = await a.cli(["push", "warm", place("warm")]);
    assert.match(refused.stderr, /\[REGISTRY_AUTH\]/);
    const { code, stderr } = await a.cli(["push", "warm", place("warm")], { env: LOGIN });
    assert.equal(code, 0, stderr);
    const before = gate.received();
    const pushed = await a.cli(["push", "tuned", place("tuned"), "--json"], { env: LOGIN });
    assert.equal(pushed.code, 0, pushed.stderr);
    const { sent_bytes: sent, bytes } = JSON.parse(pushed.stdout) as PushedSnapshot;
    const { bytes: delta } = await a.controller.preparePack("tuned", { without: ["warm"] });
    assert.equal(gate.received() - before, sent);
    assert.ok(sent <= 1.2 * delta && delta < bytes / 2, `${sent} sent, the delta has ${delta} of ${bytes}`);
  });

  await t.test("a pull brings the warm state, and branches as their difference", async () => {
    const pulled = await b.cli(["pull", place("warm")], { env: LOGIN });
    assert.equal(pulled.code, 0, pulled.stderr);
    assert.deepEqual(await says(b, "warm", "[warmed, int(numpy.arange(10).sum())]"), [[1, 2], 45]);
    const before = gate.sent();
    const { added } = await b.controller.pullSnapshot(place("tuned"), { username: USER, password: PASSWORD });
    assert.equal(added.length, 1);
    const { bytes: delta } = await a.controller.preparePack("tuned", { without: ["warm"] });
    assert.ok(gate.sent() - before <= 1.2 * delta, `${gate.sent() - before} for ${delta}`);
    assert.deepEqual(await says(b, "tuned", "[warmed, len(y), open('/srv/word').read()]"), [[1, 2], 1 << 20, "kept"]);
  });

  await t.test("a signed address and an index name the same pack, and the signature is stored nowhere", async () => {
    const server = await startFileServer(t, Buffer.alloc(0));
    const pushed = await a.cli(["push", "tuned", "-", "--json"], { stdin: `${server.url}?${SECRET}\n` });
    assert.equal(pushed.code, 0, pushed.stderr);
    const { sha256, to } = JSON.parse(pushed.stdout) as PushedSnapshot;
    assert.equal(to, server.url);
    const versions = { latest: "v1", v1: { url: `${server.url}?${SECRET}`, sha256 }, bad: { url: server.url, sha256: "0".repeat(64) } };
    const index = await startFileServer(t, Buffer.from(JSON.stringify({ schema_version: 1, packages: { "acme/agent": { versions } } })));
    const env = { FORKD_HUB_URL: index.url };
    const listed = await b.cli(["hub", "ls"], { env });
    assert.match(listed.stdout, /acme\/agent +v1 \(latest\)/);
    assert.match((await b.cli(["pull", "acme/agent"])).stderr, /\[HUB_MISSING\]/);
    assert.match((await b.cli(["pull", "acme/agent@bad", "--tag", "bad"], { env })).stderr, /\[DIGEST_MISMATCH\]/);
    await b.controller.deleteSnapshot("tuned");
    const pulled = await b.cli(["pull", "acme/agent", "--tag", "again"], { env });
    assert.equal(pulled.code, 0, pulled.stderr);
    assert.equal(await says(b, "again", "len(y)"), 1 << 20);
    assert.ok(server.seen.every(({ url, method }) => url.endsWith(SECRET) || method === "GET"));
    const said = [pushed, listed, pulled].map(({ stdout, stderr }) => stdout + stderr).join("");
    const audit = (await Promise.all([a, b].map(async ({ home }) => readFile(`${home.root}/audit.log`, "utf8")))).join("");
    assert.match(audit, /push/);
    assert.doesNotMatch(said + audit + (await pushedTo(a, 3)), /s3cret/);
  });

  await t.test("an interrupted pull leaves nothing, and the next one succeeds", async () => {
    await b.controller.deleteSnapshot("again");
    await b.controller.deleteSnapshot("warm");
    await b.controller.gc();
    const tags = async (): Promise<string[]> => (await b.controller.listSnapshots()).map(({ tag }) => tag);
    const stop = new AbortController();
    const login = { username: USER, password: PASSWORD };
    const onProgress = ({ step, done }: Progress): void => {
      if (step === "Downloading" && done) stop.abort();
    };
    const cut = b.controller.pullSnapshot(place("tuned"), { ...login, idempotencyKey: null, signal: stop.signal, onProgress });
    await assert.rejects(cut);
    // the daemon cleans up after the client has disconnected
    await until(async () => (await namesIn(b.home.staging)).length === 0);
    assert.deepEqual(await tags(), []);
    const { added } = await b.controller.pullSnapshot(place("tuned"), login);
    assert.equal(added.length, 2);
    assert.equal(await says(b, "tuned", "len(y)"), 1 << 20);
  });
});

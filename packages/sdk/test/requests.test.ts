// Every method sends a valid request, and together the methods reach every route.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { methodsOf } from "../../../scripts/gen/methods.ts";
import { buildOpenapi } from "../../daemon/src/api/openapi.ts";
import { routes } from "../../daemon/src/api/routes.ts";
import { Controller } from "../src/index.ts";
import { FakeDaemon } from "./helpers/fake-daemon.ts";
import { hubCases } from "./helpers/hub-cases.ts";
import { packCases, type Case } from "./helpers/pack-cases.ts";
import { evalResult, SAMPLES } from "./helpers/samples.ts";

let daemon: FakeDaemon;
before(async () => {
  daemon = await FakeDaemon.start();
});
after(() => daemon[Symbol.asyncDispose]());

const cases: Case[] = [
  { route: "getHealth", call: (c) => c.health() },
  { route: "getReadiness", call: (c) => c.ready() },
  { route: "getVersion", call: (c) => c.version() },
  { route: "getMetrics", call: (c) => c.metrics() },
  { route: "getOpenapi", call: (c) => c.openapi() },
  { route: "getStatus", call: (c) => c.status() },
  { route: "getConfig", call: (c) => c.config() },
  { route: "stopDaemon", call: (c) => c.stop({ killSandboxes: true }), body: { kill_sandboxes: true } },
  { route: "stopDaemon", call: (c) => c.stop({ ifIdle: true }), body: { if_idle: true } },
  { route: "collectGarbage", call: (c) => c.gc({ dryRun: true }), body: { dry_run: true } },
  { route: "getTree", call: (c) => c.tree() },
  { route: "getStats", call: (c) => c.stats() },
  { route: "getHistory", call: (c) => c.history() },
  { route: "getCluster", call: (c) => c.cluster() },
  { route: "updateNode", call: (c) => c.updateNode("abcd", { cordoned: true }), params: { node: "abcd" }, body: { cordoned: true } },
  { route: "drainNode", call: (c) => c.drainNode("abcd"), params: { node: "abcd" } },
  {
    route: "createUiLink",
    call: (c) => c.createUiLink({ scope: "read", sessionSecs: 600 }),
    body: { scope: "read", session_secs: 600 },
  },
  { route: "deleteUiSessions", call: (c) => c.deleteUiSessions() },
  { route: "listTokens", call: (c) => c.listTokens() },
  {
    route: "createToken",
    call: (c) => c.createToken("ci", { scope: "read", maxSandboxes: 3 }),
    body: { name: "ci", scope: "read", max_sandboxes: 3 },
  },
  { route: "rotateToken", call: (c) => c.rotateToken("ci"), params: { name: "ci" } },
  { route: "deleteToken", call: (c) => c.deleteToken("ci"), params: { name: "ci" } },
  { route: "listImages", call: (c) => c.listImages() },
  { route: "getImage", call: (c) => c.getImage("a/b:c"), params: { name: "a/b:c" } },
  {
    route: "createImage",
    call: (c) => c.createImage({ reference: "python:3.13-slim", insecureHttp: true }),
    body: { reference: "python:3.13-slim", insecure_http: true },
  },
  { route: "createImage", call: (c) => c.createImage({ name: "py", packages: ["python3"] }), body: { name: "py", packages: ["python3"] } },
  {
    route: "createImage",
    call: (c) =>
      c.createImage({ name: "py", packages: [], copy: [{ from: "/a", to: "/b" }], suite: "trixie", mirror: "http://m/", maxBytes: 9 }),
    body: { name: "py", packages: [], copy: [{ from: "/a", to: "/b" }], suite: "trixie", mirror: "http://m/", max_bytes: 9 },
  },
  {
    route: "createImage",
    call: (c) => c.createImage({ name: "py", file: "/srv/py.tar", maxBytes: 9 }),
    body: { name: "py", file: "/srv/py.tar", max_bytes: 9 },
  },
  ...hubCases,
  { route: "deleteImage", call: (c) => c.deleteImage("py"), params: { name: "py" } },
  {
    route: "listSnapshots",
    call: (c) => c.listSnapshots({ status: "ready", limit: 5, cursor: "c", metadata: { a: "1", b: "x=y&z" } }),
    query: { status: "ready", limit: 5, cursor: "c", metadata: ["a=1", "b=x=y&z"] },
  },
  {
    route: "createSnapshot",
    call: (c) =>
      c.createSnapshot("py", {
        memoryMib: 512,
        cpu: "host",
        diskMib: 1024,
        warmUp: { kernels: [{ language: "python", code: "import numpy" }], timeoutSecs: 9 },
      }),
    body: {
      tag: "py",
      memory_mib: 512,
      cpu: "host",
      disk_mib: 1024,
      warm_up: { kernels: [{ language: "python", code: "import numpy" }], timeout_secs: 9 },
    },
  },
  { route: "createSnapshot", call: (c) => c.createSnapshot("py", { bootWaitSecs: 1 }), body: { tag: "py", boot_wait_secs: 1 } },
  { route: "getSnapshot", call: (c) => c.getSnapshot("py"), params: { tag: "py" } },
  { route: "getSnapshotDetails", call: (c) => c.snapshotInfo("py"), params: { tag: "py" } },
  { route: "updateSnapshot", call: (c) => c.updateSnapshot("py", { tag: "py2", pool: 2 }), body: { tag: "py2", pool: 2 } },
  { route: "deleteSnapshot", call: (c) => c.deleteSnapshot("py"), query: {} },
  { route: "deleteSnapshot", call: (c) => c.deleteSnapshot("py", { cascade: true, force: false }), query: { cascade: true } },
  { route: "compactSnapshot", call: (c) => c.compactSnapshot("py", "flat"), params: { tag: "py" }, body: { to: "flat" } },
  {
    route: "listSandboxes",
    call: (c) => c.listSandboxes({ tag: "py", state: ["running", "lost"], metadata: { job: "7" } }),
    query: { tag: "py", state: ["running", "lost"], metadata: ["job=7"] },
  },
  {
    route: "createSandboxes",
    call: (c) => c.spawnSandboxes("py", { n: 2, ttlSecs: null, idleTimeoutSecs: 5, memoryLimitMib: 64, env: { A_B: "c" } }),
    body: { snapshot_tag: "py", n: 2, ttl_secs: null, idle_timeout_secs: 5, memory_limit_mib: 64, env: { A_B: "c" } },
  },
  {
    route: "createSandboxes",
    call: (c) => c.spawnSandboxes({ snapshotTag: "py", n: 1, perChildNetns: true, liveFork: true }),
    body: { snapshot_tag: "py", n: 1, per_child_netns: true, live_fork: true },
  },
  { route: "deleteSandboxes", call: (c) => c.killSandboxes({ all: true }), query: { all: true } },
  { route: "getSandbox", call: (c) => c.getSandbox("sb-1"), params: { id: "sb-1" } },
  {
    route: "updateSandbox",
    call: (c) => c.updateSandbox("sb-1", { name: null, ttlSecs: 3 }),
    params: { id: "sb-1" },
    body: { name: null, ttl_secs: 3 },
  },
  { route: "deleteSandbox", call: (c) => c.killSandbox("sb-1"), params: { id: "sb-1" } },
  { route: "pingSandbox", call: (c) => c.pingSandbox("sb-1"), params: { id: "sb-1" } },
  {
    route: "execCommand",
    call: (c) => c.execCommand("sb-1", ["id"], { timeoutSecs: 5, cwd: "/", maxOutputBytes: 10 }),
    body: { args: ["id"], timeout_secs: 5, cwd: "/", max_output_bytes: 10 },
  },
  { route: "evalCode", call: (c) => c.evalCode("sb-1", "1", { language: "python" }), body: { code: "1", language: "python" } },
  {
    route: "evalCode",
    call: (c) => c.evalCode("sb-1", "1", { context: { id: "bash-1" }, env: { A_B: "c" } }),
    body: { code: "1", context: "bash-1", env: { A_B: "c" } },
  },
  {
    route: "evalStream",
    call: (c) => c.evalCode("sb-1", "1", { context: "bash-1", onStdout: () => undefined }),
    params: { id: "sb-1" },
    body: { code: "1", context: "bash-1" },
    result: { ...evalResult, stdout: "one\n", stderr: "two", results: [{ is_main: false, data: { "text/html": "<b>" } }] },
  },
  { route: "listContexts", call: (c) => c.listContexts("sb-1"), params: { id: "sb-1" } },
  {
    route: "createContext",
    call: (c) => c.createContext("sb-1", "bash", { cwd: "/srv", env: { A_B: "c" } }),
    body: { language: "bash", cwd: "/srv", env: { A_B: "c" } },
  },
  { route: "deleteContext", call: (c) => c.deleteContext("sb-1", "bash-1"), params: { id: "sb-1", context: "bash-1" } },
  { route: "restartContext", call: (c) => c.restartContext("sb-1", "bash-1"), params: { id: "sb-1", context: "bash-1" } },
  { route: "interruptContext", call: (c) => c.interruptContext("sb-1", "bash-1"), params: { id: "sb-1", context: "bash-1" } },
  {
    route: "branchSandbox",
    call: (c) => c.branchSandbox("sb-1", { tag: "b", wait: false, hold: true, mode: "live", measureDiff: true, parentTag: "p" }),
    body: { tag: "b", wait: false, hold: true, mode: "live", measure_diff: true, parent_tag: "p" },
  },
  { route: "forkSandbox", call: (c) => c.forkSandbox("sb-1", { n: 2, tag: "t" }), body: { n: 2, tag: "t" } },
  { route: "pauseSandbox", call: (c) => c.pauseSandbox("sb-1"), params: { id: "sb-1" } },
  { route: "suspendSandbox", call: (c) => c.suspendSandbox("sb-1"), params: { id: "sb-1" } },
  { route: "resumeSandbox", call: (c) => c.resumeSandbox("sb-1"), params: { id: "sb-1" } },
  {
    route: "createSandboxes",
    call: (c) => c.spawnSandboxes("py", { network: { mode: "allow", allow: ["a.example"], egressLimitBytes: 9 } }),
    body: { snapshot_tag: "py", network: { mode: "allow", allow: ["a.example"], egress_limit_bytes: 9 } },
  },
  { route: "forkSandbox", call: (c) => c.forkSandbox("sb-1", { network: { mode: "none" } }), body: { network: { mode: "none" } } },
  {
    route: "createSnapshot",
    call: (c) => c.createSnapshot("py", { network: { mode: "open", egressLimitBytes: null } }),
    body: { tag: "py", network: { mode: "open", egress_limit_bytes: null } },
  },
  { route: "getNetwork", call: (c) => c.getNetwork("sb-1"), params: { id: "sb-1" } },
  {
    route: "setNetwork",
    call: (c) => c.setNetwork("sb-1", { mode: "allow", allow: ["*.example:443"], egressLimitBytes: 5 }),
    params: { id: "sb-1" },
    body: { mode: "allow", allow: ["*.example:443"], egress_limit_bytes: 5 },
  },
  {
    route: "setNetwork",
    call: (c) => c.setNetwork("sb-1", { mode: "open", deny: ["203.0.113.0/24:25"] }),
    params: { id: "sb-1" },
    body: { mode: "open", deny: ["203.0.113.0/24:25"] },
  },
  { route: "getSandboxStats", call: (c) => c.sandboxStats("sb-1"), params: { id: "sb-1" } },
  {
    route: "getSandboxLogs",
    call: (c) => Array.fromAsync(c.logs("sb-1", { source: "vmm", tail: 3 })),
    query: { source: "vmm", tail: 3 },
    result: ["booted ✓\n"],
  },
  {
    route: "readFile",
    call: (c) => c.readFile("sb-1", "/a b&c", { offset: 1, length: 7 }),
    query: { path: "/a b&c", offset: 1, length: 7 },
    result: new TextEncoder().encode("content"),
  },
  {
    route: "writeFile",
    call: (c) => c.writeFile("sb-1", "/x", "content", { mode: "600", parents: true }),
    query: { path: "/x", mode: "600", parents: true },
    body: Buffer.from("content"),
  },
  { route: "statFile", call: (c) => c.statFile("sb-1", "/x"), query: { path: "/x" } },
  { route: "listPorts", call: (c) => c.listPorts("sb-1"), params: { id: "sb-1" } },
  {
    route: "createPreview",
    call: (c) => c.createPreview("sb-1", 8000, { expiresInSecs: 60 }),
    params: { id: "sb-1", port: 8000 },
    body: { expires_in_secs: 60 },
  },
  {
    route: "startProcess",
    call: (c) =>
      c.startProcess("sb-1", ["sleep", "9"], { tag: "web", stdin: true, terminal: { rows: 5, cols: 6 }, timeoutSecs: 9, env: { A: "b" } }),
    params: { id: "sb-1" },
    body: { args: ["sleep", "9"], tag: "web", stdin: true, terminal: { rows: 5, cols: 6 }, timeout_secs: 9, env: { A: "b" } },
  },
  { route: "listProcesses", call: (c) => c.listProcesses("sb-1"), params: { id: "sb-1" } },
  { route: "getProcess", call: (c) => c.getProcess("sb-1", "web"), params: { id: "sb-1", process: "web" } },
  { route: "killProcess", call: (c) => c.killProcess("sb-1", "7"), params: { id: "sb-1", process: "7" } },
  {
    route: "watchProcess",
    call: async (c) => (await Array.fromAsync(c.watchProcess("sb-1", "web", { from: "1-2", follow: false }))).map(({ type }) => type),
    params: { id: "sb-1", process: "web" },
    query: { stdout_from: 1, stderr_from: 2, follow: false, encoding: "base64" },
    result: ["started", "stdout", "stdout", "stderr", "exit"],
  },
  {
    route: "writeStdin",
    call: (c) => c.writeStdin("sb-1", "7", "content", { close: true }),
    params: { id: "sb-1", process: "7" },
    query: { close: true },
    body: Buffer.from("content"),
  },
  {
    route: "signalProcess",
    call: (c) => c.signalProcess("sb-1", "7", "SIGINT", { scope: "process" }),
    body: { signal: "SIGINT", scope: "process" },
  },
  { route: "resizeProcess", call: (c) => c.resizeProcess("sb-1", "7", { rows: 5, cols: 6 }), body: { rows: 5, cols: 6 } },
  {
    route: "statFile",
    call: (c) => c.statFile("sb-1", "/x", { follow: true, user: "ann" }),
    query: { path: "/x", follow: true, user: "ann" },
  },
  {
    route: "listFiles",
    call: (c) => c.listFiles("sb-1", "/srv", { depth: 3, limit: 5, cursor: "YQ", user: "ann" }),
    query: { path: "/srv", depth: 3, limit: 5, cursor: "YQ", user: "ann" },
  },
  {
    route: "makeDirectory",
    call: (c) => c.makeDirectory("sb-1", "/srv/a", { mode: "750", parents: true, user: "ann" }),
    body: { path: "/srv/a", mode: "750", parents: true, user: "ann" },
  },
  {
    route: "moveFile",
    call: (c) => c.moveFile("sb-1", "/a", "/b", { overwrite: true }),
    body: { from: "/a", to: "/b", overwrite: true },
  },
  {
    route: "copyFile",
    call: (c) => c.copyFile("sb-1", "/a", "base64:L//+", { recursive: true }),
    body: { from: "/a", to: "base64:L//+", recursive: true },
  },
  { route: "removeFile", call: (c) => c.removeFile("sb-1", "/a", { recursive: true }), query: { path: "/a", recursive: true } },
  {
    route: "chmodFile",
    call: (c) => c.chmodFile("sb-1", "/a", "600", { recursive: true }),
    body: { path: "/a", mode: "600", recursive: true },
  },
  {
    route: "chownFile",
    call: (c) => c.chownFile("sb-1", "/a", { owner: "ann", group: "7" }),
    body: { path: "/a", owner: "ann", group: "7" },
  },
  { route: "makeSymlink", call: (c) => c.makeSymlink("sb-1", "../x", "/a"), body: { target: "../x", path: "/a" } },
  {
    route: "watchFiles",
    call: async (c) => Array.fromAsync(await c.watchFiles("sb-1", "/srv", { recursive: true, debounceMs: 5 })),
    query: { path: "/srv", recursive: true, debounce_ms: 5 },
    result: [{ type: "created", path: "/srv/a", directory: false }],
  },
  {
    route: "readTar",
    call: async (c) =>
      new TextDecoder().decode(Uint8Array.from((await Array.fromAsync(c.readTar("sb-1", "/srv"))).flatMap((part) => [...part]))),
    query: { path: "/srv" },
  },
  { route: "writeTar", call: (c) => c.writeTar("sb-1", "/srv", "archive", { user: "ann" }), query: { path: "/srv", user: "ann" } },
  ...packCases,
  { route: "listWorkspaces", call: (c) => c.listWorkspaces() },
  { route: "createWorkspace", call: (c) => c.createWorkspace("w", "py"), body: { name: "w", snapshot_tag: "py" } },
  { route: "getWorkspace", call: (c) => c.getWorkspace("w"), params: { name: "w" } },
  { route: "deleteWorkspace", call: (c) => c.deleteWorkspace("w"), params: { name: "w" } },
  { route: "suspendWorkspace", call: (c) => c.suspendWorkspace("w", { diff: true }), body: { diff: true } },
  { route: "resumeWorkspace", call: (c) => c.resumeWorkspace("w"), params: { name: "w" } },
];

for (const { route, call, result, ...expected } of cases) {
  for (const way of ["socket", "url"] as const) {
    test(`${route} over ${way}: ${call.toString().slice(7)}`, async () => {
      const controller = new Controller({ [way]: daemon[way], token: "tok-123" });
      const given = await call(controller);
      const seen = daemon.last;
      assert.equal(seen.route, route);
      assert.equal(seen.headers.authorization, "Bearer tok-123");
      for (const part of Object.keys(expected) as Array<keyof typeof expected>) {
        assert.deepEqual(withoutUndefined(seen[part]), expected[part], part);
      }
      assert.deepEqual(given, result ?? SAMPLES[route][1]);
    });
  }
}

test("every route is reached by a method", () => {
  const generated = methodsOf(buildOpenapi()).filter(({ client }) => client.byHand !== true); // generated.test.ts
  const reached = new Set<string>([...cases, ...generated].map(({ route }) => route));
  reached.add("getEvents"); // events.test.ts
  reached.add("connectPort").add("proxyRequest"); // ports.test.ts
  reached.add("moveSandbox"); // between gateways and nodes
  reached.add("streamProcess"); // a WebSocket; this package uses events and requests, which work everywhere
  assert.deepEqual(
    Object.keys(routes).filter((route) => !reached.has(route)),
    [],
  );
});

test("every method that is written by hand is in the list of cases", () => {
  const source = cases.map(({ call }) => call.toString()).join(" ");
  const missing = Object.getOwnPropertyNames(Controller.prototype).filter(
    (name) => !["constructor", "url"].includes(name) && !source.includes(`c.${name}(`),
  );
  assert.deepEqual(missing.sort(), ["connectPort", "events", "fetchPort", "streamProcess"]);
});

test("outcomes of each child", async () => {
  await using own = await FakeDaemon.start((_seen, response) => {
    response
      .writeHead(207, { "content-type": "application/json" })
      .end(JSON.stringify({ results: [{ error: { error: "no", code: "BUSY", hint: "", request_id: "" } }] }));
    return true;
  });
  const outcomes = await new Controller({ socket: own.socket }).trySpawnSandboxes("py", { n: 1 });
  assert.deepEqual(own.last.body, { snapshot_tag: "py", n: 1, per_item: true });
  assert.equal(outcomes.length, 1);
});

test("a page is an array with the cursor of the next page", async () => {
  await using own = await FakeDaemon.start((_seen, response, count) => {
    if (count === 1) response.setHeader("x-next-cursor", "more");
  });
  const controller = new Controller({ socket: own.socket });
  const first = await controller.listSandboxes({ limit: 1 });
  assert.equal(first.nextCursor, "more");
  assert.equal(JSON.stringify(first), JSON.stringify([...first]));
  assert.equal((await controller.listSandboxes({ limit: 1, cursor: "more" })).nextCursor, null);
});

test("an id cannot reach another route", async () => {
  const controller = new Controller({ socket: daemon.socket });
  const before = daemon.seen.length;
  for (const id of ["", ".", ".."]) await assert.rejects(controller.killSandbox(id), { name: "InvalidRequestError", code: "BAD_NAME" });
  await assert.rejects(controller.getSandbox("../snapshots"), { status: 400 });
  assert.deepEqual(daemon.seen.slice(before), []);
});

test("only creations have an idempotency key", async () => {
  await using own = await FakeDaemon.start();
  const c = new Controller({ socket: own.socket });
  const creations = [
    () => c.spawnSandboxes("py"),
    () => c.forkSandbox("sb-1"),
    () => c.branchSandbox("sb-1"),
    () => c.createSnapshot("py"),
    () => c.createImage({ reference: "x" }),
    () => c.createWorkspace("w", "py"),
  ];
  for (const create of creations) await create();
  const keys = own.seen.map(({ headers }) => String(headers["idempotency-key"]));
  assert.equal(new Set(keys).size, creations.length);
  for (const key of keys) assert.match(key, /^[0-9a-f]{32}$/);
  await c.spawnSandboxes("py", { idempotencyKey: null });
  assert.equal(own.last.headers["idempotency-key"], undefined);
  await c.execCommand("sb-1", ["true"]);
  assert.equal(own.last.headers["idempotency-key"], undefined);
  await c.execCommand("sb-1", ["true"], { idempotencyKey: "mine" });
  assert.equal(own.last.headers["idempotency-key"], "mine");
});

function withoutUndefined(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value) || Buffer.isBuffer(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined));
}

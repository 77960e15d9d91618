// Cordon, drain and sandboxes that have moved, by nodes without VMs.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { FakeNode, problem, snapshot, type Seen } from "./helpers/fake-node.ts";
import { ADMIN, serve, until } from "./helpers/gateway.ts";
import type { ServerResponse } from "node:http";

const ID = "sb-aaaa222233334444";
const OTHER = "sb-aaaa222233335555";
const PATH = `/v1/sandboxes/${ID}`;

type Step = { step: string; id: string; to?: string; record?: { maker?: { name: string } } };

/** Answers of a node that gave the sandbox to another */
function moved(node: FakeNode, to: string): void {
  node.routes.set("GET /v1/sandboxes*", () => refusal(to));
  node.routes.set("POST /v1/sandboxes*", () => refusal(to));
}

function refusal(to: string): { status: number; headers: Record<string, string>; body: object } {
  const body = { ...problem("SANDBOX_MOVED", `Sandbox ${ID} has moved to node ${to}.`), details: { sandbox: ID, node: to } };
  return { status: 421, headers: { "x-forkd-moved": `${ID} ${to}` }, body };
}

function stepOf({ body }: Seen): Step {
  return JSON.parse(body) as Step;
}

/** Steps that were asked of the nodes, in order; `answers` by step, default: {} */
function follow(nodes: FakeNode[], answers: Record<string, (step: Step, node: FakeNode) => object | undefined> = {}): string[] {
  const steps: string[] = [];
  for (const node of nodes)
    node.routes.set("POST /v1/cluster/moves", (seen) => {
      const step = stepOf(seen);
      steps.push(`${node.code} ${step.step} ${step.id}${step.to === undefined ? "" : ` to ${step.to}`}`);
      const answer = answers[step.step]?.(step, node) ?? (step.step === "reserve" ? { has: [] } : {});
      return "status" in answer ? (answer as ReturnType<typeof refusal>) : { body: answer };
    });
  return steps;
}

function departure(id: string): object {
  const sandbox = { id, project: "default", name: null, created_by: "ann", shares: [] };
  const state = { id: `sn-state${id.slice(-4)}`, tag: `sl-${id.slice(-4)}` };
  return {
    format: 1,
    id,
    project: "default",
    name: null,
    from: "aaaa",
    was: { state: "running", expires_at: null },
    snapshot: state,
    chain: ["sn-1"],
    sandbox,
    workspace: null,
  };
}

function sandbox(id: string, over: object = {}): object {
  return { id, name: null, project: "default", snapshot_id: "sn-1", memory_mib: 128, state: "running", created_at_unix_ms: 1, ...over };
}

/** A node that gives packs away, and one that takes them */
function movesPacks(from: FakeNode, to: FakeNode, packed: string[]): void {
  from.routes.set("GET /v1/snapshots/*", ({ url }, response: ServerResponse) => {
    packed.push(url);
    response.writeHead(200, { "content-length": "4" }).end("pack");
    return undefined;
  });
  to.routes.set("POST /v1/packs", () => ({ status: 201, body: {} }));
}

test("a request for a sandbox that has moved reaches its new node with its body, and the next one goes there at once", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  moved(a, "bbbb");
  const steps = follow([b]);
  b.routes.set(`POST ${PATH}/eval`, ({ body }) => ({ body: { got: JSON.parse(body) as unknown } }));
  const code = "x".repeat(200_000);
  const first = await ask(`${PATH}/eval`, { body: { code } });
  assert.deepEqual([first.status, first.body], [200, { got: { code } }]);
  assert.deepEqual(steps, [`bbbb settle ${ID}`], "the new node makes it its own, should the gateway that moved it have died");
  const asked = a.seen.length;
  assert.equal((await ask(`${PATH}/eval`, { body: { code: "1" } })).status, 200);
  assert.equal(a.seen.length, asked, "the place is known");
  assert.equal(steps.length, 1);
});

test("a sandbox that moved twice is followed to the end", async (t) => {
  const [a, b, c] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb"), await FakeNode.start(t, "cccc")];
  const { ask } = await serve(t, [a, b, c]);
  moved(a, "bbbb");
  const steps = follow([b, c], { settle: (_step, node) => (node === b ? refusal("cccc") : undefined) });
  c.routes.set(`GET ${PATH}`, () => ({ body: { id: ID } }));
  assert.equal((await ask(PATH)).status, 200);
  assert.deepEqual(steps, [`bbbb settle ${ID}`, `cccc settle ${ID}`]);
});

test("an upload that is too large to be kept is refused with BUSY when its sandbox has moved, and goes there when it is repeated", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { ask } = await serve(t, [a, b]);
  a.routes.set("PUT /v1/sandboxes*", () => refusal("bbbb"));
  follow([b]);
  let bytes = 0;
  b.routes.set(`PUT ${PATH}/files`, ({ body }) => {
    bytes = body.length;
    return { status: 204 };
  });
  const put = { method: "PUT", body: "y".repeat(3 * 1024 * 1024), headers: { "content-type": "application/octet-stream" } };
  const refused = await ask(`${PATH}/files?path=/a`, put);
  assert.deepEqual([refused.status, (refused.body as { code: string }).code], [503, "BUSY"]);
  assert.equal((await ask(`${PATH}/files?path=/a`, put)).status, 204);
  assert.equal(bytes, put.body.length);
});

test("an upgrade of a sandbox that has moved is made on its new node", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { port } = await serve(t, [a, b]);
  follow([b]);
  a.onUpgrade((_request, socket) => {
    socket.end(`HTTP/1.1 421 Misdirected Request\r\nX-Forkd-Moved: ${ID} bbbb\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
  });
  b.onUpgrade((request, socket) => {
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${request.headers.upgrade}\r\n\r\n`);
    socket.pipe(socket);
  });
  const socket = connect(port, "127.0.0.1");
  t.after(() => socket.destroy());
  let text = "";
  socket.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  const head = `GET ${PATH}/ports/80/connect HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${ADMIN}`;
  socket.write(`${head}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`);
  await until(() => text.includes("101 Switching"));
  socket.write("ping");
  await until(() => text.endsWith("ping"));
  socket.destroy();
});

test("a sandbox whose node is gone is found by asking the others once; else the error names its checkpoints elsewhere", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  b.snapshots = [
    snapshot("old", "sn-1", { branched_from: OTHER, created_at_unix: 1, ephemeral: false }),
    snapshot("new", "sn-2", { branched_from: OTHER, created_at_unix: 2, ephemeral: false }),
    snapshot("theirs", "sn-3", { branched_from: OTHER, created_at_unix: 3, ephemeral: false, project: "acme" }),
  ];
  const { ask } = await serve(t, [a, b]);
  b.routes.set(`GET ${PATH}`, () => ({ body: { id: ID } }));
  await a.close();
  await until(async () => (await ask(PATH)).status === 200);
  const count = (): number => b.seen.filter(({ url, claim }) => url === PATH && claim.name === "gateway").length;
  const before = count();
  assert.equal((await ask(PATH)).status, 200);
  assert.equal(count(), before, "its place is known");
  const gone = await ask(`/v1/sandboxes/${OTHER}`);
  const { code, details, hint } = gone.body as { code: string; hint: string; details: { checkpoints: { tag: string }[] } };
  assert.deepEqual([gone.status, code], [503, "NODE_UNREACHABLE"]);
  assert.deepEqual(
    details.checkpoints.map(({ tag }) => tag),
    ["new", "old"],
  );
  assert.match(hint, /forkd fork new/);
});

test("a cordoned node gets no forks, snapshots or recipes, and shows in the list of nodes", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  for (const node of [a, b]) {
    node.snapshots = [snapshot("python", "sn-1")];
    node.routes.set("POST /v1/sandboxes", () => ({ status: 201, body: [{ id: ID }] }));
    node.routes.set("POST /v1/snapshots", () => ({ status: 201, body: {} }));
    node.routes.set(`PATCH /v1/cluster/nodes/${node.code}`, ({ body }) => {
      node.isCordoned = (JSON.parse(body) as { cordoned: boolean }).cordoned;
      return { body: {} };
    });
  }
  const { ask } = await serve(t, [a, b]);
  const { body, status } = await ask("/v1/cluster/nodes/aaaa", { method: "PATCH", body: { cordoned: true } });
  assert.deepEqual([status, (body as { cordoned: boolean }).cordoned], [200, true]);
  const { nodes } = (await ask("/v1/cluster")).body as { nodes: { code: string; cordoned: boolean }[] };
  assert.deepEqual(
    nodes.map(({ code, cordoned }) => [code, cordoned]),
    [
      ["aaaa", true],
      ["bbbb", false],
    ],
  );
  for (let i = 0; i < 10; i++) {
    assert.equal((await ask("/v1/sandboxes", { body: { snapshot_tag: "python" } })).status, 201);
    assert.equal((await ask("/v1/snapshots", { body: { tag: `s${i}` } })).status, 201);
  }
  assert.equal(a.seen.filter(({ method }) => method === "POST").length, 0);
  await ask("/v1/cluster/nodes/bbbb", { method: "PATCH", body: { cordoned: true } });
  const refused = await ask("/v1/sandboxes", { body: { snapshot_tag: "python" } });
  assert.deepEqual([refused.status, (refused.body as { code: string }).code], [503, "LIMIT_REACHED"]);
  assert.equal((await ask("/v1/cluster/nodes/zzzz", { method: "PATCH", body: { cordoned: true } })).status, 404);
});

test("a drain gives each sandbox up only when another node has all of it, and follows it from then on", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  for (const node of [a, b]) node.snapshots = [snapshot("python", "sn-1", { ephemeral: false })];
  const left = new Set<string>();
  const packed: string[] = [];
  movesPacks(a, b, packed);
  a.routes.set("PATCH /v1/cluster/nodes/aaaa", () => ({ body: {} }));
  a.routes.set("GET /v1/sandboxes", () => ({ body: [ID, OTHER].filter((id) => !left.has(id)).map((id) => sandbox(id)) }));
  a.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  b.routes.set(`GET ${PATH}`, () => ({ body: { id: ID } }));
  const steps = follow([a, b], {
    depart: ({ id }) => departure(id),
    reserve: () => ({ has: ["sn-1"] }),
    leave: ({ id }) => void left.add(id),
    settle: () => ({ state: "running", problem: null }),
  });
  const { ask } = await serve(t, [a, b]);
  const { status, body } = await ask("/v1/cluster/nodes/aaaa/drain", { method: "POST" });
  assert.equal(status, 200);
  const { moved: all, left: open } = body as { moved: { id: string; to: string; state: string }[]; left: unknown[] };
  assert.deepEqual(open, []);
  assert.deepEqual(all.map(({ id, to, state }) => `${id} ${to} ${state}`).toSorted(), [`${ID} bbbb running`, `${OTHER} bbbb running`]);
  assert.deepEqual(
    steps.filter((line) => line.includes(ID)),
    [`aaaa depart ${ID}`, `bbbb reserve ${ID}`, `bbbb arrive ${ID}`, `aaaa leave ${ID} to bbbb`, `bbbb settle ${ID}`],
  );
  assert.equal(packed.length, 2);
  for (const url of packed) assert.match(url, /\/sn-state\d+\/pack\?.*without=sn-1/, "the base is not sent again");
  const asked = a.seen.length;
  assert.equal((await ask(PATH)).status, 200);
  assert.equal(a.seen.length, asked);
});

test("a sandbox that no node takes runs on: the next node is asked, what was received is dropped, and the answer has the reason", async (t) => {
  const [a, b, c] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb"), await FakeNode.start(t, "cccc")];
  movesPacks(a, b, []);
  a.routes.set("PATCH /v1/cluster/nodes/aaaa", () => ({ body: {} }));
  a.routes.set("GET /v1/sandboxes", () => ({ body: [sandbox(ID)] }));
  a.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  const full = { status: 503, body: problem("LIMIT_REACHED", "It is full.") };
  const steps = follow([a, b, c], {
    depart: ({ id }) => departure(id),
    reserve: (_step, node) => (node === c ? full : undefined),
    arrive: () => ({ status: 507, body: problem("NO_SPACE", "The disk is full.") }),
  });
  const { ask } = await serve(t, [a, b, c]);
  const { body } = await ask("/v1/cluster/nodes/aaaa/drain", { method: "POST" });
  const { moved: all, left: open } = body as { moved: unknown[]; left: { id: string; problem: string }[] };
  assert.deepEqual(all, []);
  assert.equal(open[0]?.id, ID);
  assert.match(open[0]?.problem ?? "", /bbbb: The disk is full/);
  assert.match(open[0]?.problem ?? "", /cccc: It is full/);
  assert.ok(steps.includes(`bbbb drop ${ID}`));
  assert.equal(steps.at(-1), `aaaa stay ${ID}`);
  assert.ok(!steps.some((line) => line.includes("leave")));
});

test("a drain without room elsewhere suspends nothing", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  b.maxSandboxes = 0;
  a.routes.set("PATCH /v1/cluster/nodes/aaaa", () => ({ body: {} }));
  a.routes.set("GET /v1/sandboxes", () => ({ body: [sandbox(ID)] }));
  a.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  const steps = follow([a, b]);
  const { ask } = await serve(t, [a, b]);
  const { body } = await ask("/v1/cluster/nodes/aaaa/drain", { method: "POST" });
  assert.deepEqual(
    (body as { left: { id: string; code: string }[] }).left.map(({ id, code }) => [id, code]),
    [[ID, "LIMIT_REACHED"]],
  );
  assert.deepEqual(steps, []);
});

test("two gateways that drain at once do not both move a sandbox: the second forgets what it sent", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  movesPacks(a, b, []);
  a.routes.set("PATCH /v1/cluster/nodes/aaaa", () => ({ body: {} }));
  a.routes.set("GET /v1/sandboxes", () => ({ body: [sandbox(ID)] }));
  a.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  const steps = follow([a, b], { depart: ({ id }) => departure(id), leave: () => refusal("cccc") });
  const { ask } = await serve(t, [a, b]);
  const { body } = await ask("/v1/cluster/nodes/aaaa/drain", { method: "POST" });
  assert.equal((body as { left: { code: string }[] }).left[0]?.code, "SANDBOX_MOVED");
  assert.ok(steps.includes(`bbbb drop ${ID}`));
  assert.ok(!steps.some((line) => line.includes("settle")));
});

test("a step of a move is refused to clients of a gateway, also to operators", async (t) => {
  const a = await FakeNode.start(t, "aaaa");
  const steps = follow([a]);
  const { ask } = await serve(t, [a]);
  assert.equal((await ask("/v1/cluster/moves", { body: { step: "depart", id: ID } })).status, 403);
  assert.deepEqual(steps, []);
});

/** A daemon that ends and has two sandboxes, of which one is suspended; it gives away what leaves it */
function ending(node: FakeNode): { left: Set<string>; steps: string[]; claims: Set<string>; answers: Parameters<typeof follow>[1] } {
  const left = new Set<string>();
  const claims = new Set<string>();
  node.isLeaving = true;
  node.routes.set("GET /v1/sandboxes", () => ({
    body: [sandbox(ID), sandbox(OTHER, { state: "suspended" })].filter(({ id }: { id?: string }) => id !== undefined && !left.has(id)),
  }));
  node.routes.set("GET /v1/workspaces", () => ({ body: [] }));
  const answers = {
    claim: ({ id }: Step) => ({ is_yours: claims.size === 0 || claims.has(id) ? claims.add(id).size === 1 : false }),
    depart: ({ id }: Step) => departure(id),
    leave: ({ id }: Step) => void left.add(id),
    settle: () => ({ state: "running", problem: null }),
  };
  return { left, claims, answers, steps: [] };
}

test("the running sandboxes of a daemon that is about to end move without a request, by one of the gateways", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  movesPacks(a, b, []);
  const { left, claims, answers } = ending(a);
  const steps = follow([a, b], answers);
  const [one, two] = [await serve(t, [a, b]), await serve(t, [a, b])];
  b.routes.set(`GET ${PATH}`, () => ({ body: { id: ID } }));
  await until(() => left.has(ID) && steps.includes(`bbbb settle ${ID}`));
  assert.equal(claims.size, 1);
  assert.equal(steps.filter((line) => line === `aaaa depart ${ID}`).length, 1);
  assert.ok(!steps.some((line) => line.includes(`depart ${OTHER}`)), "what is suspended outlives the daemon");
  // and the node takes no forks meanwhile
  const { nodes } = (await one.ask("/v1/cluster")).body as { nodes: { code: string; cordoned: boolean }[] };
  assert.deepEqual(
    nodes.map(({ code, cordoned }) => `${code} ${cordoned}`),
    ["aaaa true", "bbbb false"],
  );
  a.routes.set("GET /v1/sandboxes*", () => refusal("bbbb"));
  for (const { ask } of [one, two]) assert.equal((await ask(PATH)).status, 200);
});

test("another gateway continues when the one that moved the sandboxes has ended", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  movesPacks(a, b, []);
  const { left, claims, answers } = ending(a);
  claims.add("of a gateway that is silent");
  const steps = follow([a, b], answers);
  await serve(t, [a, b]);
  await until(() => steps.filter((line) => line.startsWith("aaaa claim")).length > 2);
  assert.ok(!steps.some((line) => line.includes("depart")));
  claims.clear();
  await until(() => left.has(ID));
});

test("what no node takes is tried again only after a pause, because each attempt suspends it", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const { answers } = ending(a);
  const times: number[] = [];
  const full = { status: 503, body: problem("LIMIT_REACHED", "It is full.") };
  const depart = ({ id }: Step): object => {
    times.push(performance.now());
    return departure(id);
  };
  follow([a, b], { ...answers, depart, reserve: () => full });
  await serve(t, [a, b]);
  await until(() => times.length === 2, 60_000);
  const [first = 0, second = 0] = times;
  assert.ok(second - first > 3000, `${second - first} ms`);
});

test("a move that a gateway did not end is ended: the node that had the sandbox says whose it is", async (t) => {
  const [a, b] = [await FakeNode.start(t, "aaaa"), await FakeNode.start(t, "bbbb")];
  const now = Math.floor(Date.now() / 1000);
  const gone = "sb-aaaa222233336666";
  const stale = "sb-aaaa222233337777";
  const arriving = [
    { id: ID, from: "aaaa", at: now - 60 },
    { id: OTHER, from: "aaaa", at: now - 60 },
    { id: gone, from: "aaaa", at: now - 60 },
    { id: stale, from: "aaaa", at: now - 100_000 },
    { id: "sb-aaaa222233338888", from: "aaaa", at: now },
  ];
  const steps = follow([a, b], { pending: (_step, node) => ({ arriving: node === b ? arriving : [] }) });
  a.routes.set(`GET ${PATH}`, () => refusal("bbbb"));
  a.routes.set(`GET /v1/sandboxes/${gone}`, () => refusal("cccc"));
  for (const id of [OTHER, stale]) a.routes.set(`GET /v1/sandboxes/${id}`, () => ({ body: { id } }));
  await serve(t, [a, b], { pendingMs: 100 });
  await until(() => steps.filter((line) => line.includes("pending")).length > 3);
  const done = new Set(steps.filter((line) => !line.includes("pending")));
  assert.deepEqual([...done].toSorted(), [`bbbb drop ${gone}`, `bbbb drop ${stale}`, `bbbb settle ${ID}`], "the others may still be moved");
});

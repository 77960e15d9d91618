// What clients of agent-sandbox ask a sandbox itself, over HTTPS, with a fake node behind.

import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { FakeNode, problem, type Seen } from "../helpers/fake-node.ts";
import { serveAgentsApi, type Ask, type Reply } from "../helpers/agents.ts";

const ID = "sb-aaaa222222222222";

type Setup = { node: FakeNode; ask: (path: string, ask?: Ask) => Promise<Reply>; files: Map<string, string> };

async function setUp(t: TestContext): Promise<Setup> {
  const node = await FakeNode.start(t, "aaaa");
  const files = new Map<string, string>();
  const { ask, token } = await serveAgentsApi(t, [node]);
  const pathIn = (url: string): string => new URLSearchParams(url.split("?")[1]).get("path") ?? "";
  const missing = { status: 404, body: problem("FILE_NOT_FOUND", "There is no such file.") };
  node.routes.set(`POST /v1/sandboxes/${ID}/exec`, ({ body }) => {
    const { args, timeout_secs: timeout } = JSON.parse(body) as { args: string[]; timeout_secs: number };
    return {
      body: { stdout: `${args.slice(4).join(" ")} ${timeout}`, stderr: "", exit_code: 3, signal: null, timed_out: false, truncated: false },
    };
  });
  node.routes.set(`PUT /v1/sandboxes/${ID}/files`, ({ url, body }) => {
    files.set(pathIn(url), body);
    return { body: { bytes: body.length } };
  });
  node.routes.set(`GET /v1/sandboxes/${ID}/files`, ({ url }, response) => {
    const text = files.get(pathIn(url));
    if (text === undefined) return missing;
    response.writeHead(200, { "content-type": "application/octet-stream", "content-length": Buffer.byteLength(text) }).end(text);
    return undefined;
  });
  node.routes.set(`GET /v1/sandboxes/${ID}/files/stat`, ({ url }) => (files.has(pathIn(url)) ? { body: { kind: "file" } } : missing));
  node.routes.set(`GET /v1/sandboxes/${ID}/files/list`, ({ url }) => {
    const file = (name: string, kind: string): object => ({ name, kind, size: 2, mtime_ms: 1500 });
    const isSecond = url.includes("cursor=next");
    return isSecond ? { body: [file("b", "directory")] } : { headers: { "x-next-cursor": "next" }, body: [file("a", "symlink")] };
  });
  const asked = async (path: string, given: Ask = {}): Promise<Reply> => {
    const headers = {
      "x-sandbox-id": ID,
      "x-sandbox-namespace": "default",
      "x-sandbox-port": "8888",
      authorization: `Bearer ${token}`,
      ...given.headers,
    };
    return ask(path, { as: null, user: null, ...given, headers });
  };
  return { node, ask: asked, files };
}

/** Requests that are not the gateway's own */
function clients({ seen }: FakeNode): Seen[] {
  return seen.filter(({ claim }) => claim.name !== "gateway");
}

function form(name: string, content: string): { body: Buffer; headers: Record<string, string> } {
  const text = `--x\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n\r\n${content}\r\n--x--\r\n`;
  return { body: Buffer.from(text), headers: { "content-type": "multipart/form-data; boundary=x" } };
}

describe("router", () => {
  it("runs commands by a shell, within the given time", async (t) => {
    const { ask, node } = await setUp(t);
    const reply = await ask("/execute", { body: { command: "echo $HOME", timeout_seconds: 7 } });
    assert.deepEqual(reply.body, { stdout: "/app echo $HOME 7", stderr: "", exit_code: 3, timed_out: false });
    assert.match(JSON.stringify((await ask("/execute", { body: { command: "x" }, headers: { "x-sandbox-timeout": "60" } })).body), /x 60/);
    assert.equal((await ask("/execute", { body: {} })).status, 400);
    assert.equal((await ask("/execute")).status, 405);
    const [first] = clients(node);
    assert.equal(first?.claim.name, "token-file");
    assert.equal(first?.headers["authorization"], undefined);
  });

  it("writes, reads, lists and finds files below its folder", async (t) => {
    const { ask, files } = await setUp(t);
    assert.equal((await ask("/upload", form("sub/a.txt", "hällo"))).status, 200);
    assert.deepEqual([...files], [["/app/sub/a.txt", "hällo"]]);
    const read = await ask("/download/sub%2Fa.txt");
    assert.equal(read.body, "hällo");
    assert.equal((await ask("/download/%2Fapp%2Fnone")).status, 404);
    assert.equal(((await ask("/exists/sub%2Fa.txt")).body as { exists: boolean }).exists, true);
    assert.equal(((await ask("/exists/none")).body as { exists: boolean }).exists, false);
    assert.deepEqual((await ask("/list/.")).body, [
      { name: "a", size: 2, type: "file", mod_time: 1.5 },
      { name: "b", size: 2, type: "directory", mod_time: 1.5 },
    ]);
  });

  it("leads no path out of its folder", async (t) => {
    const { ask, files, node } = await setUp(t);
    for (const path of ["/download/..%2Fetc%2Fpasswd", "/list/..", "/exists/a%2F..%2F..%2F..%2Fetc"])
      assert.equal((await ask(path)).status, 403, path);
    assert.equal((await ask("/upload", form("../etc/passwd", "x"))).status, 403);
    assert.equal((await ask("/download/%ff")).status, 400);
    assert.equal((await ask("/upload", { body: Buffer.from("x"), headers: { "content-type": "text/plain" } })).status, 415);
    assert.equal(files.size, 0);
    assert.deepEqual(clients(node), []);
  });

  it("needs a token of the cluster, and a namespace that the token may use", async (t) => {
    const { ask, node } = await setUp(t);
    assert.equal((await ask("/execute", { body: { command: "x" }, headers: { authorization: "" } })).status, 401);
    const wrong = await ask("/execute", { body: { command: "x" }, headers: { authorization: "Bearer fkd_wrong" } });
    assert.equal(wrong.status, 401);
    assert.equal((wrong.body as { code: string }).code, "UNAUTHORIZED");
    assert.equal((await ask("/execute", { body: { command: "x" }, headers: { "x-sandbox-namespace": "other" } })).status, 404);
    assert.equal((await ask("/execute", { body: { command: "x" }, headers: { "x-sandbox-namespace": "*" } })).status, 400);
    assert.deepEqual(clients(node), []);
  });

  it("passes every other path to the port inside", async (t) => {
    const { ask, node } = await setUp(t);
    node.routes.set(`POST /v1/sandboxes/${ID}/proxy/8888/*`, ({ url, headers, body }) => ({
      status: 201,
      headers: { "x-from": "guest" },
      body: { url, body, mine: headers["x-mine"], id: headers["x-sandbox-id"] ?? null },
    }));
    const reply = await ask("/agent/run?x=1", { body: { a: 1 }, headers: { "x-mine": "1" } });
    assert.equal(reply.status, 201);
    assert.equal(reply.headers["x-from"], "guest");
    assert.deepEqual(reply.body, { url: `/v1/sandboxes/${ID}/proxy/8888/agent/run?x=1`, body: '{"a":1}', mine: "1", id: null });
    assert.equal((await ask("/agent", { headers: { "x-sandbox-port": "../1" } })).status, 400);
  });
});

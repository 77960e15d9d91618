// The host's side of a share against a scripted agent, which may violate the protocol.

import assert from "node:assert/strict";
import { constants } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { constants as os } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { until } from "../../../../tests/helpers/until.ts";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Reader, Writer } from "../../src/util/codec.ts";
import { CHANNEL, T, WINDOW } from "../../src/agent/wire/protocol.ts";
import { answerRecord, attributesBody, entriesBody, Questions } from "../../src/share/record.ts";
import { startSharing } from "../../src/share/server.ts";
import { LARGEST_READ } from "../../src/share/tree.ts";
import { FakeAgent, type Behaviour } from "../agent/fake-agent.ts";
import { tempDir } from "../image/helpers/temp-home.ts";
import type { AgentConnection } from "../../src/agent/wire/connection.ts";
import type { Hidden } from "../../src/share/hidden.ts";

const OPS = { stat: 1, list: 2, read: 3, link: 4 };
const NOTHING: Hidden = [];

type Asked = { id: number; op: keyof typeof OPS; path: string; offset?: number; size?: number };

function question({ id, op, path, offset = 0, size = 4096 }: Asked): Buffer {
  const body = new Writer().u64(BigInt(id)).u8(OPS[op]).u64(0n).u64(BigInt(offset)).u32(size).str(path).done();
  return new Writer().bytes(body).done();
}

/** A share with a few files, and the agent that mounts it */
async function mounted(t: TestContext, behave: Behaviour = () => undefined): Promise<{ agent: FakeAgent; connection: AgentConnection }> {
  const source = await tempDir(t);
  await mkdir(join(source, "sub"));
  await writeFile(join(source, "file"), "content");
  await writeFile(join(source, "large"), Buffer.alloc(LARGEST_READ, "x"));
  const agent = await FakeAgent.listen((self, frame) => {
    if (frame.type === T.MOUNT) self.send(T.OPENED, frame.stream);
    behave(self, frame);
  });
  t.after(async () => agent[Symbol.asyncDispose]());
  const connection = await agent.connect();
  await startSharing(connection, { shares: [{ source, target: "/mnt" }], mounted: [], hidden: NOTHING });
  return { agent, connection };
}

/** The answers so far: id, errno, body */
function answers(agent: FakeAgent): { id: number; errno: number; body: Buffer }[] {
  const sent = agent.received.filter(({ type }) => type === T.DATA).map(({ payload }) => payload.subarray(1));
  let data = Buffer.concat(sent);
  const found = [];
  while (data.length >= 4 && data.length >= 4 + data.readUInt32LE(0)) {
    const reader = new Reader(data.subarray(4, 4 + data.readUInt32LE(0)));
    data = data.subarray(4 + data.readUInt32LE(0));
    found.push({ id: Number(reader.u64()), errno: reader.u32(), body: reader.rest() });
  }
  return found;
}

const streamOf = (agent: FakeAgent): number => agent.received.find(({ type }) => type === T.MOUNT)?.stream ?? 0;

test("records match the spec byte for byte", async () => {
  const golden = async (name: string): Promise<Buffer> =>
    (await readFile(new URL(`../../../../spec/frames/${name}.bin`, import.meta.url))).subarray(13);
  const [asked] = new Questions().push(await golden("share-question"));
  assert.deepEqual(asked, { id: 9n, op: "read", inode: 7n, offset: 1n << 40n, size: 4096, path: Buffer.from("a/ü") });
  const attributes = {
    inode: 5n,
    size: 6n,
    blocks: 8n,
    accessed: -1n,
    modified: 2n,
    changed: 3n,
    mode: constants.S_IFREG | 0o644,
    links: 1,
  };
  assert.deepEqual(answerRecord(9n, 0, attributesBody(attributes)), await golden("share-stat"));
  const entries = [
    { next: 1, name: Buffer.from("a"), attributes },
    { next: 4, name: Buffer.from("ü"), attributes },
  ];
  assert.deepEqual(answerRecord(9n, 0, entriesBody(entries, true)), await golden("share-list"));
  assert.deepEqual(answerRecord(9n, 2, Buffer.alloc(0)), await golden("share-error"));
});

test("requests are answered, however their bytes are split", async (t) => {
  const { agent } = await mounted(t);
  const all = Buffer.concat([
    question({ id: 1, op: "read", path: "file", offset: 3, size: 2 }),
    question({ id: 2, op: "stat", path: "none" }),
    question({ id: 3, op: "stat", path: "../outside" }),
    question({ id: 4, op: "list", path: "" }),
    question({ id: 5, op: "link", path: "file" }),
  ]);
  for (const byte of all) agent.data(streamOf(agent), CHANNEL.stdin, Buffer.of(byte));
  await until(() => answers(agent).length === 5);
  const byId = new Map(answers(agent).map((answer) => [answer.id, answer]));
  assert.equal(String(byId.get(1)?.body), "te");
  assert.equal(byId.get(2)?.errno, os.errno.ENOENT);
  assert.equal(byId.get(3)?.errno, os.errno.EINVAL);
  for (const name of ["file", "large", "sub"]) assert.ok(byId.get(4)?.body.includes(name), name);
  assert.equal(byId.get(5)?.errno, os.errno.EINVAL);
});

test("a guest that requests much and reads nothing gets no more than its window, without effect on others", async (t) => {
  const { agent, connection } = await mounted(t);
  const flood = Buffer.concat(Array.from({ length: 2000 }, (_, id) => question({ id, op: "read", path: "large", size: LARGEST_READ })));
  agent.data(streamOf(agent), CHANNEL.stdin, flood.subarray(0, 60_000));
  agent.data(streamOf(agent), CHANNEL.stdin, flood.subarray(60_000, 90_000));
  const sent = (): number => agent.received.reduce((sum, { type, payload }) => sum + (type === T.DATA ? payload.length - 1 : 0), 0);
  await until(() => sent() >= WINDOW);
  for (let i = 0; i < 20; i++) await connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
  assert.equal(sent(), WINDOW);
  // it gets no credit for more requests either
  assert.equal(agent.count(T.CREDIT), 0);
});

for (const [what, bytes] of [
  ["is too long", new Writer().u32(1 << 20).done()],
  ["ends before its fields do", new Writer().u32(4).u32(0).done()],
  ["has an unknown type", new Writer().bytes(new Writer().u64(1n).u8(99).u64(0n).u64(0n).u32(0).str("").done()).done()],
  ["has a wrong path length", new Writer().bytes(new Writer().u64(1n).u8(1).u64(0n).u64(0n).u32(0).u32(4000).done()).done()],
] as const)
  test(`a request that ${what} ends the share and nothing else`, async (t) => {
    const { agent, connection } = await mounted(t);
    agent.data(streamOf(agent), CHANNEL.stdin, bytes);
    await until(() => agent.count(T.CANCEL) === 1);
    await connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    agent.data(streamOf(agent), CHANNEL.stdin, question({ id: 1, op: "stat", path: "" }));
    await connection.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
    assert.deepEqual(answers(agent), []);
  });

test("a failed mount is reported with its reason", async (t) => {
  const agent = await FakeAgent.listen((self, { type, stream }) => {
    if (type === T.MOUNT) self.send(T.ERROR, stream, new Writer().str("ENOTDIR").str("Not a directory").done());
  });
  t.after(async () => agent[Symbol.asyncDispose]());
  const share = { source: await tempDir(t), target: "/etc/passwd" };
  const sharing = startSharing(await agent.connect(), { shares: [share], mounted: [], hidden: NOTHING });
  await assert.rejects(sharing, { code: "SHARE_FAILED", message: `Cannot share ${share.source} at /etc/passwd: Not a directory.` });
});

test("a guest without FUSE, or with an agent without shares, has a different error than a failed mount", async (t) => {
  const agent = await FakeAgent.listen((self, { type, stream }) => {
    if (type === T.MOUNT) self.send(T.ERROR, stream, new Writer().str("unsupported").str("unknown frame type").done());
  });
  t.after(async () => agent[Symbol.asyncDispose]());
  const share = { source: await tempDir(t), target: "/mnt" };
  const sharing = startSharing(await agent.connect(), { shares: [share], mounted: [], hidden: NOTHING });
  await assert.rejects(sharing, { code: "SHARE_FAILED", message: /cannot mount it: unknown frame type/, hint: /Make the snapshot again/ });
});

test("a mount of the snapshot that the fork does not have is unmounted", async (t) => {
  const agent = await FakeAgent.listen((self, { type, stream }) => self.send(type === T.MOUNT ? T.OPENED : T.RESULT, stream));
  t.after(async () => agent[Symbol.asyncDispose]());
  const share = { source: await tempDir(t), target: "/kept" };
  await startSharing(await agent.connect(), { shares: [share], mounted: ["/kept", "/dropped"], hidden: NOTHING });
  const said = agent.received.map(({ type, payload }) => [type, new Reader(payload).str()]);
  assert.deepEqual(said, [
    [T.MOUNT, "/kept"],
    [T.UNMOUNT, "/dropped"],
  ]);
});

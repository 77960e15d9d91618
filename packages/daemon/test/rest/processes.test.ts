// Processes over server-sent events: events, their format, and the end of the stream.

import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { test } from "node:test";
import { ForkdError } from "@forkd/runtime/errors";
import { wholeCharacters } from "../../src/rest/process-events.ts";
import { until } from "../../../../tests/helpers/until.ts";
import { fakeManager } from "../helpers/fake-manager.ts";
import { EXIT, FakeWatched, output } from "../helpers/fake-watched.ts";
import { open, readAll, serve, settled } from "../helpers/serve.ts";
import type { IncomingMessage } from "node:http";
import type { ManagerApi } from "../../src/service/manager.ts";

const PATH = "/v1/sandboxes/sb/processes";
const EVENTS = { accept: "text/event-stream" };

function managerWith(process: FakeWatched, more: Partial<ManagerApi["processes"]> = {}): ReturnType<typeof fakeManager> {
  return fakeManager({ processes: { watch: async () => process, startWatched: async () => process, ...more } });
}

/** `event id data` of each event */
function eventsIn(text: string): string[] {
  return text
    .split("\n\n")
    .filter((block) => block.includes("event: "))
    .map((block) => {
      const field = (name: string): string => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
      return `${field("event")} ${field("id")} ${field("data")}`.trim();
    });
}

test("the output of a process, with the offset after each piece", async (t) => {
  const process = new FakeWatched();
  process.put({ type: "lost", channel: "stdout", offset: 100, bytes: 60 });
  process.put(output("out\n", 100), output("err", 0, "stderr"), output("more", 104), EXIT);
  const fixture = await serve(t, { manager: managerWith(process) });
  const reply = await fixture.ask(`${PATH}/7/output`);
  assert.equal(reply.headers["content-type"], "text/event-stream");
  assert.deepEqual(eventsIn(reply.text), [
    `started 100-0 ${JSON.stringify(process.started)}`,
    'lost 100-0 {"channel":"stdout","bytes":60}',
    'stdout 104-0 {"offset":100,"text":"out\\n"}',
    'stderr 104-3 {"offset":0,"text":"err"}',
    'stdout 108-3 {"offset":104,"text":"more"}',
    'exit 108-3 {"exit_code":0,"signal":null,"timed_out":false}',
  ]);
  assert.ok(process.isClosed);
});

test("characters are not split, and an offset is never inside one", async (t) => {
  const process = new FakeWatched();
  const bytes = Buffer.from("aé€😀");
  for (let i = 0; i < bytes.length; i++) process.put(output(bytes.subarray(i, i + 1), 100 + i));
  process.put(output(Buffer.of(0xe2, 0x82), 110), EXIT);
  const fixture = await serve(t, { manager: managerWith(process) });
  const reply = await fixture.ask(`${PATH}/7/output`);
  assert.deepEqual(eventsIn(reply.text).slice(1, -1), [
    'stdout 101-0 {"offset":100,"text":"a"}',
    'stdout 103-0 {"offset":101,"text":"é"}',
    'stdout 106-0 {"offset":103,"text":"€"}',
    'stdout 110-0 {"offset":106,"text":"😀"}',
    'stdout 112-0 {"offset":110,"text":"�"}',
  ]);
});

test("binary output is base64", async (t) => {
  const process = new FakeWatched();
  process.put(output(Buffer.of(0xff, 0xe2), 100), EXIT);
  const fixture = await serve(t, { manager: managerWith(process) });
  const reply = await fixture.ask(`${PATH}/7/output?encoding=base64`);
  assert.equal(eventsIn(reply.text)[1], 'stdout 102-0 {"offset":100,"base64":"/+I="}');
});

test("wholeCharacters holds back only an incomplete character", () => {
  const cases: [number[], number][] = [
    [[], 0],
    [[0x61], 1],
    [[0xc3], 0],
    [[0xc3, 0xa9], 2],
    [[0x61, 0xe2, 0x82], 1],
    [[0xe2, 0x82, 0xac], 3],
    [[0xf0, 0x9f, 0x98], 0],
    [[0xf0, 0x9f, 0x98, 0x80], 4],
    [[0x80, 0x80, 0x80, 0x80], 4],
    [[0x61, 0x80], 2],
    [[0xff], 0],
    [[0xff, 0x61], 2],
  ];
  for (const [bytes, whole] of cases) assert.equal(wholeCharacters(Uint8Array.from(bytes)), whole, bytes.join(" "));
});

test("the start offset is in the query or in Last-Event-ID, which takes precedence", async (t) => {
  const asked: unknown[] = [];
  const watch: ManagerApi["processes"]["watch"] = async (_id, process, from) => {
    asked.push([process, from]);
    const watched = new FakeWatched();
    watched.put(EXIT);
    return watched;
  };
  const fixture = await serve(t, { manager: managerWith(new FakeWatched(), { watch }) });
  await fixture.ask(`${PATH}/web/output?stdout_from=5&stderr_from=now&follow=false`);
  await fixture.ask(`${PATH}/7/output?stdout_from=5`, { headers: { "last-event-id": "12-34" } });
  assert.deepEqual(asked, [
    ["web", { stdout_from: 5, stderr_from: "now", follow: false, encoding: "utf8" }],
    ["7", { stdout_from: 12, stderr_from: 34, follow: undefined }],
  ]);
  for (const [query, id] of [
    ["?stdout_from=-1", undefined],
    ["?stdout_from=later", undefined],
    ["?encoding=latin1", undefined],
    ["", "12"],
    ["", "1-2-3"],
  ] as const) {
    const reply = await fixture.ask(`${PATH}/7/output${query}`, id === undefined ? {} : { headers: { "last-event-id": id } });
    assert.deepEqual([reply.status, reply.json()["code"]], [400, "BAD_REQUEST"], `${query} ${id}`);
  }
});

test("starting answers with the process, or with its output at once", async (t) => {
  const process = new FakeWatched();
  process.put(output("hi", 100), EXIT);
  const started: unknown[] = [];
  const manager = managerWith(process, {
    start: async (_id, body) => {
      started.push(body);
      return { id: 7 } as never;
    },
  });
  const fixture = await serve(t, { manager });
  const reply = await fixture.ask(PATH, { body: { args: ["true"] } });
  assert.deepEqual([reply.status, reply.json()], [201, { id: 7 }]);
  assert.deepEqual(started, [{ args: ["true"], stdin: false }]);
  const stream = await fixture.ask(PATH, { body: { args: ["true"] }, headers: EVENTS });
  assert.equal(stream.status, 200);
  assert.deepEqual(
    eventsIn(stream.text).map((line) => line.split(" ")[0]),
    ["started", "stdout", "exit"],
  );
  const keyed = await fixture.ask(PATH, { body: { args: ["true"] }, headers: { ...EVENTS, "idempotency-key": "k" } });
  assert.deepEqual([keyed.status, keyed.json()["code"]], [400, "BAD_REQUEST"]);
});

test("a tag that could be an id or a path is refused, and so are invalid signals and sizes", async (t) => {
  const fixture = await serve(t);
  for (const tag of ["12", "stream", "a/b", ""]) {
    const reply = await fixture.ask(PATH, { body: { args: ["true"], tag } });
    assert.equal(reply.status, 400, tag);
  }
  for (const [path, body] of [
    ["signal", { signal: "SIGNOTHING" }],
    ["signal", { signal: 9 }],
    ["signal", { signal: "SIGINT", scope: "world" }],
    ["resize", { rows: 0, cols: 80 }],
    ["resize", { rows: 24 }],
    ["resize", { rows: 24, cols: 70_000 }],
  ] as const) {
    const reply = await fixture.ask(`${PATH}/7/${path}`, { body });
    assert.deepEqual([reply.status, reply.json()["code"]], [400, "BAD_REQUEST"], JSON.stringify(body));
  }
});

test("stdin is forwarded in pieces, and has no Idempotency-Key", async (t) => {
  const pieces: Buffer[] = [];
  let closes: boolean | undefined;
  const first = Promise.withResolvers<void>();
  const write: ManagerApi["processes"]["write"] = async (_id, _process, content, opts) => {
    for await (const piece of content) {
      pieces.push(Buffer.from(piece));
      first.resolve();
    }
    closes = opts.close;
  };
  const fixture = await serve(t, { manager: managerWith(new FakeWatched(), { write }) });
  const sending = request({ ...fixture.options({ method: "POST" }), path: `${PATH}/7/stdin?close` });
  sending.write("one");
  await first.promise;
  sending.end("two");
  const [response] = (await once(sending, "response")) as [IncomingMessage];
  assert.equal(response.statusCode, 204);
  response.resume();
  assert.deepEqual([Buffer.concat(pieces).toString(), closes], ["onetwo", true]);
  const reply = await fixture.ask(`${PATH}/7/stdin`, { method: "POST", body: Buffer.from("x"), headers: { "idempotency-key": "k" } });
  assert.deepEqual([reply.status, reply.json()["code"]], [400, "BAD_REQUEST"]);
});

test("a failure in the stream is the last event", async (t) => {
  const process = new FakeWatched();
  process.put(output("so far", 100));
  process.fail(new ForkdError("VMM_EXITED", "Sandbox sb has ended."));
  const fixture = await serve(t, { manager: managerWith(process) });
  const last = eventsIn((await fixture.ask(`${PATH}/7/output`)).text).at(-1) ?? "";
  assert.match(last, /^error +\{"error":"Sandbox sb has ended\.","code":"VMM_EXITED"/);
  const missing = await serve(t);
  assert.equal((await missing.ask(`${PATH}/7/output`)).status, 404);
});

test("the stream has keep-alives, and ends properly when the daemon stops", async (t) => {
  const process = new FakeWatched();
  const fixture = await serve(t, { manager: managerWith(process), limits: { heartbeatMs: 10 } });
  const response = await open({ ...fixture.options({}), path: `${PATH}/7/output` });
  let text = "";
  while (!text.includes(": still here")) text += String((await once(response, "data"))[0]);
  fixture.stopping.abort();
  await readAll(response);
  assert.ok(response.complete);
  await until(() => process.isClosed);
});

test("a client that disconnects, or is dropped, is detached", async (t) => {
  const gone = new FakeWatched();
  const dropped = new FakeWatched();
  const watch: ManagerApi["processes"]["watch"] = async (_id, process) => (process === "1" ? gone : dropped);
  const fixture = await serve(t, { manager: managerWith(gone, { watch }) });
  (await open({ ...fixture.options({}), path: `${PATH}/1/output` })).destroy();
  await until(() => gone.isClosed);
  const response = await open({ ...fixture.options({}), path: `${PATH}/2/output` });
  dropped.drop();
  await assert.rejects(readAll(response));
  assert.ok(dropped.isClosed);
});

test("buffers for a client that does not read are bounded", async (t) => {
  const process = new FakeWatched();
  const fixture = await serve(t, { manager: managerWith(process) });
  const response = await open({ ...fixture.options({}), path: `${PATH}/7/output` });
  response.pause();
  const pieces = 2000;
  for (let i = 0; i < pieces; i++) process.put(output("x".repeat(32_768), 100 + i * 32_768));
  await settled(() => process.read);
  assert.ok(process.read < pieces / 4, `${process.read} pieces were read for a client that does not read`);
  response.destroy();
  await until(() => process.isClosed);
});

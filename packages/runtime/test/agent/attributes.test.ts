// Extended attributes of files, from honest, hostile and older agents.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { getAttributes, setAttributes } from "../../src/agent/files/attributes.ts";
import { Reader, Writer } from "../../src/util/codec.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent, watchUnhandled, type Behaviour } from "./fake-agent.ts";

after(watchUnhandled());

const PREFIX = "user.test.";
const OLDER = "bad_request\0there is no such tool";

/** A tool that reads its complete input and then runs this */
function tool(work: (agent: FakeAgent, stream: number, input: Buffer) => void): Behaviour {
  const pieces: Buffer[] = [];
  return (agent, { type, stream, payload }) => {
    if (type === T.TOOL) agent.started(stream);
    if (type === T.DATA) pieces.push(payload.subarray(1));
    if (type === T.EOF) work(agent, stream, Buffer.concat(pieces.splice(0)));
  };
}

const failing = (reason: string): Behaviour =>
  tool((agent, stream) => {
    agent.data(stream, CHANNEL.stderr, reason);
    agent.exit(stream, 1);
  });

const pairs = (writer: Writer, all: [string, string][]): Writer =>
  writer.list(all, (each, [name, value]) => void each.str(name).str(value));

test("each path has its own attributes, also when the paths need several requests", async () => {
  let requests = 0;
  await using fake = await FakeAgent.listen(
    tool((agent, stream, input) => {
      requests++;
      const paths = new Reader(input).list((reader) => reader.str());
      for (const path of paths) agent.data(stream, CHANNEL.stdout, pairs(new Writer(), path === "/none" ? [] : [["path", path]]).done());
      agent.exit(stream);
    }),
  );
  const paths = ["/none", ...Array.from({ length: 700 }, (_, at) => `/${at}`)];
  const all = await getAttributes(await fake.connect(), paths, PREFIX);
  assert.equal(requests, 2);
  assert.deepEqual(
    all.map((each) => each.get("path")),
    [undefined, ...paths.slice(1)],
  );
});

test("values are sent to the guest unchanged", async () => {
  const seen: [string, string][] = [];
  await using fake = await FakeAgent.listen(
    tool((agent, stream, input) => {
      seen.push(...new Reader(input).list((reader): [string, string] => [reader.str(), reader.str()]));
      agent.exit(stream);
    }),
  );
  await setAttributes(await fake.connect(), "/x", { prefix: PREFIX, attributes: new Map([["a", "b c"]]) });
  assert.deepEqual(seen, [["a", "b c"]]);
});

test("with an older agent files have no attributes, removing them succeeds, and setting one fails", async () => {
  await using fake = await FakeAgent.listen(failing(OLDER));
  const agent = await fake.connect();
  assert.deepEqual(await getAttributes(agent, ["/x", "/y"], PREFIX), [new Map(), new Map()]);
  await setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map() });
  await assert.rejects(setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map([["a", "b"]]) }), { code: "FILE_FAILED" });
});

test("a refusal of the guest is reported", async () => {
  await using fake = await FakeAgent.listen(failing("EACCES\0Permission denied"));
  const agent = await fake.connect();
  await assert.rejects(setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map() }), { code: "FILE_DENIED" });
});

test("too few answers or malformed ones are AGENT_PROTOCOL", async () => {
  for (const bytes of [pairs(new Writer(), []).done(), Buffer.alloc(9, 0xff)]) {
    await using fake = await FakeAgent.listen(
      tool((agent, stream) => {
        agent.data(stream, CHANNEL.stdout, bytes);
        agent.exit(stream);
      }),
    );
    await assert.rejects(getAttributes(await fake.connect(), ["/x", "/y"], PREFIX), { code: "AGENT_PROTOCOL" });
  }
});

test("too many attributes are AGENT_PROTOCOL", async () => {
  const many = pairs(
    new Writer(),
    Array.from({ length: 30_000 }, (_, at) => [String(at), ""]),
  ).done();
  await using fake = await FakeAgent.listen(
    tool((agent, stream) => {
      for (let file = 0; file < 2; file++)
        for (let at = 0; at < many.length; at += 60_000) agent.data(stream, CHANNEL.stdout, many.subarray(at, at + 60_000));
      agent.exit(stream);
    }),
  );
  await assert.rejects(getAttributes(await fake.connect(), ["/x", "/y"], PREFIX), {
    code: "AGENT_PROTOCOL",
    message: /list of 30000 items/,
  });
});

test("an answer without end is cut off", { timeout: patience() }, async () => {
  await using fake = await FakeAgent.listen(tool((agent, stream) => void agent.flood(stream, CHANNEL.stdout)));
  await assert.rejects(getAttributes(await fake.connect(), ["/x"], PREFIX), /more than/);
});

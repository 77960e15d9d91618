// Attributes of files, as an agent tells them that may lie or be an older one.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { getAttributes, setAttributes } from "../../src/guest/attributes.ts";
import { Reader, Writer } from "../../src/guest/codec.ts";
import { CHANNEL, T } from "../../src/guest/protocol.ts";
import { FakeAgent, watchUnhandled, type Behaviour } from "./fake-agent.ts";

after(watchUnhandled());

const PREFIX = "user.test.";
const OLDER = "bad_request\0there is no such tool";

/** A tool that reads all of its input and then does this */
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

test("each path has its own, also when there are more than fit one request", async () => {
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

test("what is set goes to the guest as it is", async () => {
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

test("with an older agent no file has any, none have to go, and none can be given", async () => {
  await using fake = await FakeAgent.listen(failing(OLDER));
  const agent = await fake.connect();
  assert.deepEqual(await getAttributes(agent, ["/x", "/y"], PREFIX), [new Map(), new Map()]);
  await setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map() });
  await assert.rejects(setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map([["a", "b"]]) }), { code: "FILE_FAILED" });
});

test("a refusal is told", async () => {
  await using fake = await FakeAgent.listen(failing("EACCES\0Permission denied"));
  const agent = await fake.connect();
  await assert.rejects(setAttributes(agent, "/x", { prefix: PREFIX, attributes: new Map() }), { code: "FILE_DENIED" });
});

test("an agent that tells of too few, or says nonsense, breaks the protocol", async () => {
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

test("one that never ends is cut off", { timeout: 60_000 }, async () => {
  await using fake = await FakeAgent.listen(tool((agent, stream) => void agent.flood(stream, CHANNEL.stdout)));
  await assert.rejects(getAttributes(await fake.connect(), ["/x"], PREFIX), /more than/);
});

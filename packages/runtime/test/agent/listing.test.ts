// Pages of a folder listing from an agent.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { patience } from "../../../../tests/helpers/patience.ts";
import { Writer } from "../../src/util/codec.ts";
import { listFiles } from "../../src/agent/files/listing.ts";
import { CHANNEL, T } from "../../src/agent/wire/protocol.ts";
import { FakeAgent } from "./fake-agent.ts";

/** An agent whose pages all have these paths and are never the last */
async function agentOf(paths: string[]): Promise<FakeAgent> {
  return FakeAgent.listen((agent, { type, stream }) => {
    if (type !== T.TOOL) return;
    const page = new Writer();
    for (const path of paths) {
      page.u8("+".charCodeAt(0)).bytes(Buffer.from(path));
      page.u8("f".charCodeAt(0)).u32(0o644).u32(0).u32(0).u64(3n).i64(0n).str("").str("").bytes(Buffer.alloc(0));
    }
    agent.started(stream);
    agent.data(stream, CHANNEL.stdout, page.u8(".".charCodeAt(0)).u8(1).done());
    agent.exit(stream);
  });
}

describe("a list of a guest's files", { timeout: patience() }, () => {
  test("continues after the last path, a folder before its entries", async () => {
    await using fake = await agentOf(["a", "a/b", "a/c", "a-b", "b"]);
    const agent = await fake.connect();
    const { files, cursor } = await listFiles(agent, "/d", { depth: 2, limit: 10 });
    assert.deepEqual(
      files.map(({ path }) => path),
      ["/d/a", "/d/a/b", "/d/a/c", "/d/a-b", "/d/b"],
    );
    assert.equal(Buffer.from(cursor ?? "", "base64url").toString(), "b");
  });

  test("that begins again with each page is refused", async () => {
    await using fake = await agentOf(["a", "b"]);
    const agent = await fake.connect();
    const { cursor } = await listFiles(agent, "/d", { depth: 1, limit: 10 });
    assert.ok(cursor);
    await assert.rejects(listFiles(agent, "/d", { depth: 1, limit: 10, cursor }), { code: "AGENT_PROTOCOL", message: /not in order/ });
  });

  for (const paths of [
    ["b", "a"],
    ["a", "a"],
    ["a-b", "a/b"],
  ])
    test(`with ${paths.join(" before ")} is refused`, async () => {
      await using fake = await agentOf(paths);
      await assert.rejects(listFiles(await fake.connect(), "/d", { depth: 2, limit: 10 }), { code: "AGENT_PROTOCOL" });
    });
});

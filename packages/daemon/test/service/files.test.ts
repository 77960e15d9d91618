// Guest files as streams: no stream stays open, whatever the reader does.

import assert from "node:assert/strict";
import { once } from "node:events";
import { Readable } from "node:stream";
import { test } from "node:test";
import { Files } from "../../src/service/files.ts";
import { Lease } from "../../src/service/lease.ts";
import type { Sandbox } from "@forkd/runtime/sandbox/sandbox";
import type { Caller } from "../../src/service/caller.ts";
import type { Entry } from "../../src/service/registry.ts";

type Parts = ConstructorParameters<typeof Files>[0];

function reading(chunks: string[]): { files: Files; caller: Caller; abort: AbortController; open: () => number; uses: () => number } {
  const entry = { uses: 0, lastActive: 0 };
  let open = 0;
  const sandbox = {
    files: {
      async *readChunks() {
        open++;
        try {
          for (const chunk of chunks) yield Buffer.from(chunk);
        } finally {
          open--;
        }
      },
    },
  };
  const sandboxes = { lease: async () => new Lease(entry as unknown as Entry, sandbox as unknown as Sandbox, true) };
  const abort = new AbortController();
  const files = new Files(sandboxes as unknown as Parts);
  const caller: Caller = { principal: "local", project: "default", maxSandboxes: null, requestId: "r", signal: abort.signal };
  return { files, caller, abort, open: () => open, uses: () => entry.uses };
}

test("a file that was read to its end is released", async () => {
  const { files, caller, open, uses } = reading(["a", "b"]);
  const content = await files.read("sb", { path: "/x" }, caller);
  assert.deepEqual([open(), uses()], [1, 1]);
  assert.equal(Buffer.concat(await Array.fromAsync(content)).toString(), "ab");
  assert.deepEqual([open(), uses()], [0, 0]);
});

test("an empty file has no chunk", async () => {
  const { files, caller, open, uses } = reading([]);
  assert.deepEqual(await Array.fromAsync(await files.read("sb", { path: "/x" }, caller)), []);
  assert.deepEqual([open(), uses()], [0, 0]);
});

test("a file that is never read is released", async () => {
  const { files, caller, open, uses } = reading(["a", "b"]);
  const stream = Readable.from(await files.read("sb", { path: "/x" }, caller));
  stream.destroy();
  await once(stream, "close");
  assert.deepEqual([open(), uses()], [0, 0]);
});

test("a reader that stops midway releases it, once", async () => {
  const { files, caller, open, uses } = reading(["a", "b", "c"]);
  const content = (await files.read("sb", { path: "/x" }, caller))[Symbol.asyncIterator]();
  await content.next();
  await content.return?.();
  await content.return?.();
  assert.deepEqual([open(), uses()], [0, 0]);
});

test("a caller that disconnects ends the read", async () => {
  const { files, caller, abort, open, uses } = reading(["a", "b", "c"]);
  const content = (await files.read("sb", { path: "/x" }, caller))[Symbol.asyncIterator]();
  await content.next();
  abort.abort(new Error("gone"));
  await assert.rejects(content.next(), /gone/);
  assert.deepEqual([open(), uses()], [0, 0]);
});

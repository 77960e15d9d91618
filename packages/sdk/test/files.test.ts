// Files of a sandbox: errors with a reason, lists of any length, watches that end, broken streams.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Controller, FileError, Sandbox } from "../src/index.ts";
import { FakeDaemon, problem } from "./helpers/fake-daemon.ts";
import { SAMPLES } from "./helpers/samples.ts";

type Override = NonNullable<Parameters<typeof FakeDaemon.start>[0]>;

const WAYS = ["socket", "url"] as const;
const [[LISTED]] = [SAMPLES.listFiles[1] as [object]];

async function sandboxOn(daemon: FakeDaemon, way: (typeof WAYS)[number] = "socket"): Promise<Sandbox> {
  return Sandbox.create("py", { controller: new Controller({ [way]: daemon[way] }) });
}

function refusing(status: number, code: string, errno: string): Override {
  return ({ route }, response) =>
    route === "createSandboxes" ? undefined : problem(response, status, { code, error: "No.", details: { errno } });
}

for (const [status, code, errno] of [
  [404, "FILE_NOT_FOUND", "ENOENT"],
  [409, "FILE_EXISTS", "EEXIST"],
  [403, "FILE_DENIED", "EACCES"],
  [507, "FILE_NO_SPACE", "ENOSPC"],
  [422, "FILE_FAILED", "EISDIR"],
] as const) {
  test(`${code} is a FileError with an errno`, async () => {
    await using daemon = await FakeDaemon.start(refusing(status, code, errno));
    const sb = await sandboxOn(daemon);
    for (const call of [() => sb.files.read("/x"), () => sb.files.mkdir("/x"), () => sb.files.write("/x", "y")]) {
      await assert.rejects(
        call,
        (error) => error instanceof FileError && error.code === code && error.errno === errno && error.status === status,
      );
    }
  });
}

test("exists is false for a missing path; any other failure is an error", async () => {
  await using there = await FakeDaemon.start();
  assert.equal(await (await sandboxOn(there)).files.exists("/x"), true);
  await using missing = await FakeDaemon.start(refusing(404, "FILE_NOT_FOUND", "ENOENT"));
  assert.equal(await (await sandboxOn(missing)).files.exists("/x"), false);
  await using denied = await FakeDaemon.start(refusing(403, "FILE_DENIED", "EACCES"));
  await assert.rejects((await sandboxOn(denied)).files.exists("/x"), { code: "FILE_DENIED" });
});

test("a list without a limit is complete", async () => {
  await using daemon = await FakeDaemon.start(({ route }, response, count) => {
    if (route === "listFiles" && count < 3) response.setHeader("x-next-cursor", `c${count}`);
  });
  const sb = await sandboxOn(daemon);
  const all = await sb.files.list("/srv", { depth: 2 });
  assert.deepEqual([all.length, all.nextCursor], [3, null]);
  const asked = daemon.seen.filter(({ route }) => route === "listFiles").map(({ query }) => (query as { cursor?: string }).cursor);
  assert.deepEqual(asked, [undefined, "c1", "c2"]);
  assert.deepEqual(all[0], LISTED);
});

test("append adds", async () => {
  await using daemon = await FakeDaemon.start();
  await (await sandboxOn(daemon)).files.append("/log", "line\n");
  assert.deepEqual(daemon.last.query, { path: "/log", append: true });
});

for (const way of WAYS) {
  test(`not found after a lost answer of a removal is success, over ${way}`, async () => {
    await using daemon = await FakeDaemon.start(({ route }, response, count) => {
      if (route !== "removeFile") return undefined;
      if (count === 1) response.destroy();
      else problem(response, 404, { code: "FILE_NOT_FOUND", error: "No such file." });
      return true;
    });
    await (await sandboxOn(daemon, way)).files.remove("/x");
  });

  test(`a watch reports changes until it is closed, over ${way}`, async () => {
    const ended: Promise<unknown>[] = [];
    await using daemon = await FakeDaemon.start(({ route }, response) => {
      if (route !== "watchFiles") return undefined;
      ended.push(once(response, "close"));
      response.write('event: ready\ndata: {"type":"ready"}\n\n: still here\n\nevent: created\ndata: {"type":"created","path":"/a"}\n\n');
      return true;
    });
    const sb = await sandboxOn(daemon, way);
    const watch = await sb.files.watch("/srv", { recursive: true });
    const seen: unknown[] = [];
    for await (const event of watch) {
      seen.push(event);
      // no more events: only close() ends the wait
      setImmediate(() => void watch.close());
    }
    assert.deepEqual(seen, [{ type: "created", path: "/a" }]);
    await Promise.all(ended);
    await watch.close();
  });
}

test("a watch that is refused, fails or breaks is an error", async () => {
  await using refused = await FakeDaemon.start(refusing(404, "FILE_NOT_FOUND", "ENOENT"));
  await assert.rejects((await sandboxOn(refused)).files.watch("/x"), { code: "FILE_NOT_FOUND" });
  const last = { error: 'event: error\ndata: {"type":"error","problem":{"error":"Too many.","code":"FILE_FAILED"}}\n\n', break: "" };
  for (const [kind, text] of Object.entries(last)) {
    await using daemon = await FakeDaemon.start(({ route }, response) => {
      if (route !== "watchFiles") return undefined;
      response.write(
        `event: ready\ndata: {"type":"ready"}\n\n${text}`,
        () => void (kind === "break" ? response.destroy() : response.end()),
      );
      return true;
    });
    const watch = await (await sandboxOn(daemon)).files.watch("/x");
    await assert.rejects(Array.fromAsync(watch), { code: kind === "break" ? "DAEMON_UNREACHABLE" : "FILE_FAILED" });
  }
});

test("an aborted watch ends, before it is ready and after", async () => {
  const early = new AbortController();
  await using daemon = await FakeDaemon.start(({ route }, response, count) => {
    if (route !== "watchFiles") return undefined;
    response.writeHead(200).flushHeaders();
    if (count === 1) early.abort(new Error("enough"));
    else response.write('event: ready\ndata: {"type":"ready"}\n\n');
    return true;
  });
  const sb = await sandboxOn(daemon);
  await assert.rejects(sb.files.watch("/x", { signal: early.signal }), { message: "enough" });
  const caller = new AbortController();
  const watch = await sb.files.watch("/x", { signal: caller.signal });
  caller.abort();
  assert.deepEqual(await Array.fromAsync(watch), []);
});

test("a stream that fails in the guest throws the reason, if the transport has trailers", async () => {
  const told = { code: "FILE_DENIED", error: "Cannot pack ☃.", hint: "", request_id: "r", details: { errno: "EACCES" } };
  await using daemon = await FakeDaemon.start(({ route, headers }, response) => {
    if (route !== "readTar") return undefined;
    assert.equal(headers.te, "trailers");
    response.writeHead(200, { trailer: "x-forkd-problem" });
    response.write("some bytes");
    response.addTrailers({ "x-forkd-problem": JSON.stringify(told).replace("☃", "\\u2603") });
    response.end();
    return true;
  });
  const archive = (await sandboxOn(daemon)).files.downloadTar("/srv");
  await assert.rejects(
    Array.fromAsync(archive),
    (error) => error instanceof FileError && error.message === told.error && error.errno === "EACCES",
  );
});

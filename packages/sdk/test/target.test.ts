// Where the daemon is looked for.

import assert from "node:assert/strict";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { resolveHome } from "../../daemon/src/home.ts";
import { Controller } from "../src/index.ts";
import { resolveTarget, resolveToken } from "../src/target.ts";
import { unixTransport } from "../src/transport-node.ts";

const host = (env: Record<string, string>) => ({ env, uid: 7 });

test("option, then environment, then the default socket; a page has only the port", () => {
  const all = host({ FORKD_URL: "http://env:1", FORKD_SOCKET: "/env.sock", FORKD_RUN: "/run/f" });
  assert.deepEqual(resolveTarget({ url: "https://h:2/", socket: "/s" }, all), { kind: "url", url: "https://h:2" });
  assert.deepEqual(resolveTarget({ socket: "/s" }, all), { kind: "unix", socket: "/s" });
  assert.deepEqual(resolveTarget({}, all), { kind: "url", url: "http://env:1" });
  assert.deepEqual(resolveTarget({}, host({ FORKD_SOCKET: "/env.sock" })), { kind: "unix", socket: "/env.sock" });
  assert.deepEqual(resolveTarget({ url: "unix:///a/b.sock" }, undefined), { kind: "unix", socket: "/a/b.sock" });
  assert.deepEqual(resolveTarget({}, undefined), { kind: "url", url: "http://127.0.0.1:8889" });
});

test("the default socket is the daemon's own", () => {
  const uid = process.getuid?.() ?? 0;
  for (const env of [{ FORKD_RUN: "/run/f" }, { XDG_RUNTIME_DIR: "/run/user/7" }, {}] as Array<Record<string, string>>) {
    const target = resolveTarget({}, { env: { ...env, TMPDIR: tmpdir() }, uid });
    assert.deepEqual(target, { kind: "unix", socket: join(resolveHome(env).run, "forkd.sock"), uid });
  }
});

test("an address or a token that cannot be one is refused at once", () => {
  for (const url of ["ftp://x", "localhost", "unix:relative", "8889"]) {
    assert.throws(() => new Controller({ url }), { name: "InvalidRequestError" });
  }
  assert.throws(() => new Controller({ token: "a\r\nb" }), { name: "InvalidRequestError" });
  assert.equal(resolveToken(undefined, host({ FORKD_TOKEN: "abc\n" })), "abc");
  assert.equal(resolveToken("", host({ FORKD_TOKEN: "abc" })), undefined);
});

test("a default folder that others can write to is not trusted", async () => {
  const folder = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  try {
    const uid = process.getuid?.() ?? 0;
    await unixTransport(join(folder, "forkd.sock"), { uid });
    await chmod(folder, 0o777);
    await assert.rejects(unixTransport(join(folder, "forkd.sock"), { uid }), /somebody else may listen/);
    await assert.rejects(unixTransport(join(folder, "forkd.sock"), { uid: uid + 1 }), /somebody else may listen/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

// Address of the daemon.

import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { resolveHome } from "../../runtime/src/home.ts";
import { storeId } from "../../runtime/src/paths.ts";
import { Controller } from "../src/index.ts";
import { resolveStore, resolveTarget, resolveToken } from "../src/target.ts";
import { unixTransport } from "../src/transport-node.ts";

const host = (env: Record<string, string>) => ({ env, uid: 7 });

test("option, then environment, then the default socket; in a browser the default port", () => {
  const all = host({ FORKD_URL: "http://env:1", FORKD_SOCKET: "/env.sock", FORKD_RUN: "/run/f" });
  assert.deepEqual(resolveTarget({ url: "https://h:2/", socket: "/s" }, all), { kind: "url", url: "https://h:2" });
  assert.deepEqual(resolveTarget({ socket: "/s" }, all), { kind: "unix", socket: "/s" });
  assert.deepEqual(resolveTarget({}, all), { kind: "url", url: "http://env:1" });
  assert.deepEqual(resolveTarget({}, host({ FORKD_SOCKET: "/env.sock" })), { kind: "unix", socket: "/env.sock" });
  assert.deepEqual(resolveTarget({ url: "unix:///a/b.sock" }, undefined), { kind: "unix", socket: "/a/b.sock" });
  assert.deepEqual(resolveTarget({}, undefined), { kind: "url", url: "http://127.0.0.1:8889" });
});

test("the default socket is that of the daemon", () => {
  const uid = process.getuid?.() ?? 0;
  for (const env of [{ FORKD_RUN: "/run/f" }, { XDG_RUNTIME_DIR: "/run/user/7" }, {}] as Array<Record<string, string>>) {
    const target = resolveTarget({}, { env: { ...env, TMPDIR: tmpdir() }, uid });
    assert.deepEqual(target, { kind: "unix", socket: join(resolveHome(env).run, "forkd.sock"), uid });
  }
});

test("a store other than the default one has its own socket, the same for daemon and clients", async () => {
  const uid = process.getuid?.() ?? 0;
  const folder = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  try {
    await mkdir(join(folder, "real"));
    await symlink(join(folder, "real"), join(folder, "link"));
    const usual = uid === 0 ? "/var/lib/forkd" : join(homedir(), ".local/share/forkd");
    const homes = ["/srv/forkd", "/srv//a/../forkd/", "relative", usual, join(folder, "real/new/store"), join(folder, "link/new/store")];
    const sockets = homes.map((home) => {
      const env = { FORKD_HOME: home, XDG_RUNTIME_DIR: "/x", HOME: homedir() };
      const here = { env, uid, cwd: process.cwd(), realPath: realpathSync };
      const target = resolveTarget({}, here);
      assert.deepEqual(target, { kind: "unix", socket: join(resolveHome(env).run, "forkd.sock"), uid }, home);
      assert.equal(resolveStore(target, here), storeId(resolve(home)), home);
      return target.kind === "unix" ? target.socket : "";
    });
    assert.equal(sockets[0], "/x/forkd-de7761697ed38754/forkd.sock");
    assert.equal(sockets[1], sockets[0]);
    assert.equal(sockets[3], "/x/forkd/forkd.sock");
    assert.equal(sockets[5], sockets[4], "a link to a store is the same store");
    assert.equal(new Set(sockets).size, 4);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("the store id is sent only to the default socket", () => {
  const here = host({ FORKD_HOME: "/srv/forkd", FORKD_RUN: "/run/f" });
  for (const opts of [{}, { socket: "/run/f/forkd.sock" }]) assert.equal(resolveStore(resolveTarget(opts, here), here), "de7761697ed38754");
  for (const opts of [{ socket: "/other.sock" }, { url: "http://h:1" }])
    assert.equal(resolveStore(resolveTarget(opts, here), here), undefined);
  const other = host({ FORKD_RUN: "/run/f" });
  assert.equal(resolveStore(resolveTarget({}, other), other), undefined);
});

test("an invalid address or token is refused before sending", () => {
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
    await assert.rejects(unixTransport(join(folder, "forkd.sock"), { uid }), /another user may listen/);
    await assert.rejects(unixTransport(join(folder, "forkd.sock"), { uid: uid + 1 }), /another user may listen/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

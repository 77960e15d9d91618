// TCP connections from the host to servers inside a guest.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import { after, before, describe, it } from "node:test";
import { rejection } from "../helpers/guest.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import { startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

const LARGE = 8 * 1024 * 1024;

/** 7001 echoes until the client ends; 7002 returns a digest of its input; 7003 never reads; 7004 closes at once */
const SERVERS = `
import hashlib, socket, threading
def serve(port, handle, family=socket.AF_INET, host="127.0.0.1"):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(64)
    def loop():
        while True:
            threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
def echo(c):
    while True:
        data = c.recv(65536)
        if not data: break
        c.sendall(data)
    c.close()
def digest(c):
    h = hashlib.sha256()
    while True:
        data = c.recv(65536)
        if not data: break
        h.update(data)
    c.sendall(h.hexdigest().encode())
    c.close()
held = []
serve(7001, echo)
serve(7002, digest)
serve(7003, held.append)
serve(7004, lambda c: c.close())
serve(7006, echo, socket.AF_INET6, "::1")
`;

describe("a connection to a guest's port", () => {
  let vm: TestVm;
  let sandbox: Sandbox;
  before(async () => {
    vm = await startVm("connections");
    sandbox = await vm.fork();
    await sandbox.eval(SERVERS);
  });
  after(async () => vm.close());

  it("carries bytes both ways, and closes each direction separately", async () => {
    const content = randomBytes(LARGE);
    const echoed = await sandbox.connect(7001);
    echoed.end(content);
    assert.ok((await buffer(echoed)).equals(content));
    const digested = await sandbox.connect(7002);
    digested.end(content);
    assert.equal((await buffer(digested)).toString(), createHash("sha256").update(content).digest("hex"));
  });

  it("reaches IPv6, and concurrent connections are independent", async () => {
    const six = await sandbox.connect(7006, { host: "::1" });
    six.end("six");
    assert.equal((await buffer(six)).toString(), "six");
    const answers = await Promise.all(
      Array.from({ length: 50 }, async (_, n) => {
        const socket = await sandbox.connect(7001);
        socket.end(`number ${n}`);
        return (await buffer(socket)).toString();
      }),
    );
    assert.deepEqual(
      answers,
      Array.from({ length: 50 }, (_, n) => `number ${n}`),
    );
  });

  it("reports that no server listens", async () => {
    const error = await rejection(sandbox.connect(7999), ["PORT_CLOSED"]);
    assert.match(error.message, /refused/i);
    await rejection(sandbox.connect(80, { host: "example" }), ["PORT_CLOSED"]);
  });

  it("waits for a server that does not read, without blocking others", async () => {
    const socket = await sandbox.connect(7003);
    const written = new Promise<void>((resolve) => socket.write(randomBytes(LARGE), () => resolve()));
    written.catch(() => undefined);
    assert.equal((await sandbox.eval("1 + 1")).text, "2");
    assert.equal(await Promise.race([written.then(() => "taken"), sandbox.ping().then(() => "waiting")]), "waiting");
    socket.on("error", () => undefined);
    socket.destroy();
    assert.equal((await sandbox.eval("2 + 2")).text, "4");
  });

  it("that the client resets is reset in the guest", async () => {
    const socket = await sandbox.connect(7003);
    socket.write("x");
    await until(async () => (await sandbox.eval("len(held)")).text === "2");
    await sandbox.eval("held[-1].recv(1)");
    socket.destroy();
    const ended = await sandbox.eval("try:\n  held[-1].recv(1); end = 'ended'\nexcept ConnectionResetError:\n  end = 'reset'\nend", {
      timeoutMs: patience(),
    });
    assert.equal(ended.text, "'reset'");
  });

  it("ends when the server ends it", async () => {
    const socket = await sandbox.connect(7004);
    socket.resume();
    await once(socket, "end");
    socket.end();
    await once(socket, "close");
  });

  it("of a source does not exist in its forks", async () => {
    const socket = await sandbox.connect(7001);
    socket.write("before ");
    assert.equal(String((await once(socket, "data"))[0]), "before ");
    const { snapshot } = await vm.runtime.branch(sandbox, `${vm.tag}-connected`);
    const child = await vm.fork(snapshot);
    socket.end("after");
    assert.equal((await buffer(socket)).toString(), "after");
    const own = await child.connect(7001);
    own.end("own");
    assert.equal((await buffer(own)).toString(), "own");
  });
});

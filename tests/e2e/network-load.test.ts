// Much at once, and much in all: many connections, large transfers, slow readers; the daemon stays small.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, describe, it } from "node:test";
import { NetDaemon } from "../helpers/net-daemon.ts";
import { probe } from "../helpers/net-guest.ts";
import { NetWorld } from "../helpers/net-world.ts";

const MIB = 1024 * 1024;
const LARGE = 256 * MIB;
/** what a transfer of any size may cost the daemon for a while */
const ROOM = 96 * MIB;

const missing = await NetWorld.missing();

describe("a sandbox's network under load", { skip: missing ?? false }, () => {
  let net: NetDaemon;

  before(async () => {
    net = await NetDaemon.start();
    await net.makeSnapshot();
  });

  after(async () => net?.[Symbol.asyncDispose]());

  beforeEach(async () => net.beginTest());

  /** The most memory the daemon takes while the work goes on, over what it took before */
  async function growth(work: () => Promise<unknown>): Promise<number> {
    const before = residentBytes(net.daemon.pid);
    let most = before;
    const timer = setInterval(() => (most = Math.max(most, residentBytes(net.daemon.pid))), 20);
    try {
      await work();
    } finally {
      clearInterval(timer);
    }
    return most - before;
  }

  it("carries 200 connections at once", async () => {
    await using sandbox = await net.sandbox({ mode: "allow", allow: ["four.test"] });
    const code = `
answers = []
def one(i):
    s = socket.create_connection(("four.test", 7), 60)
    s.sendall(b"%d" % i)
    answers.append(int(s.recv(100)) == i)
    gate.wait(60)
    s.close()
gate = threading.Barrier(201)
threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
for t in threads: t.start()
while len(answers) < 200: time.sleep(0.05)
[len(answers), all(answers)]`;
    assert.deepEqual((await sandbox.eval(code, { timeoutSecs: 120 })).value, [200, true]);
    const during = await sandbox.network.get();
    assert.deepEqual([during.connections_open, during.connections_total], [200, 200]);
    await sandbox.eval("gate.wait(60)\nfor t in threads: t.join()", { timeoutSecs: 120 });
    assert.equal((await sandbox.network.get()).connections_refused, 0);
    assert.equal(net.world.hits.length, 200);
  });

  it("downloads and uploads much with a daemon that stays small", async (t) => {
    await using sandbox = await net.sandbox({ mode: "open" });
    const download = `
s = socket.create_connection(("four.test", 80), 60)
s.sendall(b"GET /big?bytes=${LARGE} HTTP/1.0\\r\\n\\r\\n")
total, begun = 0, time.time()
while True:
    piece = s.recv(262144)
    if not piece: break
    total += len(piece)
[total, time.time() - begun]`;
    const upload = `
s = socket.create_connection(("four.test", 80), 60)
s.sendall(b"POST /upload HTTP/1.0\\r\\nContent-Length: ${LARGE}\\r\\n\\r\\n")
piece, begun = b"x" * 1048576, time.time()
for _ in range(${LARGE / MIB}): s.sendall(piece)
answer = b""
while True:
    more = s.recv(1000)
    if not more: break
    answer += more
[int(answer.split(b"\\r\\n\\r\\n")[1]), time.time() - begun]`;
    for (const [what, code] of Object.entries({ download, upload })) {
      let secs = 0;
      const grown = await growth(async () => {
        const [bytes, took] = (await sandbox.eval(code, { timeoutSecs: 240 })).value as [number, number];
        assert.ok(bytes >= LARGE && bytes < LARGE + 1000, `${bytes}`);
        secs = took;
      });
      t.diagnostic(`${what}: ${(LARGE / 1e6 / secs).toFixed(1)} MB/s, the daemon grew by ${(grown / MIB).toFixed(1)} MiB`);
      assert.ok(grown < ROOM, `the daemon grew by ${grown} bytes`);
    }
  });

  it("holds little for a program that reads slowly, and for a server that does", async () => {
    await using sandbox = await net.sandbox({ mode: "open" });
    const grown = await growth(async () => {
      await sandbox.eval(
        `
slow = [socket.create_connection(("four.test", 80), 60) for _ in range(30)]
for s in slow: s.sendall(b"GET /big?bytes=${LARGE} HTTP/1.0\\r\\n\\r\\n")
deaf = [socket.create_connection(("four.test", 9), 60) for _ in range(10)]
for s in deaf:
    s.setblocking(False)
sent = 0
for _ in range(60):
    for s in deaf:
        try: sent += s.send(b"x" * 262144)
        except BlockingIOError: pass
    time.sleep(0.05)
[len(s.recv(1000)) for s in slow]`,
        { timeoutSecs: 240 },
      );
    });
    assert.ok(grown < ROOM, `the daemon grew by ${grown} bytes`);
    // nobody else waits for them
    assert.equal(await probe(sandbox, `get("four.test")`), "hello");
    assert.equal((await sandbox.network.get()).connections_open, 40);
  });
});

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}

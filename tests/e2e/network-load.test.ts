// Network load: many connections, large transfers, slow readers; the daemon's memory stays bounded.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { rounds } from "../helpers/all.ts";
import { residentMemory } from "../helpers/host.ts";
import { NetDaemon } from "../helpers/net-daemon.ts";
import { probe } from "../helpers/net-guest.ts";
import { NetWorld } from "../helpers/net-world.ts";
import { patience } from "../helpers/patience.ts";

const MIB = 1024 * 1024;
/** More than the allowed memory growth of the daemon */
const LARGE = rounds(128, 256) * MIB;
/** allowed memory growth during a transfer of any size */
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

  /** Peak memory growth of the daemon during the work */
  async function growth(work: () => Promise<unknown>): Promise<number> {
    const before = residentMemory(net.daemon.pid).bytes;
    let most = before;
    const timer = setInterval(() => (most = Math.max(most, residentMemory(net.daemon.pid).bytes)), 20);
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
    s = socket.create_connection(("four.test", 7), ${patience() / 1000})
    s.sendall(b"%d" % i)
    answers.append(int(s.recv(100)) == i)
    gate.wait()
    s.close()
gate = threading.Barrier(201)
threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
for t in threads: t.start()
while len(answers) < 200: time.sleep(0.05)
[len(answers), all(answers)]`;
    assert.deepEqual((await sandbox.eval(code, { timeoutSecs: patience() / 1000 })).value, [200, true]);
    const during = await sandbox.network.get();
    assert.deepEqual([during.connections_open, during.connections_total], [200, 200]);
    await sandbox.eval("gate.wait()\nfor t in threads: t.join()", { timeoutSecs: patience() / 1000 });
    assert.equal((await sandbox.network.get()).connections_refused, 0);
    assert.equal(net.world.hits.length, 200);
  });

  it("downloads and uploads much with little daemon memory", async (t) => {
    await using sandbox = await net.sandbox({ mode: "open" });
    const download = `
s = socket.create_connection(("four.test", 80), ${patience() / 1000})
s.sendall(b"GET /big?bytes=${LARGE} HTTP/1.0\\r\\n\\r\\n")
total = 0
while True:
    piece = s.recv(262144)
    if not piece: break
    total += len(piece)
total`;
    const upload = `
s = socket.create_connection(("four.test", 80), ${patience() / 1000})
s.sendall(b"POST /upload HTTP/1.0\\r\\nContent-Length: ${LARGE}\\r\\n\\r\\n")
piece = b"x" * 1048576
for _ in range(${LARGE / MIB}): s.sendall(piece)
answer = b""
while True:
    more = s.recv(1000)
    if not more: break
    answer += more
int(answer.split(b"\\r\\n\\r\\n")[1])`;
    for (const [what, code] of Object.entries({ download, upload })) {
      const grown = await growth(async () => {
        const bytes = (await sandbox.eval(code, { timeoutSecs: patience(40) / 1000 })).value as number;
        assert.ok(bytes >= LARGE && bytes < LARGE + 1000, `${bytes}`);
      });
      t.diagnostic(`${what}: the daemon grew by ${(grown / MIB).toFixed(1)} MiB`);
      assert.ok(grown < ROOM, `the daemon grew by ${grown} bytes`);
    }
  });

  it("buffers little for a slow reader on either side", async () => {
    await using sandbox = await net.sandbox({ mode: "open" });
    const grown = await growth(async () => {
      await sandbox.eval(
        `
slow = [socket.create_connection(("four.test", 80), ${patience() / 1000}) for _ in range(30)]
for s in slow: s.sendall(b"GET /big?bytes=${LARGE} HTTP/1.0\\r\\n\\r\\n")
deaf = [socket.create_connection(("four.test", 9), ${patience() / 1000}) for _ in range(10)]
for s in deaf:
    s.setblocking(False)
sent = 0
for _ in range(60):
    for s in deaf:
        try: sent += s.send(b"x" * 262144)
        except BlockingIOError: pass
    time.sleep(0.05)
[len(s.recv(1000)) for s in slow]`,
        { timeoutSecs: patience(40) / 1000 },
      );
    });
    assert.ok(grown < ROOM, `the daemon grew by ${grown} bytes`);
    // other connections are not blocked
    assert.equal(await probe(sandbox, `get("four.test")`), "hello");
    assert.equal((await sandbox.network.get()).connections_open, 40);
  });
});

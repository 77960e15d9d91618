// Children differ from their first instruction: programs do not run before clock and randomness are reset.

import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { after, before, describe, it } from "node:test";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { inParallel } from "@forkd/runtime/util/in-parallel";
import { rounds } from "../helpers/all.ts";
import { CLIENTS_IMAGE, ensureClientsImage } from "../helpers/clients-image.ts";
import { clockTolerance, sh } from "../helpers/guest.ts";
import { until } from "../helpers/until.ts";
import { NODE_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

/** `UNIQUE_CHILDREN=1000 make test-e2e FILE=unique-from` */
const CHILDREN = Number(process.env["UNIQUE_CHILDREN"] ?? rounds(8, 40));
/** From so many children on a zygote is made first, from which all are cloned */
const CLONED = 8;
/** Most children of the first request. It has half of all at most, but at least two, which are compared */
const FIRST = 8;
/** Number of lines that are checked in each of the first children; in the others it is the first line */
const LINES = 3;
/** Children that run at a time after the first ones. Each uses a core */
const AT_ONCE = availableParallelism() + 1;
/** Children of a branch */
const BRANCHED = 4;
const POLL_MS = 20;
const NS_PER_MS = 1_000_000n;

/**
 * Each program prints lines without an end: monotonic clock, wall clock, then values that must be unique. In a child it
 * rests when its first lines are printed, so that the others are not slowed down; not if there is a file /run/busy
 */
const PYTHON = String.raw`
import hashlib, os, socket, ssl, subprocess, sys, threading, time, uuid

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without certificates, which take long to read

def parts(hello):
    """Random and session id of a TLS ClientHello, and the rest, which has the public key"""
    return hello[11:43].hex(), hello[44:76].hex(), hashlib.sha256(hello[76:]).hexdigest()

def own_hello():
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="example")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return parts(out.read())

server = socket.create_server(("127.0.0.1", 0))

curl = connection = None

def curl_hello():
    """One curl makes all connections, each after the end of the one before, so that no hello is older than its line"""
    global curl, connection
    if connection:
        connection.close()
    if curl is None:
        curl = subprocess.Popen(["curl", "-sk", "https://127.0.0.1:%d/[1-1000000000]" % server.getsockname()[1]])
    connection, _ = server.accept()
    return parts(connection.recv(65536))

values = {
    "numbers": lambda: [os.getrandom(16).hex()],
    "python": lambda: [uuid.uuid4(), ssl.RAND_bytes(16).hex(), *own_hello()],
    "curl": curl_hello,
}[sys.argv[1]]
if sys.argv[1] == "numbers":
    # prints before all others, and before the agent reads its next message, when processes are no longer held
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
own_name = os.uname().nodename
own_lines = 0
with open("/run/" + sys.argv[1], "w", 1) as log:
    while True:
        print(time.monotonic_ns(), time.time_ns(), *values(), file=log)
        own_lines += os.uname().nodename != own_name
        rests = own_lines >= ${LINES} and not os.path.exists("/run/busy")
        time.sleep(0.2 if rests else 0.001)  # limits the size of the log
`;

/** Keeps OpenSSL's first generator reseeding most of the time: the input is long, and its random part is taken first */
const RESEEDING = String.raw`
import ssl, time

long = bytes(64 * 1024)
with open("/run/reseeding", "w", 1) as log:
    while True:
        print(time.monotonic_ns(), time.time_ns(), ssl.RAND_bytes(16).hex(), file=log)
        ssl.RAND_add(long, 32.0)
`;

const NODE = String.raw`
const { createHash, randomBytes, randomUUID } = require("node:crypto");
const fs = require("node:fs"), net = require("node:net"), os = require("node:os"), tls = require("node:tls");
const log = fs.openSync("/run/node", "w");
const ownName = os.hostname();
let begun, ownLines = 0;
const server = net.createServer((connection) => {
  connection.on("error", () => undefined);
  connection.once("data", (hello) => {
    connection.destroy();
    const rest = createHash("sha256").update(hello.subarray(76)).digest("hex");
    fs.writeSync(log, [...begun, hello.toString("hex", 11, 43), hello.toString("hex", 44, 76), rest].join(" ") + "\n");
    if (os.hostname() !== ownName) ownLines++;
    setTimeout(next, ownLines < ${LINES} ? 1 : 200);
  });
});
function next() {
  begun = [process.hrtime.bigint(), BigInt(Date.now()) * 1000000n, randomBytes(16).toString("hex"), randomUUID({ disableEntropyCache: true })];
  tls.connect({ host: "127.0.0.1", port: server.address().port, servername: "example" }).on("error", () => undefined);
}
server.listen(0, "127.0.0.1", next);
`;

/** Starts a program in the background and waits for its first line */
function inBackground(name: string, argv: string[]): string[] {
  const script = `("$@" </dev/null >/dev/null 2>/run/errors &) && until test -s /run/${name}; do sleep 0.1; done`;
  return ["sh", "-c", script, "sh", ...argv];
}

/** Programs that node starts itself, because its image has no shell */
const NODE_STARTED = `
const program = ${JSON.stringify(NODE)};
require("node:child_process").spawn(process.execPath, ["-e", program], { detached: true, stdio: "ignore" }).unref();
const { existsSync, statSync } = require("node:fs");
while (!existsSync("/run/node") || statSync("/run/node").size === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);`;

/** One program runs in its own cgroup, as in a container; there is also a copy of the machine id */
const GROUP = "/sys/fs/cgroup/theirs";
const PREPARED = [
  ["sh", "-c", "mkdir -p /var/lib/dbus && cp /etc/machine-id /var/lib/dbus/machine-id"],
  ["sh", "-c", `mount -t cgroup2 none /sys/fs/cgroup && mkdir -p ${GROUP}/inner`],
];
const IN_GROUP = ["sh", "-c", `echo $$ > ${GROUP}/inner/cgroup.procs && exec "$@"`, "sh"];

const PROGRAMS = {
  python: {
    spec: {
      image: CLIENTS_IMAGE,
      memoryMiB: 256,
      warmUp: {
        exec: [
          ...PREPARED,
          inBackground("curl", ["python3", "-c", PYTHON, "curl"]),
          inBackground("python", ["python3", "-c", PYTHON, "python"]),
          inBackground("numbers", [...IN_GROUP, "python3", "-c", PYTHON, "numbers"]),
        ],
        kernels: [],
      },
    },
    /** the slowest first: when it has printed, the others have too */
    logs: ["curl", "python", "numbers"],
  },
  node: {
    spec: { ...NODE_WARM, warmUp: { exec: [["node", "-e", NODE_STARTED]], kernels: [] } },
    logs: ["node"],
  },
};

type Line = { text: string; monotonic: bigint; wall: bigint; values: string[] };
/** Lines of one child, by program */
type Printed = Record<string, Line[]>;
/** The last line of a log that was begun before the snapshot: all children have it at this offset, in bytes */
type Mark = { offset: number; monotonic: bigint };
type Marks = Record<string, Mark>;

async function linesOf(child: Sandbox, log: string, offset = 0): Promise<Line[]> {
  const lines = (await child.files.read(`/run/${log}`, { offset })).toString().split("\n").slice(0, -1);
  return lines.map((text) => {
    const [monotonic = "", wall = "", ...values] = text.split(" ");
    return { text, monotonic: BigInt(monotonic), wall: BigInt(wall), values };
  });
}

function bytesOf(lines: Line[]): number {
  return lines.reduce((sum, { text }) => sum + text.length + 1, 0);
}

/** All lines of a running sandbox, when each log has some more than now. One of these may have been begun before */
async function nextLines(sandbox: Sandbox, logs: string[]): Promise<Printed> {
  const printed: Printed = {};
  for (const log of logs) {
    const before = await linesOf(sandbox, log);
    let more: Line[] = [];
    await until(async () => (more = await linesOf(sandbox, log, bytesOf(before))).length > LINES, POLL_MS);
    printed[log] = [...before, ...more];
  }
  return printed;
}

/** A line begins with the monotonic clock, which differs between children unless the line was begun before the snapshot */
function markOf(lines: Line[], others: Line[], log: string): Mark {
  const first = lines.findIndex(({ monotonic }, at) => monotonic !== others[at]?.monotonic);
  const last = lines[first - 1];
  assert.ok(last, `${log}: ${first < 0 ? "two children printed the same" : "nothing was printed before the snapshot"}`);
  return { offset: bytesOf(lines.slice(0, first - 1)), monotonic: last.monotonic };
}

/** The first lines that a child began after its fork, when it has printed so many */
async function firstLines(child: Sandbox, marks: Marks, count: number): Promise<Printed> {
  const printed: Printed = {};
  for (const [log, { offset, monotonic }] of Object.entries(marks)) {
    let lines: Line[] = [];
    await until(async () => (lines = await linesOf(child, log, offset)).length > count, POLL_MS);
    assert.equal(lines[0]?.monotonic, monotonic, `${log}: the lines before the snapshot differ`);
    printed[log] = lines.slice(1, count + 1);
  }
  return printed;
}

/** Forks children, ends each as soon as it has printed enough, and returns the first lines of each after its fork */
async function printedBy(
  vm: TestVm,
  snapshot: Snapshot,
  logs: string[],
  check: (child: Sandbox) => void,
  total: number = CHILDREN,
): Promise<Printed[]> {
  const finish = async (child: Sandbox, forkedAt: number, marks: Marks, count: number): Promise<Printed> => {
    try {
      check(child);
      const printed = await firstLines(child, marks, count);
      assertCurrent(child, printed, forkedAt);
      return printed;
    } catch (error) {
      throw child.exit ? new Error(JSON.stringify(child.exit), { cause: error }) : error;
    } finally {
      await child.kill();
    }
  };
  if (total >= CLONED) await vm.runtime.zygotes.make(snapshot);
  const firstAt = Date.now();
  const first = await vm.forkMany(Math.min(total, FIRST, Math.max(2, Math.floor(total / 2))), snapshot);
  const [a, b] = first;
  assert.ok(a && b, "a single child has none to compare it with");
  const [mine, theirs] = await Promise.all([nextLines(a, logs), nextLines(b, logs)]);
  const marks = Object.fromEntries(logs.map((log) => [log, markOf(mine[log] ?? [], theirs[log] ?? [], log)]));
  const printed = await Promise.all(first.map(async (child) => finish(child, firstAt, marks, LINES)));
  // The others are forked when the first have printed several lines each, which takes longer than one line: if a child
  // kept the snapshot's time, its first line would be from before its fork. In the first request it may be slow enough
  // to have a later time.
  await inParallel(Array.from({ length: total - first.length }), AT_ONCE, async () => {
    const forkedAt = Date.now();
    printed.push(await finish(await vm.fork(snapshot), forkedAt, marks, 1));
  });
  return printed;
}

/** No line has a time before the fork, or in the future */
function assertCurrent(child: Sandbox, printed: Printed, forkedAt: number): void {
  const latest = Date.now() + clockTolerance(child, forkedAt);
  for (const [log, lines] of Object.entries(printed)) {
    for (const { wall } of lines) {
      const ms = Number(wall / NS_PER_MS);
      assert.ok(ms >= forkedAt, `${log}: it was ${forkedAt - ms} ms before the fork`);
      assert.ok(ms <= latest, `${log}: it was ${ms - latest} ms after the present`);
    }
  }
}

function assertAllDistinct(lines: Line[], what: string): void {
  const seen = new Map<string, string>();
  for (const { text, values } of lines) {
    for (const item of values) {
      assert.equal(seen.get(item), undefined, `${what}: ${item} in two lines:\n${seen.get(item)}\n${text}`);
      seen.set(item, text);
    }
  }
}

for (const [language, { spec, logs }] of Object.entries(PROGRAMS)) {
  describe(`${CHILDREN} children of a snapshot with programs of ${language}`, () => {
    let vm: TestVm;

    before(async () => {
      if (spec.image === CLIENTS_IMAGE) await ensureClientsImage(await prepareHome(resolveHome()));
      vm = await startVm(`unique-${language}`, { spec });
    });
    after(async () => vm?.close());

    it("print nothing twice, from the first line on, and never the snapshot's time", async () => {
      const printed = await printedBy(vm, vm.snapshot, logs, ({ certificate }) => {
        assert.equal(certificate.ran_before_ms, 0);
        assert.deepEqual(certificate.not_reseeded, []);
      });
      assert.equal(printed.length, CHILDREN);
      for (const log of logs) {
        for (const lines of printed) assert.ok((lines[log]?.length ?? 0) > 0, `${log}: a child printed nothing`);
        assertAllDistinct(
          printed.flatMap((lines) => lines[log] ?? []),
          log,
        );
      }
    });
  });
}

describe("children of a branch", () => {
  let vm: TestVm;

  before(async () => {
    const { spec } = PROGRAMS.python;
    await ensureClientsImage(await prepareHome(resolveHome()));
    vm = await startVm("unique-branch", { spec });
  });
  after(async () => vm?.close());

  /** A sandbox whose programs do not rest */
  async function busySource(): Promise<Sandbox> {
    const source = await vm.fork();
    await source.files.write("/run/busy", "");
    return source;
  }

  it("differ from the first line on if processes were held for it, and the source continues", async () => {
    const source = await busySource();
    const { snapshot } = await vm.runtime.branch(source, { tag: `${vm.tag}-held`, hold: true });
    const logs = ["python", "numbers"];
    await nextLines(source, logs);
    await source.kill();
    const printed = await printedBy(vm, snapshot, logs, ({ certificate }) => assert.equal(certificate.ran_before_ms, 0), BRANCHED);
    for (const log of logs)
      assertAllDistinct(
        printed.flatMap((lines) => lines[log] ?? []),
        log,
      );
  });

  it("differ if processes were held while OpenSSL was reseeded", async () => {
    const source = await vm.fork();
    assert.equal((await source.exec(inBackground("reseeding", ["python3", "-c", RESEEDING]))).code, 0);
    const { snapshot } = await vm.runtime.branch(source, { tag: `${vm.tag}-reseeding`, hold: true });
    await source.kill();
    const printed = await printedBy(vm, snapshot, ["reseeding"], () => undefined, 2);
    assertAllDistinct(
      printed.flatMap(({ reseeding = [] }) => reseeding),
      "reseeding",
    );
  });

  it("differ after the time stated in their certificates", async () => {
    const source = await busySource();
    assert.equal(await sh(source, "cat /var/lib/dbus/machine-id"), source.certificate.identity.machine_id);
    assert.equal(await sh(source, `cat ${GROUP}/cgroup.freeze ${GROUP}/inner/cgroup.procs | wc -l`), "2");
    assert.equal(await sh(source, `cat ${GROUP}/cgroup.freeze`), "0");
    const { snapshot } = await vm.runtime.branch(source, `${vm.tag}-branch`);
    // scheduling policy of the agent; 0 is the default
    const policy = async (sandbox: Sandbox): Promise<string> => sh(sandbox, "cut -d ' ' -f 41 /proc/1/stat");
    await until(async () => (await policy(source)) === "0");
    const stoppedAt = snapshot.manifest.stoppedAtMs ?? assert.fail("the time of the source's pause is unknown");
    const lines: Line[] = [];
    for (const child of await vm.forkMany(BRANCHED, snapshot)) {
      const ranMs = child.certificate.ran_before_ms ?? assert.fail("the run time of programs is unknown");
      assert.ok(ranMs > 0, `${ranMs} ms`);
      const uniqueFrom = BigInt(Math.ceil((stoppedAt + ranMs) * 1e6));
      assert.equal(await policy(child), "0");
      const { numbers = [] } = await nextLines(child, ["numbers"]);
      lines.push(...numbers.filter(({ monotonic }) => monotonic >= uniqueFrom));
    }
    assert.ok(lines.length >= BRANCHED * LINES, `only ${lines.length} lines`);
    assertAllDistinct(lines, "numbers");
  });
});

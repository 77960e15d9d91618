// Children differ from their first instruction: programs do not run before clock and randomness are reset.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { prepareHome, resolveHome } from "@forkd/runtime";
import { rounds } from "../helpers/all.ts";
import { CLIENTS_IMAGE, ensureClientsImage } from "../helpers/clients-image.ts";
import { sh } from "../helpers/guest.ts";
import { until } from "../helpers/until.ts";
import { NODE_WARM, startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox, Snapshot } from "@forkd/runtime";

/** `UNIQUE_CHILDREN=1000 make test-e2e FILE=unique-from` */
const CHILDREN = Number(process.env["UNIQUE_CHILDREN"] ?? rounds(8, 40));
/** Children of one request and alive at a time; so many are cloned from a zygote, which is made first */
const AT_ONCE = 8;
/** Children of a branch */
const BRANCHED = 4;
/** Number of lines of a child that are checked after those it shares with its siblings */
const LINES = 2;
const NS_PER_MS = 1_000_000n;

/** Each program prints lines without an end: monotonic clock, wall clock, then values that must be unique */
const PYTHON = String.raw`
import hashlib, os, socket, ssl, subprocess, sys, threading, time, uuid

context = ssl.create_default_context()

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
with open("/run/" + sys.argv[1], "w", 1) as log:
    while True:
        print(time.monotonic_ns(), time.time_ns(), *values(), file=log)
        time.sleep(0.001)  # limits the size of the log
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
const fs = require("node:fs"), net = require("node:net"), tls = require("node:tls");
const log = fs.openSync("/run/node", "w");
let begun;
const server = net.createServer((connection) => {
  connection.on("error", () => undefined);
  connection.once("data", (hello) => {
    connection.destroy();
    const rest = createHash("sha256").update(hello.subarray(76)).digest("hex");
    fs.writeSync(log, [...begun, hello.toString("hex", 11, 43), hello.toString("hex", 44, 76), rest].join(" ") + "\n");
    setTimeout(next, 1);
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
    logs: ["numbers", "python", "curl"],
  },
  node: {
    spec: { ...NODE_WARM, warmUp: { exec: [["node", "-e", NODE_STARTED]], kernels: [] } },
    logs: ["node"],
  },
};

type Line = { text: string; monotonic: bigint; wall: bigint; values: string[] };
/** Output of one child, by program */
type Printed = Record<string, Line[]>;

async function linesOf(child: Sandbox, log: string): Promise<Line[]> {
  const lines = (await child.files.read(`/run/${log}`)).toString().split("\n").slice(0, -1);
  return lines.map((text) => {
    const [monotonic = "", wall = "", ...values] = text.split(" ");
    return { text, monotonic: BigInt(monotonic), wall: BigInt(wall), values };
  });
}

/** Bytes that the logs of all children begin with, by program: lines begun before the snapshot */
type Shared = ReadonlyMap<string, number>;

/** Waits until each program has printed some lines more than the shared ones, or than it has now */
async function listen(child: Sandbox, logs: string[], shared?: Shared): Promise<Printed> {
  const size = async (log: string): Promise<number> => (await child.files.stat(`/run/${log}`)).size;
  const printed: Printed = {};
  for (const log of logs) {
    const from = await size(log);
    const longest = Math.max(...(await linesOf(child, log)).map(({ text }) => text.length + 1));
    // without the shared bytes, one line more: one may have been begun before
    const enough = shared?.has(log) ? (shared.get(log) ?? 0) + LINES * longest : from + (LINES + 1) * longest;
    await until(async () => (await size(log)) >= enough);
    printed[log] = await linesOf(child, log);
  }
  return printed;
}

/** Forks children, a few at a time, ends each as soon as it has printed enough, and returns the output of each after its fork */
async function printedBy(
  vm: TestVm,
  snapshot: Snapshot,
  logs: string[],
  check: (child: Sandbox) => void,
  total: number = CHILDREN,
): Promise<Printed[]> {
  let first: Printed | undefined;
  let shared: Shared | undefined;
  const own: Printed[] = [];
  const ownPart = (printed: Printed, other: Printed, forkedAt: bigint): Printed => {
    const parts: Printed = {};
    for (const log of logs) {
      const lines = printed[log] ?? [];
      // A line begins with the monotonic clock, which differs between children unless the line was begun before the
      // snapshot
      const at = lines.findIndex(({ monotonic }, i) => monotonic !== other[log]?.[i]?.monotonic);
      assert.ok(at >= 0, `${log}: two children printed the same`);
      parts[log] = lines.slice(at, at + LINES);
      for (const { wall } of parts[log]) assert.ok(wall >= forkedAt, `${log}: it was ${forkedAt - wall} ns before the fork`);
    }
    return parts;
  };
  if (total >= AT_ONCE) await vm.runtime.zygotes.make(snapshot);
  while (own.length < total) {
    const forkedAt = BigInt(Date.now()) * NS_PER_MS;
    const children = await vm.forkMany(Math.min(AT_ONCE, total - own.length), snapshot);
    const printed = await Promise.all(
      children.map(async (child) => {
        check(child);
        try {
          return await listen(child, logs, shared);
        } catch (error) {
          throw child.exit ? new Error(JSON.stringify(child.exit), { cause: error }) : error;
        } finally {
          await child.kill();
        }
      }),
    );
    const [a, b = first] = printed;
    assert.ok(a && b, "a single child has none to compare it with");
    const other = first ?? b;
    own.push(...printed.map((one) => ownPart(one, one === other ? a : other, forkedAt)));
    first ??= a;
    shared ??= new Map(logs.map((log) => [log, bytesBefore(a[log] ?? [], own[0]?.[log]?.[0])]));
  }
  return own;
}

function bytesBefore(lines: Line[], first: Line | undefined): number {
  return lines.slice(0, first && lines.indexOf(first)).reduce((sum, { text }) => sum + text.length + 1, 0);
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

  it("differ from the first line on if processes were held for it, and the source continues", async () => {
    const source = await vm.fork();
    const { snapshot } = await vm.runtime.branch(source, { tag: `${vm.tag}-held`, hold: true });
    const logs = ["numbers", "python"];
    await listen(source, logs);
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
    const source = await vm.fork();
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
      const { numbers = [] } = await listen(child, ["numbers"]);
      lines.push(...numbers.filter(({ monotonic }) => monotonic >= uniqueFrom));
    }
    assert.ok(lines.length >= BRANCHED * LINES, `only ${lines.length} lines`);
    assertAllDistinct(lines, "numbers");
  });
});

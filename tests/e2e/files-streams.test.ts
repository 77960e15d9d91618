// Streamed files: watches, archives, full disks, disconnecting clients, and the daemon's memory use.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { FileError, Sandbox, type FileEvent, type FileWatch } from "forkd";
import { rounds } from "../helpers/all.ts";
import { sha256 } from "../helpers/guest.ts";
import { FileGuest, refuses } from "../helpers/file-guest.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
/** Debounce interval: many times the duration of a test's commands, so that their changes arrive in one batch */
const GATHERED_MS = Math.min(60_000, patience(0.3));
const LARGE_MIB = rounds(50, 100);
const CHUNK = Buffer.alloc(256 * 1024, "x");

/** Yields `count` MiB; Infinity: without an end */
async function* mebibytes(count: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count * 4; i++) yield CHUNK;
}

/** An archive with one file that never ends */
async function* endlessArchive(): AsyncGenerator<Uint8Array> {
  const header = Buffer.alloc(512);
  header.write("endless");
  header.write(`0000644\0${"0000000\0".repeat(2)}77777777777\0${"0".repeat(11)}\0${" ".repeat(8)}0`, 100);
  header.write("ustar\x0000", 257, "latin1");
  const sum = header.reduce((all, byte) => all + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  yield header;
  yield* mebibytes(Infinity);
}

describe("streams of files", () => {
  let guest: FileGuest;
  let here: string;

  before(async () => {
    guest = await FileGuest.start();
    here = await mkdtemp(join(tmpdir(), "forkd-test-files-"));
  });
  after(async () => {
    await rm(here, { recursive: true });
    await guest[Symbol.asyncDispose]();
  });

  describe("a watch", () => {
    /** Changes up to the one at this path */
    async function changesTo(watch: FileWatch, last: string): Promise<FileEvent[]> {
      const changes: FileEvent[] = [];
      // without `for await`, which ends the watch: a test may continue with it
      const events = watch[Symbol.asyncIterator]();
      for (let next = await events.next(); next.done !== true; next = await events.next()) {
        changes.push(next.value);
        if (next.value.path === last) return changes;
      }
      return assert.fail(`it ended after ${JSON.stringify(changes)}`);
    }

    const shown = (changes: FileEvent[]): string[] =>
      changes.map(({ type, path, from }) => `${type} ${from === undefined ? "" : `${from} `}${path}`.replaceAll("/srv/w/", ""));

    it("reports creations, changes, moves and removals, also below new folders", async () => {
      await guest.sh("mkdir -p /srv/w/old");
      // one batch contains no duplicates
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: GATHERED_MS });
      await guest.sh("cd /srv/w; mkdir -p a/b; echo 1 > a/b/f; touch made");
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/made")), [
        "created a",
        "created a/b",
        "created a/b/f",
        "modified a/b/f",
        "created made",
      ]);
      await guest.sh("cd /srv/w; rm made; mv a c; echo 2 >> c/b/f; chmod 600 c/b/f; mv old/../c/b/f old/g; rm -r c; touch end");
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/end")), [
        "attributes made",
        "removed made",
        "moved a c",
        "modified c/b/f",
        "attributes c/b/f",
        "moved c/b/f old/g",
        "removed c/b",
        "removed c",
        "created end",
      ]);
      await watch.close();
    });

    it("reports a burst once per path, and nothing below unless recursive", async () => {
      await guest.sh("rm -rf /srv/w; mkdir -p /srv/w/below");
      const watch = await guest.files.watch("/srv/w", { debounceMs: 300 });
      await guest.py(`
for i in range(200):
    open(f'/srv/w/f{i}', 'w').close()
for n in range(50):
    open('/srv/w/f0', 'a').write('x')
    open('/srv/w/below/f', 'a').write('x')
for i in range(200):
    os.rename(f'/srv/w/f{i}', f'/srv/w/g{i}')
for i in range(200):
    os.remove(f'/srv/w/g{i}')
open('/srv/w/end', 'w').close()`);
      const changes = await changesTo(watch, "/srv/w/end");
      const count = (type: string): number => changes.filter((change) => change.type === type).length;
      assert.deepEqual([count("created"), count("moved"), count("removed")], [201, 200, 200]);
      assert.ok(count("modified") <= 200 && changes.every(({ path }) => !path?.includes("below/")));
      await watch.close();
    });

    it("reports a move across its boundary as a removal or a creation", async () => {
      await guest.sh("rm -rf /srv/w /srv/out; mkdir -p /srv/w/dir/in /srv/out/new/in; touch /srv/out/new/in/f");
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: GATHERED_MS });
      await guest.sh(
        "mv /srv/w/dir /srv/out/dir; touch /srv/out/dir/in/unseen; mv /srv/out/new /srv/w/new; touch /srv/w/new/in/g /srv/w/end",
      );
      const changes = shown(await changesTo(watch, "/srv/w/end"));
      // `attributes` is reported only for a change after the folder was found; the order inside it is that of its entries
      assert.deepEqual(changes.slice(0, 3), ["removed dir", "created new", "created new/in"]);
      const inside = changes.slice(3, -1).filter((change) => change !== "attributes new/in/g");
      assert.deepEqual(inside.toSorted(), ["created new/in/f", "created new/in/g"]);
      assert.equal(changes.at(-1), "created end");
      // found by now: each change is reported, in order
      await guest.sh("touch /srv/w/new/in/h; chmod 600 /srv/w/new/in/f; rm /srv/w/end");
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/end")), ["attributes end"]);
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/end")), [
        "created new/in/h",
        "attributes new/in/h",
        "attributes new/in/f",
        "removed end",
      ]);
      await watch.close();
    });

    it("reports the creation and the write of a file, at any interval between them", async () => {
      await guest.sh("rm -rf /srv/w; mkdir /srv/w");
      for (const debounceMs of [0, 50]) {
        const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs });
        await guest.py(`
for i in range(30):
    os.makedirs(f'/srv/w/d{i}/e')
    open(f'/srv/w/d{i}/e/f', 'w').write('content')
open('/srv/w/end', 'w').close()`);
        const changes = shown(await changesTo(watch, "/srv/w/end"));
        for (let i = 0; i < 30; i++) {
          assert.equal(changes.filter((change) => change === `created d${i}/e/f`).length, 1, `d${i}: ${changes.join(", ")}`);
          assert.ok(changes.includes(`modified d${i}/e/f`), `d${i}: ${changes.join(", ")}`);
        }
        await watch.close();
        await guest.sh("rm -rf /srv/w/*");
      }
    });

    it("ends when the watched folder is removed", async () => {
      await guest.sh("mkdir /srv/gone");
      const watch = await guest.files.watch("/srv/gone");
      await guest.sh("rmdir /srv/gone");
      assert.deepEqual(await Array.fromAsync(watch), [{ type: "removed", path: "/srv/gone", directory: true }]);
    });

    it("reports lost changes, and continues", async () => {
      await guest.sh("rm -rf /srv/w; mkdir /srv/w; echo 16 > /proc/sys/fs/inotify/max_queued_events");
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: 0 });
      // nothing reads during the changes, so the buffer overflows
      await guest.tools(); // defines comm()
      await guest.py(`
import signal
tools = [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and pid != '1' and comm(pid) == comm(1)]
for pid in tools: os.kill(pid, signal.SIGSTOP)
for i in range(100):
    open(f'/srv/w/f{i}', 'w').close()
os.makedirs('/srv/w/new/folder')
for pid in tools: os.kill(pid, signal.SIGCONT)`);
      const seen = new Set<string>();
      for await (const { type } of watch) {
        seen.add(type);
        if (type === "overflow") break;
      }
      assert.ok(seen.has("overflow"));
      await watch.close();
      await guest.sh("echo 16384 > /proc/sys/fs/inotify/max_queued_events");
    });

    it("continues beside many others, and none remains", async () => {
      await guest.sh("rm -rf /srv/w; mkdir /srv/w");
      const watches = await Promise.all(Array.from({ length: 10 }, async () => guest.files.watch("/srv/w")));
      assert.equal(await guest.tools(), 10);
      await guest.sh("touch /srv/w/end");
      for (const watch of watches) assert.equal((await changesTo(watch, "/srv/w/end")).length, 1);
      for (const watch of watches) await watch.close();
      await until(async () => (await guest.tools()) === 0);
    });
  });

  it("a full disk is reported, and no incomplete file remains", async () => {
    const { files } = guest;
    await guest.sh("mkdir -p /srv/small /srv/big; mount -t tmpfs -o size=2M tmpfs /srv/small; head -c 3000000 /dev/zero > /srv/big/f");
    const archive = Buffer.concat(await Array.fromAsync(files.downloadTar("/srv/big")));
    await files.write("/srv/small/kept", "kept");
    for (const work of [
      () => files.write("/srv/small/file", mebibytes(8)),
      () => files.write("/srv/small/kept", mebibytes(8)),
      () => files.copy("/srv/big", "/srv/small/copy", { recursive: true }),
      () => files.move("/srv/big/f", "/srv/small/moved"),
      () => files.uploadTar("/srv/small/new", archive),
      () => files.uploadTar("/srv/small", archive),
    ])
      await refuses(work(), "FILE_NO_SPACE", "ENOSPC");
    assert.equal(await guest.sh("ls -A /srv/small; cat /srv/small/kept; ls /srv/big; umount /srv/small"), "kept\nkeptf");
    await assert.rejects(files.write("/srv/small/x", "x", { user: "nobody" }), FileError);
  });

  it("a client that disconnects in the middle leaves nothing in the guest, and uses no daemon memory", async () => {
    const { files } = guest;
    await guest.sh("mkdir -p /srv/left /srv/source; head -c 20000000 /dev/zero > /srv/source/f; mkfifo /srv/left/pipe");
    const leave = async (begin: (signal: AbortSignal) => Promise<unknown>, isUnderWay: () => Promise<boolean>): Promise<void> => {
      const client = new AbortController();
      const work = begin(client.signal);
      work.catch(() => undefined);
      await until(isUnderWay);
      client.abort(new Error("left"));
      await assert.rejects(work, /left/);
    };
    const exists = async (script: string): Promise<boolean> => (await guest.sh(script)) !== "";
    const round = async (): Promise<void> => {
      await leave(
        async (signal) => files.write("/srv/left/upload", mebibytes(Infinity), { signal, mode: "600" }),
        async () => exists("find /srv/left -name '.forkd-*' -size +1M"),
      );
      await leave(
        async (signal) => files.uploadTar("/srv/left/tree", endlessArchive(), { signal }),
        async () => exists("find /srv/left -name endless -size +1M"),
      );
      await firstOf(files.downloadTar("/srv/source"));
      await firstOf(files.readStream("/srv/source/f"));
      await leave(
        async (signal) => files.read("/srv/left/pipe", { signal }),
        async () => true,
      );
      (await files.watch("/srv/left", { recursive: true })).close().catch(() => undefined);
      await until(async () => (await guest.tools()) === 0);
      await until(async () => (await guest.sh("ls -A /srv/left")) === "pipe");
    };
    await round();
    const before = await daemonMemory();
    for (let i = 0; i < rounds(3, 5); i++) await round();
    const grown = ((await daemonMemory()).bytes - before.bytes) / MIB;
    assert.ok(grown < 24, `${grown} MiB`);
  });

  it("large transfers both ways use little daemon memory, with evals in between", async (t) => {
    const { files } = guest;
    const resetPeak = async (): Promise<void> => writeFileSync(`/proc/${(await guest.daemon.controller.status()).pid}/clear_refs`, "5");
    await resetPeak();
    const before = await daemonMemory();
    const asking = new Asking(guest);
    const { bytes } = await files.write("/srv/large", mebibytes(LARGE_MIB));
    let read = 0;
    for await (const chunk of files.readStream("/srv/large")) read += chunk.length;
    for await (const chunk of files.downloadTar("/srv/large")) read += chunk.length;
    const answered = await asking.end();
    assert.deepEqual([bytes, read], [LARGE_MIB * MIB, 2 * LARGE_MIB * MIB + 512 + 1024]);
    assert.ok(answered > 3, `${answered} evals were answered meanwhile`);
    const grown = ((await daemonMemory()).peakBytes - before.bytes) / MIB;
    t.diagnostic(`${grown} MiB`);
    // The time of garbage collection depends on the machine's load. A daemon that buffered the file would grow by three
    // times its size
    assert.ok(grown <= 64, `${grown} MiB`);
    await files.remove("/srv/large");
  });

  it("a long list and a long archive do not block evals", async () => {
    await guest.py(`
os.makedirs('/srv/wide')
for i in range(${rounds(3000, 8000)}):
    open(f'/srv/wide/{i}', 'w').close()`);
    const { controller, id } = guest.sandbox;
    const asking = new Asking(guest);
    await Promise.all([controller.listFiles(id, "/", { depth: 3 }), Array.fromAsync(guest.files.downloadTar("/srv/wide"))]);
    assert.ok((await asking.end()) > 0);
    await guest.files.remove("/srv/wide", { recursive: true });
  });

  it("a branch contains no running tool", async () => {
    await guest.sh("mkdir -p /srv/w");
    const watch = await guest.files.watch("/srv/w");
    await guest.daemon.controller.branchSandbox(guest.sandbox.id, { tag: "watched" });
    const child = await Sandbox.create("watched", { controller: guest.daemon.controller });
    const agents = `sum(open(f'/proc/{p}/comm').read() == open('/proc/1/comm').read() for p in os.listdir('/proc') if p.isdigit())`;
    await until(async () => (await child.eval(agents)).value === 1);
    assert.equal(await guest.tools(), 1);
    await watch.close();
    await child.kill();
    await guest.daemon.controller.deleteSnapshot("watched");
  });

  describe("forkd cp -r", () => {
    const id = (): string => guest.sandbox.id;

    it("copies a tree in and out unchanged", async () => {
      const tree = join(here, "tree");
      await mkdir(join(tree, "a folder", "empty"), { recursive: true });
      for (const name of ["line\nend", "-rf", "ü".repeat(127), "a folder/plain"]) await writeFile(join(tree, name), randomBytes(5000));
      await writeFile(join(tree, "large"), randomBytes(3 * MIB), { mode: 0o640 });
      await symlink("large", join(tree, "link"));
      await symlink("/nowhere", join(tree, "away"));
      const into = await guest.daemon.cli(["cp", "-r", tree, `${id()}:/srv/copied`]);
      assert.equal(into.code, 0, into.stderr);
      assert.equal(await guest.sh("stat -c '%U %a' /srv/copied/large; readlink /srv/copied/away"), "root 640\n/nowhere");
      const below = await guest.daemon.cli(["cp", "-r", tree, `${id()}:/srv/copied`, "--user", "root"]);
      assert.equal(below.code, 0, below.stderr);
      assert.equal(
        await guest.sh("diff -r --no-dereference /srv/copied/tree /srv/copied | grep -v '^Only in /srv/copied: tree$' || true"),
        "",
      );
      await guest.sh("mkfifo /srv/copied/tree/pipe; chmod 4640 /srv/copied/tree/large");
      const out = await guest.daemon.cli(["cp", "-r", `${id()}:/srv/copied/tree`, join(here, "back"), "--json"]);
      assert.equal(out.code, 0, out.stderr);
      assert.deepEqual(await contentOf(join(here, "back")), await contentOf(tree));
    });

    it("as a user reads and writes only with that user's rights", async () => {
      await guest.sh(
        "mkdir -p /srv/mixed; echo 1 > /srv/mixed/open; echo 2 > /srv/mixed/shut; chmod 600 /srv/mixed/shut; mkdir -m 777 /srv/free",
      );
      const denied = await guest.daemon.cli(["cp", "-r", `${id()}:/srv/mixed`, join(here, "mixed"), "--user", "daemon"]);
      assert.equal(denied.code, 1);
      assert.match(denied.stderr, /Cannot pack "\/srv\/mixed" in the guest: \/srv\/mixed\/shut: Permission denied\.\n.*\[FILE_DENIED\]/);
      const into = await guest.daemon.cli(["cp", "-r", join(here, "tree"), `${id()}:/srv/free`, "--user", "daemon"]);
      assert.equal(into.code, 0, into.stderr);
      assert.equal(await guest.sh("find /srv/free/tree ! -user daemon"), "");
      assert.deepEqual((await readdir(here)).toSorted(), ["back", "tree"]);
    });
  });

  it("no tool or temporary file remains", async () => {
    await until(async () => (await guest.tools()) === 0);
    assert.equal(await guest.halfMade(), "");
  });

  async function daemonMemory(): Promise<ReturnType<typeof residentMemory>> {
    return residentMemory((await guest.daemon.controller.status()).pid);
  }
});

/** Runs evals in sequence while another operation is in progress */
class Asking {
  readonly #asking: Promise<void>;
  #isOver = false;
  #answered = 0;

  constructor(guest: FileGuest) {
    this.#asking = this.#ask(guest);
  }

  /** Stops, and returns the number of answers so far */
  async end(): Promise<number> {
    const answered = this.#answered;
    this.#isOver = true;
    await this.#asking;
    return answered;
  }

  async #ask(guest: FileGuest): Promise<void> {
    while (!this.#isOver) {
      assert.equal(await guest.py("40 + 2"), 42);
      this.#answered++;
    }
  }
}

async function firstOf(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const iterator = chunks[Symbol.asyncIterator]();
  await iterator.next();
  await iterator.return?.();
}

/** Names, types, modes and content of a tree */
async function contentOf(folder: string): Promise<Record<string, unknown>> {
  const { lstat, readlink } = await import("node:fs/promises");
  const all: Record<string, unknown> = {};
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    const mode = ((await lstat(path)).mode & 0o7777).toString(8);
    const content = entry.isSymbolicLink() ? await readlink(path) : entry.isFile() ? sha256(await readFile(path)) : null;
    all[path.slice(folder.length)] = [mode, content];
  }
  return all;
}

// Files that come and go bit by bit: watches, archives, full disks, clients that leave, and what all of it costs the daemon.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { FileError, Sandbox, type FileEvent, type FileWatch } from "forkd";
import { sha256 } from "../helpers/guest.ts";
import { FileGuest, refuses } from "../helpers/file-guest.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
const CHUNK = Buffer.alloc(256 * 1024, "x");

/** So many MiB, or without end */
async function* mebibytes(count: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count * 4; i++) yield CHUNK;
}

/** An archive whose one file never ends */
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
    /** The changes up to the one at this path */
    async function changesTo(watch: FileWatch, last: string): Promise<FileEvent[]> {
      const changes: FileEvent[] = [];
      for await (const change of watch) {
        changes.push(change);
        if (change.path === last) return changes;
      }
      return assert.fail(`it ended after ${JSON.stringify(changes)}`);
    }

    const shown = (changes: FileEvent[]): string[] =>
      changes.map(({ type, path, from }) => `${type} ${from === undefined ? "" : `${from} `}${path}`.replaceAll("/srv/w/", ""));

    it("tells what is made, changed, moved and removed, below new folders too", async () => {
      await guest.sh("mkdir -p /srv/w/old");
      // long enough for all of it: what is told in one go is told without repetition
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: 3000 });
      await guest.sh(
        "cd /srv/w; mkdir -p a/b; echo 1 > a/b/f; mv a c; echo 2 >> c/b/f; chmod 600 c/b/f; mv old/../c/b/f old/g; rm -r c; touch end",
      );
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/end")), [
        "created a",
        "created a/b",
        "created a/b/f",
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

    it("tells a burst once for each, and nothing of what is below unless asked", async () => {
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

    it("knows what left and what came", async () => {
      await guest.sh("rm -rf /srv/w /srv/out; mkdir -p /srv/w/dir/in /srv/out/new/in; touch /srv/out/new/in/f");
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: 3000 });
      await guest.sh(
        "mv /srv/w/dir /srv/out/dir; touch /srv/out/dir/in/unseen; mv /srv/out/new /srv/w/new; touch /srv/w/new/in/g /srv/w/end",
      );
      assert.deepEqual(shown(await changesTo(watch, "/srv/w/end")), [
        "removed dir",
        "created new",
        "created new/in",
        "created new/in/f",
        "created new/in/g",
        "created end",
      ]);
      await watch.close();
    });

    it("ends when what it watches is gone", async () => {
      await guest.sh("mkdir /srv/gone");
      const watch = await guest.files.watch("/srv/gone");
      await guest.sh("rmdir /srv/gone");
      assert.deepEqual(await Array.fromAsync(watch), [{ type: "removed", path: "/srv/gone", directory: true }]);
    });

    it("says when changes were lost, and goes on", async () => {
      await guest.sh("rm -rf /srv/w; mkdir /srv/w; echo 16 > /proc/sys/fs/inotify/max_queued_events");
      const watch = await guest.files.watch("/srv/w", { recursive: true, debounceMs: 0 });
      await guest.py(`
for i in range(3000):
    open(f'/srv/w/f{i}', 'w').close()
os.makedirs('/srv/w/new/folder')`);
      const seen = new Set<string>();
      for await (const { type } of watch) {
        seen.add(type);
        if (type === "overflow") break;
      }
      assert.ok(seen.has("overflow"));
      await watch.close();
      await guest.sh("echo 16384 > /proc/sys/fs/inotify/max_queued_events");
    });

    it("of many at once go on beside each other, and none is left", async () => {
      await guest.sh("rm -rf /srv/w; mkdir /srv/w");
      const watches = await Promise.all(Array.from({ length: 10 }, async () => guest.files.watch("/srv/w")));
      assert.equal(await guest.tools(), 10);
      await guest.sh("touch /srv/w/end");
      for (const watch of watches) assert.equal((await changesTo(watch, "/srv/w/end")).length, 1);
      for (const watch of watches) await watch.close();
      await until(async () => (await guest.tools()) === 0);
    });
  });

  it("a full disk is said, and nothing half-made is left", async () => {
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

  it("a client that leaves in the middle leaves nothing in the guest, and takes no memory of the daemon", async () => {
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
    for (let i = 0; i < 5; i++) await round();
    const grown = ((await daemonMemory()).now - before.now) / MIB;
    assert.ok(grown < 24, `${grown} MiB`);
  });

  it("100 MB go up and down in little memory of the daemon, with evals in between", async (t) => {
    const { files } = guest;
    const resetPeak = async (): Promise<void> => writeFileSync(`/proc/${(await guest.daemon.controller.status()).pid}/clear_refs`, "5");
    await resetPeak();
    const before = await daemonMemory();
    const asking = new Asking(guest);
    const { bytes } = await files.write("/srv/large", mebibytes(100));
    let read = 0;
    for await (const chunk of files.readStream("/srv/large")) read += chunk.length;
    for await (const chunk of files.downloadTar("/srv/large")) read += chunk.length;
    const answered = await asking.end();
    assert.deepEqual([bytes, read], [100 * MIB, 200 * MIB + 512 + 1024]);
    assert.ok(answered > 3, `${answered} evals were answered meanwhile`);
    const grown = ((await daemonMemory()).peak - before.now) / MIB;
    t.diagnostic(`${grown} MiB`);
    // when garbage is collected depends on the machine's load; a daemon that kept what passes through would have grown by 300
    assert.ok(grown <= 64, `${grown} MiB`);
    await files.remove("/srv/large");
  });

  it("a long list and a long archive do not hold up evals", async () => {
    await guest.py(`
os.makedirs('/srv/wide')
for i in range(8000):
    open(f'/srv/wide/{i}', 'w').close()`);
    const { controller, id } = guest.sandbox;
    const asking = new Asking(guest);
    await Promise.all([controller.listFiles(id, "/", { depth: 3 }), Array.fromAsync(guest.files.downloadTar("/srv/wide"))]);
    assert.ok((await asking.end()) > 0);
    await guest.files.remove("/srv/wide", { recursive: true });
  });

  it("a branch takes no tool along", async () => {
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

    it("takes a tree in and out again, unchanged", async () => {
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

    it("as a user takes and makes only what is theirs", async () => {
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

  it("nothing is left of all this", async () => {
    await until(async () => (await guest.tools()) === 0);
    assert.equal(await guest.halfMade(), "");
  });

  /** Of the daemon's process, in bytes: what it has, and the most it had */
  async function daemonMemory(): Promise<{ now: number; peak: number }> {
    const status = readFileSync(`/proc/${(await guest.daemon.controller.status()).pid}/status`, "utf8");
    const kib = (name: string): number => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1024;
    return { now: kib("VmRSS"), peak: kib("VmHWM") };
  }
});

/** Evals one after the other, for as long as something else is under way */
class Asking {
  readonly #asking: Promise<void>;
  #isOver = false;
  #answered = 0;

  constructor(guest: FileGuest) {
    this.#asking = this.#ask(guest);
  }

  /** How many were answered before the end */
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

/** Names, kinds, modes and content of a tree */
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

// The guest's view of a host folder, and every attempt to escape from it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { chmod, mkdir, readdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { constants as os } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { until } from "../../../../tests/helpers/until.ts";
import { Errno, type Entry } from "../../src/share/record.ts";
import { LARGEST_READ, ShareTree } from "../../src/share/tree.ts";
import { tempDir } from "../image/helpers/temp-home.ts";
import type { Hidden } from "../../src/share/hidden.ts";

const run = promisify(execFile);
const NOTHING: Hidden = [];
const ANY = { inode: 0n, offset: 0n, size: LARGEST_READ };

type Fixture = { tree: ShareTree; root: string; outside: string };

/** A share, and a folder with a secret beside it */
async function fixture(t: TestContext, hidden: Hidden = NOTHING): Promise<Fixture> {
  const dir = await tempDir(t);
  const [root, outside] = [join(dir, "root"), join(dir, "outside")];
  await mkdir(join(root, "sub", "deep"), { recursive: true });
  await mkdir(outside);
  await writeFile(join(root, "file"), "content");
  await writeFile(join(root, "sub", "deep", "file"), "deep content");
  await writeFile(join(outside, "file"), "SECRET");
  const tree = new ShareTree(root, hidden);
  t.after(() => tree.close());
  return { tree, root, outside };
}

const bytes = (path: string): Buffer => Buffer.from(path);
const text = async (tree: ShareTree, path: string): Promise<string> => (await tree.read(bytes(path), ANY)).toString();

async function all(tree: ShareTree, path: string, size = 1 << 20): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let from = 0; ;) {
    const part = await tree.list(bytes(path), BigInt(from), size);
    entries.push(...part.entries);
    if (part.complete) return entries;
    from = part.entries.at(-1)?.next ?? assert.fail("a part without an entry is not the last one");
  }
}

const namesOf = (entries: Entry[]): string[] => entries.map(({ name }) => name.toString()).toSorted();

function codeOf(error: NodeJS.ErrnoException): string {
  return error.code ?? error.message;
}

async function fails(work: Promise<unknown>, ...names: (keyof typeof os.errno)[]): Promise<void> {
  await assert.rejects(work, (error: NodeJS.ErrnoException) => {
    const errno = error instanceof Errno ? error.errno : -(error.errno ?? 0);
    assert.ok(
      names.some((name) => os.errno[name] === errno),
      `${error.message} is none of ${names.join(", ")}`,
    );
    return true;
  });
}

test("shows files, folders and links with their attributes", async (t) => {
  const { tree, root } = await fixture(t);
  await symlink("file", join(root, "link"));
  await chmod(join(root, "file"), 0o4751);
  await utimes(join(root, "file"), 1, 2);
  const found = await tree.stat(bytes("file"));
  const real = await stat(join(root, "file"), { bigint: true });
  assert.equal(found.mode, constants.S_IFREG | 0o751);
  assert.deepEqual([found.size, found.inode, found.accessed, found.modified], [7n, real.ino, 1_000_000_000n, 2_000_000_000n]);
  assert.equal((await tree.stat(bytes(""))).mode & constants.S_IFMT, constants.S_IFDIR);
  assert.equal((await tree.stat(bytes("link"))).mode & constants.S_IFMT, constants.S_IFLNK);
  assert.equal(String(await tree.readLink(bytes("link"))), "file");
  assert.deepEqual(namesOf(await all(tree, "")), ["file", "link", "sub"]);
  assert.equal(await text(tree, "sub/deep/file"), "deep content");
  assert.deepEqual(String(await tree.read(bytes("file"), { inode: found.inode, offset: 3n, size: 2 })), "te");
});

test("no path leads upwards", async (t) => {
  const { tree } = await fixture(t);
  const paths = [
    "..",
    ".",
    "/",
    "//",
    "/file",
    "sub/",
    "sub//deep",
    "../outside/file",
    "sub/../../outside/file",
    "sub/./deep",
    "sub/..",
    "a\0b",
  ];
  for (const path of [...paths, `${"../".repeat(40)}etc/passwd`, "/etc/passwd"])
    for (const work of [tree.stat(bytes(path)), tree.read(bytes(path), ANY), tree.readLink(bytes(path)), tree.list(bytes(path), 0n, 4096)])
      await fails(work, "EINVAL");
  await fails(tree.stat(bytes("x".repeat(256))), "ENAMETOOLONG");
  await fails(tree.stat(bytes("none/of/this")), "ENOENT");
  await fails(tree.stat(bytes("file/below")), "ENOTDIR");
});

test("no link is followed, at any position of a path", async (t) => {
  const { tree, root, outside } = await fixture(t);
  await symlink(outside, join(root, "out"));
  await symlink(join(outside, "file"), join(root, "secret"));
  await symlink("../outside", join(root, "relative"));
  await symlink("sub", join(root, "inside"));
  await symlink("/proc/self/fd", join(root, "fd"));
  for (const link of ["out", "relative", "inside", "fd"]) {
    await fails(tree.list(bytes(link), 0n, 4096), "ENOTDIR", "ELOOP");
    await fails(tree.stat(bytes(`${link}/file`)), "ENOTDIR", "ELOOP");
    await fails(tree.read(bytes(`${link}/file`), ANY), "ENOTDIR", "ELOOP");
    await fails(tree.readLink(bytes(`${link}/file`)), "ENOTDIR", "ELOOP");
  }
  await fails(tree.read(bytes("secret"), ANY), "EINVAL");
  assert.equal(String(await tree.readLink(bytes("secret"))), join(outside, "file"));
});

test("a share whose own folder has become a link shows nothing", async (t) => {
  const { tree, root, outside } = await fixture(t);
  await rename(root, `${root}-moved`);
  await symlink(outside, root);
  await fails(tree.stat(bytes("")), "ENOTDIR", "ELOOP");
  await fails(tree.read(bytes("file"), ANY), "ENOTDIR", "ELOOP");
});

test("a folder that is alternately a link never shows the link's target", async (t) => {
  const { root, outside } = await fixture(t);
  const [real, link, place] = [join(root, "real"), join(root, "link"), join(root, "place")];
  await mkdir(real);
  await writeFile(join(real, "file"), "harmless");
  await symlink(outside, link);
  const stop = new AbortController();
  const swap = async (): Promise<void> => {
    while (!stop.signal.aborted)
      for (const one of [real, link]) {
        await rename(one, place);
        await rename(place, one);
      }
  };
  const swapped = swap();
  const naive = new Set<string>();
  const seen = new Set<string>();
  for (let i = 0; i < 5000 && (i < 300 || !naive.has("SECRET") || !seen.has("harmless")); i++) {
    naive.add(await readFile(join(place, "file"), "utf8").catch(codeOf));
    // a new tree each time: open handles are not resolved again
    const tree = new ShareTree(root, NOTHING);
    seen.add(await text(tree, "place/file").catch(codeOf));
    seen.add(await all(tree, "place").then((entries) => namesOf(entries).join(), codeOf));
    tree.close();
  }
  stop.abort();
  await swapped;
  assert.ok(naive.has("SECRET") && seen.has("harmless"), "the race was run");
  assert.deepEqual(
    [...seen].filter((what) => !["harmless", "file", "", "ENOENT", "ENOTDIR", "ELOOP"].includes(what)),
    [],
  );
});

test("devices, sockets and FIFOs are hidden, and never opened", async (t) => {
  const { tree, root } = await fixture(t);
  await run("mkfifo", [join(root, "fifo")]);
  const server = createServer().listen(join(root, "socket"));
  t.after(() => server.close());
  if (process.getuid?.() === 0) await run("mknod", [join(root, "null"), "c", "1", "3"]);
  for (const name of ["fifo", "socket", "null"]) {
    await fails(tree.stat(bytes(name)), "ENOENT");
    // opening a FIFO would block
    await fails(tree.read(bytes(name), ANY), "EINVAL", "ENOENT");
    await fails(tree.list(bytes(name), 0n, 4096), "ENOTDIR", "ENOENT");
  }
  assert.deepEqual(namesOf(await all(tree, "")), ["file", "sub"]);
});

test("hidden folders cannot be reached by any path", async (t) => {
  const dir = await tempDir(t);
  await mkdir(join(dir, "sub", "home", "tokens"), { recursive: true });
  await writeFile(join(dir, "sub", "home", "state.db"), "SECRET");
  const { dev, ino } = await stat(join(dir, "sub", "home"), { bigint: true });
  const tree = new ShareTree(dir, [{ dev, ino }]);
  t.after(() => tree.close());
  assert.deepEqual(namesOf(await all(tree, "sub")), []);
  await fails(tree.stat(bytes("sub/home")), "ENOENT");
  await fails(tree.list(bytes("sub/home"), 0n, 4096), "ENOENT");
  await fails(tree.read(bytes("sub/home/state.db"), ANY), "ENOENT");
  await fails(tree.list(bytes("sub/home/tokens"), 0n, 4096), "ENOENT");
});

test("special file systems such as /proc cannot be entered or read, and a tmpfs can", async (t) => {
  for (const folder of ["/proc", "/sys"]) {
    const tree = new ShareTree(folder, NOTHING);
    t.after(() => tree.close());
    await fails(tree.list(bytes(""), 0n, 4096), "ENOENT");
  }
  // the root folder cannot be shared, so this stands for a folder in which such a file system is mounted
  const tree = new ShareTree("/", NOTHING);
  t.after(() => tree.close());
  const pid = String(process.pid);
  await fails(tree.read(bytes(`proc/${pid}/environ`), ANY), "ENOENT");
  await fails(tree.stat(bytes(`proc/${pid}`)), "ENOENT");
  await fails(tree.list(bytes("sys"), 0n, 4096), "ENOENT");
  await tree.list(bytes("dev"), 0n, 4096);
});

test("a share above which a folder has become a link shows nothing", async (t) => {
  const dir = await tempDir(t);
  for (const name of ["above", "other"]) {
    await mkdir(join(dir, name, "root"), { recursive: true });
    await writeFile(join(dir, name, "root", "file"), name);
  }
  const tree = new ShareTree(join(dir, "above", "root"), NOTHING);
  t.after(() => tree.close());
  await rename(join(dir, "above"), join(dir, "before"));
  await symlink("other", join(dir, "above"));
  await fails(tree.read(bytes("file"), ANY), "ENOENT");
  await rm(join(dir, "above"));
  await rename(join(dir, "before"), join(dir, "above"));
  assert.equal(await text(tree, "file"), "above");
});

test("files that the daemon's user may not read are refused", async (t) => {
  if (process.getuid?.() === 0) return t.skip("root may read everything");
  const { tree, root } = await fixture(t);
  await chmod(join(root, "file"), 0);
  await chmod(join(root, "sub"), 0);
  t.after(async () => chmod(join(root, "sub"), 0o755));
  assert.equal((await tree.stat(bytes("file"))).size, 7n);
  await fails(tree.read(bytes("file"), ANY), "EACCES");
  await fails(tree.list(bytes("sub"), 0n, 4096), "EACCES");
  await fails(tree.stat(bytes("sub/deep")), "EACCES");
});

test("names are bytes, not text", async (t) => {
  const { tree, root } = await fixture(t);
  const names = [Buffer.from([0x66, 0xff, 0xfe]), Buffer.from("new\nline"), Buffer.from("ü"), Buffer.from([0x75, 0xcc, 0x88])];
  for (const name of names) await writeFile(Buffer.concat([Buffer.from(`${root}/`), name]), name);
  const listed = (await all(tree, "")).map(({ name }) => name.toString("hex"));
  for (const name of names) {
    assert.ok(listed.includes(name.toString("hex")));
    assert.deepEqual(await tree.read(name, ANY), name);
  }
});

test("a large folder is listed in parts, each name once, also when another tree continues", async (t) => {
  const { root } = await fixture(t);
  const many = join(root, "many");
  await mkdir(many);
  const expected = Array.from({ length: 3000 }, (_, n) => `name-${n}`).sort();
  await Promise.all(expected.map(async (name) => writeFile(join(many, name), "")));
  const tree = new ShareTree(root, NOTHING);
  t.after(() => tree.close());
  const listed = await all(tree, "many", 4096);
  assert.deepEqual(namesOf(listed), expected);
  const half = await tree.list(bytes("many"), 0n, 64 * 1024);
  const count = half.entries.length;
  assert.ok(count < expected.length && !half.complete);
  const other = new ShareTree(root, NOTHING);
  t.after(() => other.close());
  const next = await other.list(bytes("many"), BigInt(half.entries.at(-1)?.next ?? 0), 64 * 1024);
  const order = listed.map(({ name }) => String(name));
  assert.deepEqual(
    [...half.entries, ...next.entries].map(({ name }) => String(name)),
    order.slice(0, count + next.entries.length),
  );
  // names removed in between are left out, and shift nothing
  await rm(join(many, order[0] ?? ""));
  await rm(join(many, order[count] ?? ""));
  const rest = await tree.list(bytes("many"), BigInt(count), 64 * 1024);
  assert.equal(String(rest.entries[0]?.name), order[count + 1]);
  assert.deepEqual(await tree.list(bytes("many"), 1_000_000n, 4096), { entries: [], complete: true });
});

test("reads are bounded, and end with the file", async (t) => {
  const { tree } = await fixture(t);
  assert.equal((await tree.read(bytes("file"), { inode: 0n, offset: 100n, size: 10 })).length, 0);
  await fails(tree.read(bytes("file"), { inode: 0n, offset: 0n, size: LARGEST_READ + 1 }), "EINVAL");
  await fails(tree.read(bytes("file"), { inode: 0n, offset: 2n ** 63n, size: 1 }), "EINVAL");
  await fails(tree.read(bytes(""), ANY), "EISDIR");
  await fails(tree.read(bytes("sub"), ANY), "EISDIR");
});

test("changes on the host are visible; a replaced file is detected by its inode", async (t) => {
  const { tree, root } = await fixture(t);
  const { inode } = await tree.stat(bytes("file"));
  assert.equal(await text(tree, "file"), "content");
  await writeFile(join(root, "file"), "changed");
  assert.equal(String(await tree.read(bytes("file"), { ...ANY, inode })), "changed");
  await writeFile(join(root, "other"), "other");
  await rename(join(root, "other"), join(root, "file"));
  const now = await tree.stat(bytes("file"));
  assert.notEqual(now.inode, inode);
  assert.equal(String(await tree.read(bytes("file"), { ...ANY, inode: now.inode })), "other");
  await fails(tree.read(bytes("file"), { ...ANY, inode }), "ESTALE");
});

test("a share that is removed and restored", async (t) => {
  const { tree, root } = await fixture(t);
  assert.equal(await text(tree, "file"), "content");
  await rename(root, `${root}-gone`);
  const isGone = async (): Promise<boolean> =>
    tree.stat(bytes("file")).then(
      () => false,
      (error: NodeJS.ErrnoException) => error.code === "ENOENT",
    );
  await until(isGone);
  await fails(tree.list(bytes(""), 0n, 4096), "ENOENT");
  await rename(`${root}-gone`, root);
  assert.equal(await text(tree, "file"), "content");
});

test("thousands of lookups leave no file open", async (t) => {
  const { root } = await fixture(t);
  const folders = Array.from({ length: 100 }, (_, n) => `d${n}`);
  for (const name of folders) {
    await mkdir(join(root, name));
    await writeFile(join(root, name, "f"), name);
  }
  const open = async (): Promise<number> => (await readdir("/proc/self/fd")).length;
  const before = await open();
  // several shares, as guests have: the bound is for all of them
  const trees = Array.from({ length: 5 }, () => new ShareTree(root, NOTHING));
  let most = 0;
  for (let round = 0; round < 3; round++) {
    for (const tree of trees) {
      await Promise.all(folders.map(async (name) => assert.equal(await text(tree, `${name}/f`), name)));
      await Promise.all(folders.map(async (name) => fails(tree.read(bytes(`${name}/none`), ANY), "ENOENT")));
      most = Math.max(most, await open());
    }
  }
  assert.ok(most - before < 300, `${most - before} were open at once`);
  // unused handles are closed by a timer
  await until(async () => (await open()) <= before);
  for (const tree of trees) {
    await text(tree, "d1/f");
    tree.close();
  }
  await until(async () => (await open()) <= before);
});

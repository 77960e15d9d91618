// An archive of a guest changes nothing outside its destination.

import assert from "node:assert/strict";
import { chmod, lstat, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { confinedWords } from "@forkd/runtime/host/confined";
import { unpackTo } from "../src/copy/tree.ts";
import { packArgs, packFolder, unpackArgs } from "../src/copy/host-tar.ts";
import { archiveOf, inPieces, type Entry } from "./archive.ts";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkdProcess, temporaryFolder } from "./helpers.ts";

const NEVER = new AbortController().signal;
const STAT = "GET /v1/sandboxes/sb-1/files/stat";
const TAR = "/v1/sandboxes/sb-1/files/tar";
const FOLDER = { kind: "directory", mode: "0755", uid: 0, gid: 0, owner: null, group: null, size: 0, mtime_ms: 0, target: null };

/** Everything below a folder: types, and contents of files and links */
async function seen(folder: string): Promise<Record<string, string>> {
  const all: Record<string, string> = {};
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    const name = path.slice(folder.length + 1);
    if (entry.isSymbolicLink()) all[name] = `-> ${await readlink(path)}`;
    else all[name] = entry.isFile() ? await readFile(path, "utf8") : entry.isDirectory() ? "folder" : "special";
  }
  return all;
}

/** A destination with a neighbour that must stay unchanged */
async function place(): Promise<AsyncDisposable & { path: string; out: string; outside: string; isUntouched: () => Promise<void> }> {
  const folder = await temporaryFolder();
  const outside = join(folder.path, "outside");
  await mkdir(outside);
  await writeFile(join(outside, "kept"), "kept");
  return {
    ...folder,
    outside,
    out: join(folder.path, "out"),
    isUntouched: async () => {
      assert.deepEqual(await seen(outside), { kept: "kept" });
      const names = await readdir(folder.path);
      assert.deepEqual(
        names.filter((name) => name !== "out" && name !== "outside"),
        [],
        "an incomplete file is left",
      );
    },
  };
}

async function unpack(entries: readonly Entry[], out: string, isThere = false): Promise<void> {
  await unpackTo(out, inPieces(archiveOf(entries)), { isThere, signal: NEVER });
}

test("tar sees only the folder that it fills", async (t) => {
  const { obstacle } = await confinedWords(["tar"], {});
  if (obstacle !== undefined) return t.skip(`this host does not allow it: ${obstacle}`);
  await using folder = await place();
  const fake = join(folder.path, "out", "bin");
  await mkdir(fake, { recursive: true });
  // it cannot start the real one
  const script = `#!/usr/bin/python3 -I
import os, sys, tarfile
if os.path.exists("/etc/passwd"): sys.exit("it sees the host")
if sys.argv[1] != "--version": tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall(sys.argv[-1].split("=")[1])
`;
  await writeFile(join(fake, "tar"), script);
  await chmod(join(fake, "tar"), 0o755);
  const { PATH } = process.env;
  process.env["PATH"] = `${fake}:${PATH}`;
  t.after(() => (process.env["PATH"] = PATH));
  const out = join(folder.path, "out", "new");
  await unpack([{ name: "a/b", content: "from the guest" }], out);
  assert.deepEqual(await seen(out), { a: "folder", "a/b": "from the guest" });
  await folder.isUntouched();
});

describe("a hostile archive", () => {
  const refused: Record<string, (outside: string) => Entry[]> = {
    "a name that leads up": () => [{ name: "../outside/kept", content: "bad" }],
    "a name that leads down and up": () => [{ name: "a/../../outside/kept", content: "bad" }],
    "a file through a link": (outside) => [
      { name: "way", type: "2", target: outside },
      { name: "way/kept", content: "bad" },
    ],
    "a file through a link that leads up": () => [
      { name: "way", type: "2", target: "../../outside" },
      { name: "way/kept", content: "bad" },
    ],
    "a hard link to what is outside": (outside) => [
      { name: "hard", type: "1", target: join(outside, "kept") },
      { name: "hard", content: "bad" },
    ],
    "a hard link through a link": (outside) => [
      { name: "way", type: "2", target: outside },
      { name: "hard", type: "1", target: "way/kept" },
    ],
    "a size that never comes": () => [{ name: "huge", size: 0o77777777777 }],
    "no archive at all": () => [{ name: "x", mode: Number.NaN }],
  };
  for (const [what, entries] of Object.entries(refused)) {
    for (const isThere of [false, true]) {
      test(`${what} is refused${isThere ? ", also below a folder that is there" : ""}`, async () => {
        await using p = await place();
        if (isThere) await mkdir(p.out);
        await assert.rejects(unpack(entries(p.outside), p.out, isThere), { code: "HOST_COMMAND_FAILED" });
        await p.isUntouched();
        if (isThere) assert.deepEqual(await readdir(p.out), []);
      });
    }
  }

  test("an absolute name is placed below the destination", async () => {
    await using p = await place();
    await unpack([{ name: join(p.outside, "kept"), content: "inside" }], p.out);
    assert.equal(await readFile(join(p.out, p.outside, "kept"), "utf8"), "inside");
    await p.isUntouched();
  });

  test("a link is created, and a file of the same name is not written through it", async () => {
    await using p = await place();
    const kept = join(p.outside, "kept");
    await unpack(
      [
        { name: "link", type: "2", target: kept },
        { name: "link", content: "bad" },
        { name: "other", type: "2", target: "link" },
      ],
      p.out,
    );
    assert.deepEqual(Object.keys(await seen(p.out)).toSorted(), ["link", "other"]);
    assert.equal(await readlink(join(p.out, "other")), "link");
    await p.isUntouched();
  });

  test("no devices, no pipes, no set-user-id, no owner", async () => {
    await using p = await place();
    const mayMakeDevices = process.getuid?.() === 0 && (await confinedWords(["tar"], {})).obstacle !== undefined;
    const device: Entry = { name: "device", type: "3", mode: 0o666 };
    if (!mayMakeDevices) await assert.rejects(unpack([device], p.out), { message: /device: Cannot mknod/ });
    await unpack(
      [
        { name: "./", type: "5", mode: 0o1777 },
        { name: "tool", content: "x", mode: 0o6755 },
        { name: "folder/", type: "5", mode: 0o3770 },
        { name: "folder/pipe", type: "6", mode: 0o666 },
        ...(mayMakeDevices ? [device] : []),
      ],
      p.out,
    );
    assert.deepEqual(await seen(p.out), { tool: "x", folder: "folder" });
    const modes = await Promise.all(
      ["", "tool", "folder"].map(async (name) => ((await stat(join(p.out, name))).mode & 0o7777).toString(8)),
    );
    assert.deepEqual(modes, ["777", "755", "770"]);
    assert.equal((await stat(join(p.out, "tool"))).uid, process.getuid?.());
  });

  test("a link of an earlier copy is not followed by the next one", async () => {
    await using p = await place();
    await unpack([{ name: "way", type: "2", target: p.outside }], p.out);
    const next = [
      { name: "way/", type: "5" },
      { name: "way/kept", content: "bad" },
      { name: "other", content: "new" },
    ];
    await assert.rejects(unpack(next, p.out, true), { code: "EXISTS" });
    assert.deepEqual(await seen(p.out), { way: `-> ${p.outside}` }, "all or nothing");
    await p.isUntouched();
  });

  test("options of the environment are ignored", async () => {
    await using p = await place();
    process.env["TAR_OPTIONS"] = "--absolute-names";
    try {
      await unpack([{ name: join(p.outside, "kept"), content: "inside" }], p.out);
    } finally {
      delete process.env["TAR_OPTIONS"];
    }
    await p.isUntouched();
  });

  test("an archive that is too large for the disk or incomplete leaves nothing", async () => {
    await using p = await place();
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield archiveOf([{ name: "a", content: "x".repeat(2000) }]).subarray(0, 1500);
      await Promise.resolve();
      throw new Error("the connection broke");
    };
    await assert.rejects(unpackTo(p.out, broken(), { isThere: false, signal: NEVER }), /the connection broke/);
    await p.isUntouched();
    await assert.rejects(lstat(p.out));
  });
});

test("an existing folder is merged with the archive", async () => {
  await using p = await place();
  await mkdir(join(p.out, "a"), { recursive: true });
  await writeFile(join(p.out, "a", "old"), "old");
  await writeFile(join(p.out, "a", "both"), "before");
  await unpack(
    [
      { name: "a/", type: "5", mode: 0o500 },
      { name: "a/both", content: "after" },
      { name: "b/c/d", content: "new" },
    ],
    p.out,
    true,
  );
  assert.deepEqual(await seen(p.out), {
    a: "folder",
    "a/old": "old",
    "a/both": "after",
    b: "folder",
    "b/c": "folder",
    "b/c/d": "new",
  });
});

test("a folder without permissions is copied out without permissions", async () => {
  await using p = await place();
  await unpack(
    [
      { name: "./", type: "5", mode: 0o555 },
      { name: "in/", type: "5", mode: 0o555 },
      { name: "in/file", content: "x" },
    ],
    p.out,
  );
  assert.equal((await stat(p.out)).mode & 0o777, 0o555);
  assert.equal((await stat(join(p.out, "in"))).mode & 0o777, 0o555);
  for (const folder of [p.out, join(p.out, "in")]) await chmod(folder, 0o755);
});

test("arguments of tar", () => {
  assert.ok(unpackArgs("/x").includes("--no-same-owner") && unpackArgs("/x").includes("--no-same-permissions"));
  assert.ok(!unpackArgs("/x").some((arg) => /absolute|overwrite|^-P$|keep-directory-symlink/.test(arg)));
  assert.deepEqual(packArgs("-x").slice(-3), ["--directory=-x", "--", "."]);
});

test("a folder that cannot be read fails before its archive counts as complete", async () => {
  await assert.rejects(Array.fromAsync(packFolder("/no/such/folder", NEVER)), { code: "HOST_COMMAND_FAILED" });
});

describe("forkd cp -r", () => {
  test("into a sandbox: a new path, below an existing folder, or only the contents", async () => {
    await using folder = await temporaryFolder();
    const tree = join(folder.path, "tree");
    await mkdir(tree);
    await writeFile(join(tree, "file"), "content");
    await using daemon = await fakeDaemon({
      [STAT]: ({ path }, response) => {
        const isThere = path.includes("path=%2Fsrv%2Fthere") || path.includes("path=%2Fsrv&");
        response.writeHead(isThere ? 200 : 404, { "content-type": "application/json" });
        response.end(JSON.stringify(isThere ? FOLDER : { error: "No.", code: "FILE_NOT_FOUND", hint: "", request_id: "" }));
      },
      [`PUT ${TAR}`]: { json: { entries: 2, bytes: 7 } },
    });
    for (const [source, destination, path] of [
      [tree, "/srv/new", "/srv/new"],
      [tree, "/srv/new/", "/srv/new"],
      [tree, "/srv/there", "/srv/there/tree"],
      [`${tree}/`, "/srv/there", "/srv/there/tree"],
      [`${tree}/.`, "/srv/there", "/srv/there"],
      [`${tree}/.`, "/srv/new", "/srv/new"],
    ] as const) {
      const { code, stderr } = await forkdProcess(["cp", "-r", source, `sb-1:${destination}`], daemon.env);
      assert.equal(code, 0, stderr);
      assert.equal(daemon.lines().at(-1), `PUT ${TAR}?path=${encodeURIComponent(path)}`);
      assert.match(daemon.asked.at(-1)?.bytes.toString("latin1") ?? "", /^\.\/\0.*\.\/file\0.*content/s);
    }
    const { code, stderr } = await forkdProcess(["cp", "-r", tree, "sb-1:/none/new"], daemon.env);
    assert.deepEqual([code, /FILE_NOT_FOUND/.test(stderr)], [1, true]);
    assert.equal((await forkdProcess(["cp", "-r", tree, "sb-1:/none/new", "--parents"], daemon.env)).code, 0);
  });

  test("out of a sandbox: the same", async () => {
    const archive = archiveOf([
      { name: "./", type: "5", mode: 0o750 },
      { name: "./file", content: "content" },
    ]);
    await using daemon = await fakeDaemon({ [STAT]: { json: FOLDER }, [`GET ${TAR}`]: (_asked, response) => response.end(archive) });
    await using folder = await temporaryFolder();
    const there = join(folder.path, "there");
    await mkdir(there);
    for (const [source, destination, result] of [
      ["/srv/tree", "new", "new/file"],
      ["/srv/tree", "there", "there/tree/file"],
      ["/srv/tree/", "there", "there/tree/file"],
      ["/srv/tree/.", "there", "there/file"],
    ] as const) {
      const { code, stderr } = await forkdProcess(["cp", "-r", `sb-1:${source}`, join(folder.path, destination)], daemon.env);
      assert.equal(code, 0, stderr);
      assert.equal(await readFile(join(folder.path, result), "utf8"), "content");
      assert.match(daemon.lines().at(-1) ?? "", /plain=true/);
    }
    assert.deepEqual((await readdir(folder.path)).toSorted(), ["new", "there"]);
  });

  test("a destination that is a file or a link is refused", async () => {
    await using daemon = await fakeDaemon({ [STAT]: { json: FOLDER }, [`GET ${TAR}`]: (_asked, response) => response.end(archiveOf([])) });
    await using p = await place();
    await mkdir(p.out);
    await symlink(p.outside, join(p.out, "tree"));
    await writeFile(join(p.path, "out", "file"), "x");
    for (const destination of [p.out, join(p.out, "file")]) {
      const { code, stderr } = await forkdProcess(["cp", "-r", "sb-1:/srv/tree", destination], daemon.env);
      assert.equal(code, 1);
      assert.match(stderr, /is no folder.*\[EXISTS\]/s);
    }
    await p.isUntouched();
  });

  test("an error of the guest in the middle is reported, and nothing is left", async () => {
    const told = { error: "Cannot pack it: Permission denied.", code: "FILE_DENIED", hint: "Ask root.", request_id: "" };
    await using daemon = await fakeDaemon({
      [STAT]: { json: FOLDER },
      [`GET ${TAR}`]: (_asked, response) => {
        response.writeHead(200, { trailer: "x-forkd-problem" });
        response.write(archiveOf([{ name: "file", content: "x".repeat(5000) }]).subarray(0, 2048));
        response.addTrailers({ "x-forkd-problem": JSON.stringify(told) });
        response.end();
      },
    });
    await using folder = await temporaryFolder();
    const { code, stderr } = await forkdProcess(["cp", "-r", "sb-1:/srv", join(folder.path, "new")], daemon.env);
    assert.deepEqual([code, stderr], [1, "forkd: Cannot pack it: Permission denied.\nAsk root. [FILE_DENIED]\n"]);
    assert.deepEqual(await readdir(folder.path), []);
  });

  test("a full disk in the guest is reported", async () => {
    await using folder = await temporaryFolder();
    await using daemon = await fakeDaemon({
      [STAT]: problem(404, "FILE_NOT_FOUND", "No such file."),
      [`PUT ${TAR}`]: problem(507, "FILE_NO_SPACE", "Cannot unpack: No space left on device."),
    });
    const { code, stderr } = await forkdProcess(["cp", "-r", folder.path, "sb-1:/srv", "--parents"], daemon.env);
    assert.deepEqual([code, /FILE_NO_SPACE/.test(stderr)], [1, true]);
  });
});

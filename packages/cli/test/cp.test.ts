import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { parsePlace } from "../src/copy/stream.ts";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { forkd, forkdProcess, temporaryFolder } from "./helpers.ts";

const BYTES = randomBytes(300_000);
const FILE = { kind: "file", mode: "755", uid: 0, gid: 0, size: BYTES.length, mtime_ms: 0 };
const STAT = "GET /v1/sandboxes/sb-1/files/stat";
const READ = "GET /v1/sandboxes/sb-1/files";
const WRITE = "PUT /v1/sandboxes/sb-1/files";

test("ID:/path is in a sandbox, every other path is local", () => {
  assert.deepEqual(parsePlace("sb-1:/a:b"), { sandbox: "sb-1", path: "/a:b" });
  for (const path of ["-", "/a", "a", "./sb:/x", "sb-1:relative", "C:x"]) assert.deepEqual(parsePlace(path), { sandbox: undefined, path });
});

test("a file is copied in with its mode", async () => {
  await using folder = await temporaryFolder();
  const file = join(folder.path, "tool");
  await writeFile(file, BYTES);
  await chmod(file, 0o751);
  await using daemon = await fakeDaemon({
    [STAT]: problem(404, "FILE_NOT_FOUND", "No such file."),
    [WRITE]: { json: { bytes: BYTES.length } },
  });
  const { code, stderr } = await forkd(["cp", file, "sb-1:/opt/tool", "--parents"], daemon.env);
  assert.deepEqual([code, stderr], [0, "Copied 293.0 KiB to sb-1:/opt/tool.\n"]);
  assert.equal(daemon.lines().at(-1), "PUT /v1/sandboxes/sb-1/files?path=%2Fopt%2Ftool&mode=751&parents=true");
  assert.deepEqual(daemon.asked.at(-1)?.bytes, BYTES);
});

test("a file is copied into a folder of the guest under its name", async () => {
  await using folder = await temporaryFolder();
  const file = join(folder.path, "a.txt");
  await writeFile(file, "a");
  await using daemon = await fakeDaemon({ [STAT]: { json: { ...FILE, kind: "directory" } }, [WRITE]: { json: { bytes: 1 } } });
  await forkd(["cp", file, "sb-1:/tmp"], daemon.env);
  assert.match(daemon.lines().at(-1) ?? "", /path=%2Ftmp%2Fa\.txt/);
  await forkd(["cp", file, "sb-1:/srv/"], daemon.env);
  assert.match(daemon.lines().at(-1) ?? "", /path=%2Fsrv%2Fa\.txt/);
});

test("standard input is copied in", async () => {
  await using daemon = await fakeDaemon({ [STAT]: problem(404, "FILE_NOT_FOUND", "No such file."), [WRITE]: { json: { bytes: 5 } } });
  const { code } = await forkd(["cp", "-", "sb-1:/tmp/x"], daemon.env, "hello");
  assert.equal(code, 0);
  assert.equal(daemon.lines().at(-1), "PUT /v1/sandboxes/sb-1/files?path=%2Ftmp%2Fx");
  assert.equal(daemon.asked.at(-1)?.bytes.toString(), "hello");
});

test("a file is copied out with its mode, also into a folder", async () => {
  await using folder = await temporaryFolder();
  await using daemon = await fakeDaemon({ [STAT]: { json: FILE }, [READ]: (_asked, response) => response.end(BYTES) });
  await mkdir(join(folder.path, "into"));
  assert.equal((await forkd(["cp", "sb-1:/bin/tool", join(folder.path, "into")], daemon.env)).code, 0);
  const file = join(folder.path, "into", "tool");
  assert.deepEqual(await readFile(file), BYTES);
  assert.equal((await stat(file)).mode & 0o777, 0o755);
});

test("a file is copied out to standard output", async () => {
  await using daemon = await fakeDaemon({ [STAT]: { json: FILE }, [READ]: (_asked, response) => response.end(BYTES) });
  const { code, bytes, stderr } = await forkdProcess(["cp", "sb-1:/x", "-"], daemon.env);
  assert.deepEqual([code, stderr], [0, ""]);
  assert.ok(bytes.equals(BYTES));
});

test("a failed copy leaves nothing, and an existing file is unchanged", async () => {
  await using folder = await temporaryFolder();
  const file = join(folder.path, "out");
  await writeFile(file, "before");
  await using daemon = await fakeDaemon({
    [STAT]: { json: FILE },
    [READ]: (_asked, response) => {
      response.writeHead(200, { "content-length": BYTES.length });
      response.write(BYTES.subarray(0, 1000), () => response.destroy());
    },
  });
  assert.equal((await forkd(["cp", "sb-1:/x", file], daemon.env)).code, 1);
  assert.equal(await readFile(file, "utf8"), "before");
  assert.deepEqual(await readdir(folder.path), ["out"]);
});

test("folders are refused in both directions with a hint to -r", async () => {
  await using folder = await temporaryFolder();
  await using daemon = await fakeDaemon({ [STAT]: { json: { ...FILE, kind: "directory" } } });
  for (const args of [
    [folder.path, "sb-1:/tmp"],
    ["sb-1:/etc", "out"],
  ]) {
    const { code, stderr } = await forkd(["cp", ...args], daemon.env);
    assert.equal(code, 1);
    assert.match(stderr, /it is a folder\.\nCopy it with its contents: forkd cp -r\. \[BAD_REQUEST\]\n$/s);
  }
});

test("a name that the guest chose replaces a link, and a link named by the user is followed", async () => {
  await using folder = await temporaryFolder();
  const outside = join(folder.path, "outside");
  await writeFile(outside, "kept");
  await mkdir(join(folder.path, "into"));
  for (const [name, target] of [
    ["tool", outside],
    ["null", "/dev/null"],
  ] as const)
    await symlink(target, join(folder.path, "into", name));
  await using daemon = await fakeDaemon({ [STAT]: { json: FILE }, [READ]: (_asked, response) => response.end(BYTES) });
  for (const name of ["tool", "null"]) {
    assert.equal((await forkd(["cp", `sb-1:/bin/${name}`, join(folder.path, "into")], daemon.env)).code, 0);
    assert.ok((await lstat(join(folder.path, "into", name))).isFile(), name);
  }
  assert.equal(await readFile(outside, "utf8"), "kept");
  assert.equal((await forkd(["cp", "sb-1:/x", "/dev/null"], daemon.env)).code, 0);
});

test("as another user of the guest", async () => {
  await using daemon = await fakeDaemon({ [STAT]: problem(404, "FILE_NOT_FOUND", "No such file."), [WRITE]: { json: { bytes: 5 } } });
  await forkd(["cp", "-", "sb-1:/tmp/x", "--user", "ann"], daemon.env, "hello");
  assert.deepEqual(
    daemon.lines().map((line) => new URL(`x:${line.split(" ")[1]}`).searchParams.get("user")),
    ["ann", "ann"],
  );
});

test("exactly one side is in a sandbox", async () => {
  assert.equal((await forkd(["cp", "a", "b"])).code, 2);
  assert.equal((await forkd(["cp", "sb-1:/a", "sb-2:/b"])).code, 2);
});

// Host folders inside guests: their content, and the operations that are rejected.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { appendFile, mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { SharedFolder } from "../helpers/shared-folder.ts";
import { until } from "../helpers/until.ts";

const run = promisify(execFile);
const AT = "/work/shared";

/** Tries every operation that changes a file; prints the names of the errors */
const CHANGES = `
import ctypes, errno, os, sys
root = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
def xattr():
    if libc.setxattr((root + "/file").encode(), b"user.x", b"1", 1, 0) != 0: raise OSError(ctypes.get_errno(), "setxattr")
def write(mode):
    with open(root + "/file", mode, buffering=0) as f: f.write(b"x")
def map():
    fd = os.open(root + "/file", os.O_RDWR)
    os.close(fd); raise OSError(errno.EROFS, "opened")
changes = {
    "create": lambda: os.open(root + "/new", os.O_CREAT | os.O_WRONLY),
    "exclusive": lambda: os.open(root + "/new", os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "tmpfile": lambda: os.open(root, os.O_TMPFILE | os.O_RDWR),
    "write": lambda: write("r+b"), "append": lambda: write("ab"), "truncating": lambda: write("wb"),
    "truncate": lambda: os.truncate(root + "/file", 0),
    "mkdir": lambda: os.mkdir(root + "/newdir"), "rmdir": lambda: os.rmdir(root + "/empty"),
    "unlink": lambda: os.unlink(root + "/file"), "rename": lambda: os.rename(root + "/file", root + "/other"),
    "link": lambda: os.link(root + "/file", root + "/hard"), "symlink": lambda: os.symlink("file", root + "/soft"),
    "chmod": lambda: os.chmod(root + "/file", 0o777), "chown": lambda: os.chown(root + "/file", 1, 1),
    "utime": lambda: os.utime(root + "/file", (1, 1)), "mknod": lambda: os.mkfifo(root + "/fifo"),
    "device": lambda: os.mknod(root + "/dev", 0o20600, os.makedev(1, 3)), "setxattr": xattr,
}
for name, change in changes.items():
    try: change(); print(name, "DONE")
    except OSError as e: print(name, errno.errorcode.get(e.errno, e.errno))
`;

describe("a shared folder", () => {
  let daemon: TestDaemon;
  let folder: SharedFolder;
  let sandbox: Sandbox;

  const sh = async (script: string, user?: string): Promise<string> => {
    const { stdout, stderr } = await sandbox.exec(script, { timeoutSecs: patience() / 1000, ...(user ? { user } : {}) });
    return (stdout + stderr).trim();
  };

  before(async () => {
    daemon = await TestDaemon.start();
    folder = await SharedFolder.make();
    await daemon.makePython();
    sandbox = await Sandbox.create("python", { controller: daemon.controller, shares: [{ source: folder.path, target: AT }] });
  });
  after(async () => {
    await daemon[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  it("is listed, and mounted read-only without devices and set-user-id", async () => {
    assert.deepEqual((await daemon.controller.getSandbox(sandbox.id)).shares, [{ source: folder.path, target: AT }]);
    assert.match(await sh(`grep ' ${AT} ' /proc/mounts`), /^forkd \S+ fuse\.forkd ro,nosuid,nodev,/);
    // the host path must not be visible in the guest
    assert.doesNotMatch(await sh("cat /proc/self/mountinfo"), new RegExp(folder.path));
  });

  it("shows every file, folder and link with its attributes, also many", async () => {
    await folder.addMany();
    await folder.assertSeen(sandbox, AT);
  });

  it("has files of any size", async () => {
    const sum = await folder.addLarge("large", 20_000_000);
    assert.equal(await sh(`md5sum < ${AT}/large`), `${sum}  -`);
    await rm(join(folder.path, "large"));
  });

  it("can be read concurrently, while the guest answers", async () => {
    const sums = await Promise.all([1, 2, 3, 4].map(async (n) => folder.addLarge(`part-${n}`, 5_000_000)));
    const readers = `for i in 1 2 3 4; do md5sum < ${AT}/part-$i & done; cat ${AT}/many/* | md5sum & wait`;
    const reading = sh(readers);
    assert.equal((await sandbox.eval("6 * 7")).value, 42);
    const lines = (await reading).split("\n");
    assert.equal(lines.length, 5);
    for (const sum of sums) assert.ok(lines.includes(`${sum}  -`), lines.join());
  });

  it("can hold programs: modules, executables, working folders, a folder of PATH", async () => {
    assert.equal((await sandbox.eval(`import sys; sys.path.insert(0, "${AT}"); import package; package.answer`)).value, 42);
    const there = await sandbox.exec(["./tool"], { cwd: AT, stdin: "words" });
    assert.equal(there.stdout, `tool in ${AT} got words\n`);
    const byPath = await sandbox.exec(["tool"], { env: { PATH: `${AT}:/usr/bin:/bin` }, stdin: "" });
    assert.equal(byPath.stdout, "tool in / got \n");
    let shown = "";
    const onStdout = (text: string): void => void (shown += text);
    const shell = await sandbox.processes.start(["./tool"], { cwd: AT, terminal: { rows: 10, cols: 80 }, stdin: true, onStdout });
    await shell.write("typed\n");
    await shell.closeStdin();
    assert.equal((await shell.wait()).exit_code, 0);
    assert.match(shown, /tool in \/work\/shared got typed/);
    // programs that end before the agent checks
    const quick = await Promise.all(Array.from({ length: 40 }, async (_, n) => sandbox.exec(["sh", "-c", `exit ${n}`])));
    assert.deepEqual(
      quick.map(({ exit_code }) => exit_code),
      Array.from({ length: 40 }, (_, n) => n),
    );
    await assert.rejects(sandbox.exec(["./none"], { cwd: AT }), { code: "EXEC_FAILED", message: /No such file/ });
    await assert.rejects(sandbox.exec(["true"], { cwd: `${AT}/file` }), { code: "EXEC_FAILED", message: /Not a directory/ });
    await assert.rejects(sandbox.exec(["./file"], { cwd: AT }), { code: "EXEC_FAILED", message: /Permission denied/ });
  });

  it("is read through the API like every other folder, and so are its siblings", async () => {
    assert.equal(Buffer.from(await sandbox.files.read(`${AT}/file`)).toString(), "content\n");
    assert.equal((await sandbox.files.stat(`${AT}/part-1`)).size, 5_000_000);
    await sandbox.exec(["ln", "-s", `${AT}/file`, "/tmp/into"]);
    assert.equal(Buffer.from(await sandbox.files.read("/tmp/into")).toString(), "content\n");
    await assert.rejects(sandbox.files.read(`${AT}/gone`), { code: "FILE_NOT_FOUND" });
    await assert.rejects(sandbox.files.write(`${AT}/new`, "x"), { code: "FILE_DENIED", message: /Read-only/ });
    const beside = Buffer.alloc(1_000_000, "beside");
    await sandbox.files.write("/tmp/beside", beside);
    assert.ok(Buffer.from(await sandbox.files.read("/tmp/beside")).equals(beside));
  });

  it("shows changes made on the host", async () => {
    const path = join(folder.path, "live");
    await writeFile(path, "one");
    await until(async () => (await sh(`cat ${AT}/live`)) === "one");
    await appendFile(path, " and two");
    await until(async () => (await sh(`cat ${AT}/live`)) === "one and two");
    await writeFile(`${path}.new`, "another file, of another length");
    await rename(`${path}.new`, path);
    await until(async () => (await sh(`cat ${AT}/live`)) === "another file, of another length");
    // same length, but newer
    await writeFile(path, "ANOTHER FILE, OF ANOTHER LENGTH");
    await until(async () => (await sh(`cat ${AT}/live`)) === "ANOTHER FILE, OF ANOTHER LENGTH");
    await mkdir(join(folder.path, "live-folder"));
    await until(async () => (await sh(`ls ${AT}`)).includes("live-folder"));
    await rm(path);
    await until(async () => (await sh(`cat ${AT}/live`)).includes("No such file"));
    await rm(join(folder.path, "live-folder"), { recursive: true });
    await until(async () => !(await sh(`ls ${AT}`)).includes("live-folder"));
  });

  it("cannot be changed in any way, by root or after a remount", async () => {
    const before = await folder.walk();
    const change = async (): Promise<string[]> => {
      const { stdout, stderr } = await sandbox.exec(["python3", "-c", CHANGES, AT]);
      assert.equal(stderr, "");
      return stdout.trim().split("\n");
    };
    const refused = await change();
    assert.equal(refused.length, 19);
    assert.deepEqual(
      refused.filter((line) => !line.endsWith(" EROFS")),
      [],
    );
    await sh(`mount -o remount,rw ${AT}`);
    assert.match(await sh(`grep ' ${AT} ' /proc/mounts`), / rw,/);
    const after = (await change()).filter((line) => !line.endsWith(" EROFS"));
    // operations that the guest kernel does not forward fail too
    assert.deepEqual(
      after.filter((line) => !/ (EOPNOTSUPP|ENOSYS)$/.test(line)),
      [],
    );
    await sh(`mount -o remount,ro ${AT}`);
    assert.deepEqual(await folder.walk(), before);
    assert.equal(await sh(`cat ${AT}/file`), "content");
  });

  it("belongs to root in the guest; other users read world-readable files", async () => {
    assert.equal(await sh(`cat ${AT}/private`), "private");
    assert.equal(await sh(`cat ${AT}/file`, "1000"), "content");
    assert.match(await sh(`cat ${AT}/private`, "1000"), /Permission denied/);
  });

  it("leads nowhere on the host: links resolve in the guest; devices, sockets and FIFOs are hidden", async (t) => {
    const secret = join(folder.path, "..", `forkd-test-secret-${process.pid}`);
    await writeFile(secret, "SECRET");
    t.after(async () => rm(secret));
    await symlink(secret, join(folder.path, "absolute"));
    await symlink(`../${secret.split("/").at(-1)}`, join(folder.path, "relative"));
    await symlink("/etc/hostname", join(folder.path, "hostname"));
    await symlink("/proc/1/root/etc", join(folder.path, "proc"));
    await run("mkfifo", [join(folder.path, "fifo")]);
    const server = createServer().listen(join(folder.path, "socket"));
    t.after(() => server.close());
    for (const name of ["absolute", "relative"]) assert.match(await sh(`cat ${AT}/${name}`), /No such file/);
    assert.equal(await sh(`readlink ${AT}/absolute`), secret);
    // the guest has its own /etc/hostname
    await sh("echo the guest > /etc/hostname");
    assert.equal(await sh(`cat ${AT}/hostname`), "the guest");
    assert.notEqual(readFileSync("/etc/hostname", "utf8").trim(), "the guest");
    for (const name of ["fifo", "socket"]) assert.match(await sh(`cat ${AT}/${name}`), /No such file/);
    assert.doesNotMatch(await sh(`ls ${AT}`), /fifo|socket/);
    assert.doesNotMatch(await sh(`ls -a ${AT}/.. ${AT}/../..`), new RegExp(secret.split("/").at(-1) ?? ""));
    for (const name of ["absolute", "relative", "hostname", "proc", "fifo"]) await rm(join(folder.path, name));
  });

  it("that disappears from the host gives errors, without other effects, and can return", async () => {
    await rename(folder.path, `${folder.path}-gone`);
    await until(async () => (await sh(`ls ${AT}`)).includes("No such file"));
    assert.match(await sh(`cat ${AT}/none-that-was-read`), /No such file|Stale/);
    assert.equal((await sandbox.eval("1 + 1")).value, 2);
    await rename(`${folder.path}-gone`, folder.path);
    await until(async () => (await sh(`cat ${AT}/file`)) === "content");
  });

  it("is independent of other shares", async () => {
    const shares = ["a", "package", "many"].map((name) => ({ source: join(folder.path, name), target: `/several/${name}` }));
    await using several = await Sandbox.create("python", { controller: daemon.controller, shares });
    assert.equal(
      (await several.exec("ls /several/many | wc -l; cat /several/package/inner.py; ls /several")).stdout,
      "1000\nanswer = 42\na\nmany\npackage\n",
    );
    // a target whose path leads through another share is in that share, which is read-only
    const [outer] = shares;
    assert.ok(outer);
    await several.exec(["ln", "-s", outer.target, "/through"]);
    await several.branch("through");
    const inner = { source: join(folder.path, "package"), target: "/through/new" };
    const fork = Sandbox.create("through", { controller: daemon.controller, shares: [outer, inner] });
    await assert.rejects(fork, { code: "SHARE_FAILED", message: /Read-only/ });
  });
});

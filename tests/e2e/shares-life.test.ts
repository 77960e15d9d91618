// Shares over the life of a sandbox: branches, forks, restarts of the daemon, errors, hostile guests.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import { Controller, Sandbox } from "forkd";
import { AgentConnection } from "@forkd/runtime/agent/wire/connection";
import { statFile } from "@forkd/runtime/agent/files/content";
import { GuestProcess } from "@forkd/runtime/agent/process/exclusive";
import { T } from "@forkd/runtime/agent/wire/protocol";
import { TestDaemon } from "../helpers/daemon.ts";
import { patience } from "../helpers/patience.ts";
import { SharedFolder } from "../helpers/shared-folder.ts";
import { until } from "../helpers/until.ts";

import type { Share } from "forkd";

const AT = "/shared";
/** Reads a file slowly, so that a read request is pending most of the time */
const READER = `
import hashlib, sys
sum = hashlib.md5()
with open(sys.argv[1], "rb", buffering=0) as f:
    while part := f.read(1 << 17):
        sum.update(part)
open(sys.argv[2], "w").write(sum.hexdigest())
`;

async function agentKeyOf(daemon: TestDaemon, snapshotId: string): Promise<Buffer> {
  const manifest = JSON.parse(await readFile(join(daemon.home.snapshots, snapshotId, "manifest.json"), "utf8")) as { agentKey: string };
  return Buffer.from(manifest.agentKey, "hex");
}

describe("a share", () => {
  let daemon: TestDaemon;
  let folder: SharedFolder;
  let shares: Share[];

  const create = async (opts: { shares?: Share[] } = { shares }): Promise<Sandbox> =>
    Sandbox.create("python", { controller: daemon.controller, ...opts });
  const out = async (sandbox: Sandbox, script: string): Promise<string> => {
    const { stdout, stderr } = await sandbox.exec(script, { timeoutSecs: patience() / 1000 });
    return (stdout + stderr).trim();
  };
  const read = async (sandbox: Sandbox): Promise<string> => out(sandbox, `cat ${AT}/file`);
  const startReader = async (sandbox: Sandbox): Promise<void> => {
    await sandbox.files.write("/tmp/reader.py", READER);
    await sandbox.exec(`python3 /tmp/reader.py ${AT}/large /tmp/sum > /tmp/reader.log 2>&1 < /dev/null &`);
  };
  const sumOf = async (sandbox: Sandbox): Promise<string> => {
    await until(async () => (await out(sandbox, "cat /tmp/sum /tmp/reader.log 2>/dev/null")) !== "");
    return out(sandbox, "cat /tmp/sum /tmp/reader.log");
  };

  before(async () => {
    daemon = await TestDaemon.start();
    folder = await SharedFolder.make();
    shares = [{ source: folder.path, target: AT }];
    await daemon.makePython();
  });
  afterEach(async () => daemon.controller.killSandboxes({ all: true }));
  after(async () => {
    await daemon[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  it("is inherited by forks of a sandbox and of its branches, unless they set none or another", async () => {
    const source = await create();
    const [tip, bare, other] = await Promise.all([
      source.fork(1),
      source.fork(1, { shares: [] }),
      source.fork(1, { shares: [{ source: join(folder.path, "package"), target: AT }] }),
    ]).then((all) => all.map(([one]) => one));
    assert.ok(tip && bare && other);
    assert.deepEqual([tip.info.shares, bare.info.shares], [shares, []]);
    assert.equal(await read(tip), "content");
    assert.equal(await out(bare, `ls -A ${AT}; grep -c ' ${AT} ' /proc/mounts`), "0");
    assert.equal(await out(other, `ls ${AT}`), "__init__.py\ninner.py");
    assert.equal(await read(source), "content");

    await tip.branch("with-share");
    await tip.kill();
    const later = await Sandbox.create("with-share", { controller: daemon.controller });
    assert.deepEqual(later.info.shares, shares);
    assert.equal(await read(later), "content");
    const without = await Sandbox.create("with-share", { controller: daemon.controller, shares: [] });
    assert.match(await read(without), /No such file/);
    await daemon.controller.compactSnapshot("with-share", "compact-share");
    const compact = await Sandbox.create("compact-share", { controller: daemon.controller });
    assert.equal(await read(compact), "content");
  });

  it("whose folder was removed is left out of forks, with a warning", async () => {
    const dir = await mkdtemp(join(tmpdir(), "forkd-test-share-"));
    await writeFile(join(dir, "file"), "short-lived\n");
    const source = await create({ shares: [{ source: dir, target: AT }] });
    await source.branch("orphan");
    await rm(dir, { recursive: true });
    const orphan = await Sandbox.create("orphan", { controller: daemon.controller });
    assert.deepEqual(orphan.info.shares, []);
    assert.match(orphan.info.warnings.join(), /\/shared is not there: Cannot share .* it does not exist/);
    assert.match(await read(orphan), /No such file/);
  });

  it("is read to its end across a branch, in the source and in the fork", async () => {
    const sum = await folder.addLarge("large", 12_000_000);
    const source = await create();
    await startReader(source);
    const tips = (await Promise.all([source.fork(1), source.fork(1)])).flat();
    assert.deepEqual(await Promise.all([source, ...tips].map(sumOf)), [sum, sum, sum]);
  });

  it("works again after the daemon was killed, and a pending read completes", async () => {
    const sum = await folder.addLarge("large", 12_000_000);
    const [busy, idle, paused] = [await create(), await create(), await create()];
    await paused.pause();
    await startReader(busy);
    await daemon.kill9();
    await writeFile(join(folder.path, "meanwhile"), "meanwhile");
    await daemon.up();
    assert.equal(await sumOf(busy), sum);
    assert.equal(await read(idle), "content");
    assert.equal(await out(idle, `cat ${AT}/meanwhile`), "meanwhile");
    await paused.resume();
    assert.equal(await read(paused), "content");
    assert.deepEqual((await daemon.controller.getSandbox(idle.id)).shares, shares);
    const [tip] = await idle.fork(1);
    assert.ok(tip);
    assert.equal(await read(tip), "content");
    await daemon.down();
    await daemon.up();
    assert.equal(await read(idle), "content");
  });

  it("does not block a process that is signalled while the host does not answer, nor the agent", async () => {
    const sandbox = await create();
    const key = await agentKeyOf(daemon, sandbox.info.snapshot_id);
    await daemon.kill9();
    const agent = new AgentConnection(join(daemon.home.run, "daemon", sandbox.id, "agent")).attach(key);
    try {
      const reader = await GuestProcess.start(agent, ["cat", `${AT}/package/inner.py`]);
      const wchan = async (): Promise<string> => {
        let text = "";
        const onOutput = (_channel: string, bytes: Buffer): void => void (text += String(bytes));
        await (await GuestProcess.start(agent, ["cat", `/proc/${reader.pid}/wchan`], { onOutput })).exited();
        return text;
      };
      await until(async () => (await wchan()) === "request_wait_answer");
      const stat = statFile(agent, `${AT}/package/inner.py`, { timeoutMs: 0 });
      stat.catch(() => undefined); // fails when the connection closes
      await agent.call(T.PING, Buffer.alloc(0), { timeoutMs: patience() });
      reader.kill("SIGKILL");
      assert.equal((await reader.exited()).signal, "SIGKILL");
    } finally {
      agent.close();
      await daemon.up();
    }
    assert.equal(await read(sandbox), "content");
  });

  it("stays with a suspended workspace", async () => {
    const source = await create();
    await source.branch("for-workspace");
    await daemon.controller.createWorkspace("shared", "for-workspace");
    await daemon.controller.suspendWorkspace("shared");
    const { live_sandbox_id: id } = await daemon.controller.resumeWorkspace("shared");
    assert.ok(id);
    assert.equal(await read(await Sandbox.connect(id, { controller: daemon.controller })), "content");
    await daemon.controller.deleteWorkspace("shared");
  });

  it("that is invalid is refused before a fork starts", async () => {
    const bad: [Share[], RegExp][] = [
      [[{ source: join(folder.path, "gone"), target: AT }], /does not exist/],
      [[{ source: join(folder.path, "file"), target: AT }], /not a folder/],
      [[{ source: "/", target: AT }], /root folder of the host/],
      [[{ source: daemon.home.root, target: AT }], /belongs to the daemon/],
      [[{ source: folder.path, target: "/proc/x" }], /needs/],
      [[...shares, { source: folder.path, target: `${AT}/a` }], /equal to or below/],
    ];
    for (const [wanted, message] of bad) await assert.rejects(create({ shares: wanted }), { code: "SHARE_FAILED", message });
    await assert.rejects(create({ shares: [{ source: "relative", target: AT }] }), { code: "BAD_REQUEST" });
    await assert.rejects(create({ shares: [{ source: folder.path, target: "/etc/passwd" }] }), {
      code: "SHARE_FAILED",
      message: /File exists/,
    });
    assert.deepEqual(await daemon.controller.listSandboxes(), []);
    const source = await create({});
    await assert.rejects(source.fork(1, { shares: [{ source: "/gone", target: AT }] }), { code: "SHARE_FAILED" });
    await source.exec(["rm", "/dev/fuse"]);
    await assert.rejects(source.fork(1, { shares }), { code: "SHARE_FAILED", message: /the guest cannot mount it: .* has no FUSE/ });
    assert.equal((await daemon.controller.listSandboxes()).length, 1);
  });

  it("does not show the daemon's own folders, at any location", async () => {
    const above = join(daemon.home.root, "..");
    await mkdir(join(above, "beside"));
    await symlink(daemon.home.root, join(above, "link"));
    const sandbox = await create({ shares: [{ source: above, target: AT }] });
    assert.equal(await out(sandbox, `ls ${AT}`), "beside\nlink");
    assert.match(await out(sandbox, `ls ${AT}/home ${AT}/run ${AT}/link/`), /(No such file[^]*){3}/);
    await rm(join(above, "link"));
  });

  it("is allowed for the daemon's own user, and over the network for admins below share_roots", async (t) => {
    await daemon.down();
    const inside = join(folder.path, "package");
    await daemon.up(["--bind", "127.0.0.1:0", "--share-roots", `/nowhere,${inside}`]);
    t.after(async () => {
      await daemon.down();
      await daemon.up();
    });
    const over = async (scope: "admin" | "operator"): Promise<Controller> => {
      const { token } = await daemon.controller.createToken(`sharing-${scope}`, { scope });
      return new Controller({ url: `http://${daemon.bind}`, token });
    };
    const [exec, admin] = [await over("admin"), await over("operator")];
    const at = (source: string): { shares: Share[] } => ({ shares: [{ source, target: AT }] });
    await symlink(folder.path, join(inside, "out"));
    t.after(async () => rm(join(inside, "out")));
    for (const source of [inside, folder.path, "/gone"])
      await assert.rejects(exec.spawnSandboxes("python", at(source)), { code: "FORBIDDEN" });
    for (const source of [folder.path, join(inside, "out"), `${inside}/..`])
      await assert.rejects(admin.spawnSandboxes("python", at(source)), { code: "FORBIDDEN" });
    const [info] = await admin.spawnSandboxes("python", at(inside));
    assert.deepEqual(info?.shares, [{ source: inside, target: AT }]);
    await assert.rejects(exec.forkSandbox(info?.id ?? "", at(inside)), { code: "FORBIDDEN" });
    // forks and branches of a sandbox keep its shares
    const { sandboxes } = await exec.forkSandbox(info?.id ?? "");
    assert.deepEqual(sandboxes[0]?.shares, [{ source: inside, target: AT }]);
    assert.deepEqual(
      (await exec.spawnSandboxes("python", { shares: [] })).map((one) => one.shares),
      [[]],
    );
  });

  it("of a misbehaving guest has no effect on others", async () => {
    const [hostile, good] = [await create(), await create()];
    const flood = `
import os, threading
def ask(n):
    for i in range(60):
        try: os.stat("${AT}/%d-%d" % (n, i))
        except OSError: pass
        try: os.close(os.open("${AT}/file", os.O_RDONLY))
        except OSError: pass
threads = [threading.Thread(target=ask, args=(n,)) for n in range(30)]
for t in threads: t.start()
for t in threads: t.join()
`;
    const flooding = hostile.exec(["python3", "-c", flood], { timeoutSecs: patience() / 1000 });
    for (let i = 0; i < 10; i++) assert.equal(await read(good), "content");
    assert.equal((await flooding).exit_code, 0);
    // a FUSE mount of the guest that answers with garbage, and the unmount of the share
    const own = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/own", exist_ok=True)
fd = os.open("/dev/fuse", os.O_RDWR)
options = ("fd=%d,rootmode=40000,user_id=0,group_id=0" % fd).encode()
assert libc.mount(b"x", b"/own", b"fuse", 0, options) == 0, ctypes.get_errno()
os.read(fd, 1 << 16)
for size in (1, 16, 80, 4096):
    try: os.write(fd, os.urandom(size))
    except OSError: pass
`;
    assert.equal((await hostile.exec(["python3", "-c", own])).exit_code, 0);
    assert.equal(await read(hostile), "content");
    assert.equal(await out(hostile, `umount -l ${AT} && ls -A ${AT}`), "");
    assert.equal((await hostile.eval("1 + 1")).value, 2);
    assert.equal(await read(good), "content");
    const [tip] = await hostile.fork(1);
    assert.ok(tip);
    assert.equal(await read(tip), "content");
  });

  it("can be given on the command line", async () => {
    const forked = await daemon.cli(
      ["fork", "python", "--name", "by-cli", "--share", `${folder.path}:${AT}`, "--share", "package:/package", "--share", "a"],
      {
        cwd: folder.path,
      },
    );
    assert.equal(forked.code, 0, forked.stderr);
    assert.equal((await daemon.cli(["exec", "by-cli", "--", "cat", `${AT}/file`, "/package/inner.py"])).stdout, "content\nanswer = 42\n");
    assert.match((await daemon.cli(["inspect", "by-cli"])).stdout, new RegExp(`${folder.path} at ${AT}`));
    assert.equal((await daemon.cli(["exec", "by-cli", "--", "ls", join(folder.path, "a")])).stdout, "b\n");
    const bare = await daemon.cli(["fork", "--from-sandbox", "by-cli", "--no-shares", "--json"]);
    assert.deepEqual((JSON.parse(bare.stdout) as { sandboxes: { shares: [] }[] }).sandboxes[0]?.shares, []);
    const argv = ["run", "--image", "python-numpy", "--memory-mib", "256", "--share", `.:${AT}`, "--", "cat", `${AT}/file`];
    const ran = await daemon.cli(argv, { cwd: folder.path });
    assert.equal(ran.stdout, "content\n", ran.stderr);
    assert.equal((await daemon.cli(["fork", "python", "--share", "non:sense"])).code, 2);
    assert.equal((await daemon.cli(["fork", "python", "--share", "/a:/b", "--no-shares"])).code, 2);
  });
});

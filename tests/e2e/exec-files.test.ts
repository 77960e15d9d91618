// Programs and files of the guest: arguments, streams, users, timeouts, large transfers.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { setImmediate as turn } from "node:timers/promises";
import { after, before, describe, it } from "node:test";
import { clockTolerance, rejection, sh, sha256 } from "../helpers/guest.ts";
import { isRunning, namesIn } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import { startVm, type TestVm } from "../helpers/vm.ts";

import type { Sandbox } from "@forkd/runtime";

type Watch = Awaited<ReturnType<Sandbox["start"]>>;

const MIB = 1024 * 1024;
const LARGE = 30 * MIB;
/** Timeout for programs that do not end: many times the start-up time of a shell */
const SHORT_MS = patience(0.1);

/** Prints pseudo-random bytes that both sides can compute */
const PRINT_LARGE = `
import hashlib, sys
h = hashlib.sha256()
left = ${LARGE}
n = 0
while left:
    piece = hashlib.sha512(str(n).encode()).digest() * 1024
    piece = piece[:left]
    h.update(piece)
    sys.stdout.buffer.write(piece)
    left -= len(piece)
    n += 1
sys.stdout.buffer.flush()
sys.stderr.write(h.hexdigest())
`;

describe("a sandbox", () => {
  let vm: TestVm;
  let sandbox: Sandbox;
  let forkedAt: number;
  before(async () => {
    vm = await startVm("exec");
    forkedAt = Date.now();
    sandbox = await vm.fork();
  });
  after(async () => vm.close());

  describe("programs", () => {
    it("get their arguments unchanged", async () => {
      const args = ["", "two words", "'\"$(id)`\\", "ünïcode ☃", "line\nend"];
      const { stdout } = await sandbox.exec(["python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", ...args]);
      assert.deepEqual(JSON.parse(stdout.toString()), args);
      await rejection(sandbox.exec([]), "BAD_REQUEST");
    });

    it("get their environment and working folder", async () => {
      const { stdout } = await sandbox.exec(["sh", "-c", 'pwd; echo "$A|$B|$HOME|$USER"'], {
        env: { A: "1 2", B: "=" },
        cwd: "/usr/share",
      });
      assert.equal(stdout.toString(), "/usr/share\n1 2|=|/root|root\n");
      const error = await rejection(sandbox.exec(["true"], { cwd: "/no/such/folder" }), "EXEC_FAILED");
      assert.match(error.message, /no\/such\/folder/);
    });

    it("run as the requested user", async () => {
      const id = ["sh", "-c", "echo $(id -u):$(id -g):$(id -un 2>/dev/null)"];
      const as = async (user?: string): Promise<string> => (await sandbox.exec(id, { user })).stdout.toString().trim();
      assert.equal(await as(), "0:0:root");
      assert.equal(await as("daemon"), "1:1:daemon");
      assert.equal(await as("1"), "1:1:daemon");
      assert.match(await as("1234:4321"), /^1234:4321:/);
      const error = await rejection(sandbox.exec(["true"], { user: "nobody-of-that-name" }), "EXEC_FAILED");
      assert.match(error.message, /nobody-of-that-name/);
      const denied = await sandbox.exec(["sh", "-c", "echo x > /etc/passwd"], { user: "daemon" });
      assert.notEqual(denied.code, 0);
    });

    it("read their input up to its end", async () => {
      const text = await sandbox.exec(["cat"], { stdin: "hällo\n" });
      assert.equal(text.stdout.toString(), "hällo\n");
      const bytes = randomBytes(3 * MIB);
      assert.equal((await sandbox.exec(["sha256sum"], { stdin: bytes })).stdout.toString().split(" ")[0], sha256(bytes));
      assert.equal((await sandbox.exec(["cat"], { stdin: "" })).stdout.length, 0);
      assert.equal((await sandbox.exec(["cat"])).stdout.length, 0);
      assert.equal((await sandbox.exec(["true"], { stdin: bytes })).code, 0, "a program need not read its input");
    });

    it("keep stdout and stderr apart", async () => {
      const { stdout, stderr, code } = await sandbox.exec(["sh", "-c", "echo out; echo err >&2; echo out again; exit 7"]);
      assert.deepEqual([stdout.toString(), stderr.toString(), code], ["out\nout again\n", "err\n", 7]);
    });

    it("report how they ended", async () => {
      assert.deepEqual(pick(await sandbox.exec(["true"])), { code: 0, signal: null, timedOut: false });
      assert.deepEqual(pick(await sandbox.exec(["sh", "-c", "exit 255"])), { code: 255, signal: null, timedOut: false });
      assert.deepEqual(pick(await sandbox.exec(["sh", "-c", "kill -SEGV $$"])), { code: null, signal: "SIGSEGV", timedOut: false });
      const process = await sandbox.start(["sleep", "1000"]);
      process.signal("SIGTERM");
      assert.deepEqual(await process.finish(), { code: null, signal: "SIGTERM", timedOut: false });
    });

    it("are ended with their whole process group at a time-out", async () => {
      const script = "sleep 7777 & sh -c 'sleep 7778; true' & echo started; wait";
      const result = await sandbox.exec(["sh", "-c", script], { timeoutMs: SHORT_MS });
      assert.equal(result.timedOut, true);
      assert.equal(result.code, null);
      assert.equal(result.stdout.toString(), "started\n");
      assert.equal(await sh(sandbox, "grep -alE '^sleep.777[78]' /proc/[0-9]*/cmdline || true"), "");
    });

    it("that ignore the time-out's signal are killed", async () => {
      const result = await sandbox.exec(["sh", "-c", "trap '' TERM; echo armed; while :; do sleep 1; done"], { timeoutMs: SHORT_MS });
      assert.deepEqual(pick(result), { code: null, signal: "SIGKILL", timedOut: true });
      assert.equal(result.stdout.toString(), "armed\n");
    });

    it("are ended when the caller aborts", async () => {
      const controller = new AbortController();
      const started = Promise.withResolvers<void>();
      const process = await sandbox.start(["sh", "-c", "echo up; exec sleep 7779"]);
      const ended = process.finish(() => started.resolve());
      await started.promise;
      process.signal("SIGKILL");
      await ended;
      const running = sandbox.exec(["sleep", "7780"], { signal: controller.signal });
      await until(async () => (await sandbox.processes.list()).some(({ argv, exit }) => !exit && argv[1] === "7780"));
      controller.abort(new Error("no more"));
      await assert.rejects(running, /no more/);
      assert.equal(await sh(sandbox, "grep -alE '^sleep.7780' /proc/[0-9]*/cmdline || true"), "");
    });

    it("bound to their stream end with it, and at once in a fork; others continue", async () => {
      const start = async (number: number, ephemeral: boolean): Promise<Watch> =>
        sandbox.start(["sh", "-c", `sleep ${number}; true`], { ephemeral });
      const alive = async (where: Sandbox): Promise<string> => sh(where, "grep -alE '^sleep.778[12]' /proc/[0-9]*/cmdline | wc -l");
      const [short, long] = [await start(7781, true), await start(7782, false)];
      await until(async () => (await alive(sandbox)) === "2");
      const { snapshot } = await vm.runtime.branch(sandbox, `${vm.tag}-ephemeral`);
      const child = await vm.fork(snapshot);
      assert.equal(await alive(child), "1");
      await child.kill();
      assert.equal(await alive(sandbox), "2");
      short.close();
      await until(async () => (await alive(sandbox)) === "1");
      long.signal("SIGKILL");
      await long.finish();
    });

    it("lose nothing of 30 MB of output", async () => {
      const { stdout, stderr, code } = await sandbox.exec(["python3", "-c", PRINT_LARGE]);
      assert.equal(code, 0);
      assert.equal(stdout.length, LARGE);
      assert.equal(sha256(stdout), stderr.toString());
    });

    it("wait for a slow reader", async () => {
      const parts: Buffer[] = [];
      let inside = 0;
      const process = await sandbox.start(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'a'; echo end"]);
      await process.finish(async (_channel, bytes) => {
        assert.equal(inside++, 0, "two pieces at once");
        for (let i = 0; i < 50; i++) await turn();
        parts.push(bytes);
        inside--;
      });
      const all = Buffer.concat(parts);
      assert.equal(all.length, 3_000_004);
      assert.equal(all.subarray(-5).toString(), "aend\n");
    });

    it("that do not exist are refused with the reason", async () => {
      for (const argv of [["no-such-program"], ["/no/such/program"], ["/etc/passwd"], ["/etc"]]) {
        const error = await rejection(sandbox.exec(argv), "EXEC_FAILED");
        assert.ok(error.message.includes(argv[0]!), error.message);
      }
    });

    it("may leave a background process running", async () => {
      const result = await sandbox.exec(["sh", "-c", "sleep 7781 & echo $!"]);
      const pid = result.stdout.toString().trim();
      assert.equal(await sh(sandbox, `tr '\\0' ' ' < /proc/${pid}/cmdline; kill ${pid}`), "sleep 7781");
    });

    it("can run concurrently", async () => {
      const answers = await Promise.all(Array.from({ length: 20 }, async (_, i) => sh(sandbox, `echo ${i}`)));
      assert.deepEqual(
        answers,
        Array.from({ length: 20 }, (_, i) => String(i)),
      );
    });
  });

  describe("files", () => {
    it("of 30 MB are transferred unchanged both ways", async () => {
      const content = randomBytes(LARGE);
      assert.equal(await sandbox.files.write("/var/tmp/large", content), LARGE);
      assert.equal((await sh(sandbox, "sha256sum /var/tmp/large")).split(" ")[0], sha256(content));
      assert.equal(sha256(await sandbox.files.read("/var/tmp/large")), sha256(content));
      const range: Buffer[] = [];
      for await (const chunk of sandbox.files.readChunks("/var/tmp/large", { offset: 12_345_678, length: 99_999 })) range.push(chunk);
      assert.ok(Buffer.concat(range).equals(content.subarray(12_345_678, 12_345_678 + 99_999)));
      await sh(sandbox, "rm /var/tmp/large");
    });

    it("can be read partially", async () => {
      await sh(sandbox, "head -c 5000000 /dev/zero > /var/tmp/left");
      let seen = 0;
      for await (const chunk of sandbox.files.readChunks("/var/tmp/left")) {
        seen += chunk.length;
        break;
      }
      assert.ok(seen > 0 && seen < 5_000_000);
      await sandbox.ping();
    });

    it("can be empty, and be appended to", async () => {
      await sandbox.files.write("/tmp/empty", "");
      assert.equal((await sandbox.files.read("/tmp/empty")).length, 0);
      await sandbox.files.write("/tmp/log", "one\n");
      await sandbox.files.write("/tmp/log", "two\n", { append: true });
      assert.equal((await sandbox.files.read("/tmp/log")).toString(), "one\ntwo\n");
      await sandbox.files.write("/tmp/log", "new\n");
      assert.equal((await sandbox.files.read("/tmp/log")).toString(), "new\n");
    });

    it("appear complete or not at all", async () => {
      await sandbox.files.write("/tmp/atomic/file", "the old content");
      const half = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      async function* content(): AsyncGenerator<Uint8Array> {
        yield Buffer.alloc(100_000, "n");
        half.resolve();
        await goOn.promise;
        yield Buffer.from("the end");
      }
      const writing = sandbox.files.write("/tmp/atomic/file", content());
      await half.promise;
      await sandbox.ping();
      assert.equal((await sandbox.files.read("/tmp/atomic/file")).toString(), "the old content");
      goOn.resolve();
      assert.equal(await writing, 100_007);
      assert.equal(await sh(sandbox, "tail -c 7 /tmp/atomic/file; ls -A /tmp/atomic"), "the endfile");
    });

    it("whose writer aborts are unchanged", async () => {
      await sandbox.files.write("/tmp/given-up/file", "old");
      async function* content(): AsyncGenerator<Uint8Array> {
        yield Buffer.alloc(300_000, "x");
        throw new Error("the source broke");
      }
      await assert.rejects(sandbox.files.write("/tmp/given-up/file", content()), /the source broke/);
      await sandbox.ping();
      assert.equal(await sh(sandbox, "cat /tmp/given-up/file; ls -A /tmp/given-up"), "oldfile");
    });

    it("that cannot be read are refused with the reason", async () => {
      for (const [path, code, errno] of [
        ["/no/such/file", "FILE_NOT_FOUND", "ENOENT"],
        ["/etc", "FILE_FAILED", "EISDIR"],
      ] as const) {
        const error = await rejection(sandbox.files.read(path), code);
        assert.ok(error.message.includes(path), error.message);
        assert.deepEqual(error.details, { errno });
      }
      await rejection(sandbox.files.stat("/no/such/file"), "FILE_NOT_FOUND");
      // a file is in the place of the parent folder
      await rejection(sandbox.files.write("/etc/passwd/under-a-file", "x"), "FILE_EXISTS");
      await rejection(sandbox.files.write("/no-parents/here", "x", { parents: false }), "FILE_NOT_FOUND");
    });

    it("have a kind, a size and a mode", async () => {
      const from = Date.now();
      await sandbox.files.write("/tmp/stat/me", "12345", { mode: 0o640 });
      const info = await sandbox.files.stat("/tmp/stat/me");
      assert.deepEqual([info.kind, info.mode & 0o777, info.uid, info.gid, info.size], ["file", 0o640, 0, 0, 5]);
      const tolerance = clockTolerance(sandbox, forkedAt);
      assert.ok(info.mtimeMs >= from - tolerance && info.mtimeMs <= Date.now() + tolerance, `${info.mtimeMs}`);
      assert.equal((await sandbox.files.stat("/tmp/stat")).kind, "directory");
      assert.equal((await sandbox.files.stat("/dev/null")).kind, "char");
      await sh(sandbox, "ln -s /nowhere /tmp/stat/link; mkfifo /tmp/stat/fifo");
      assert.equal((await sandbox.files.stat("/tmp/stat/link")).kind, "symlink");
      assert.equal((await sandbox.files.stat("/tmp/stat/fifo")).kind, "fifo");
    });

    it("are unreachable after the sandbox powers off", async () => {
      const child = await vm.fork();
      const { pid } = child.vm;
      await child.powerOff();
      assert.equal(child.alive, false);
      assert.equal(isRunning(pid), false);
      assert.deepEqual(await namesIn(child.dir), []);
      assert.ok(!vm.runtime.sandboxes.includes(child));
      assert.deepEqual((({ code, signal }) => ({ code, signal }))(await child.vm.exited), { code: 0, signal: null });
      await rejection(child.ping(), "VMM_EXITED");
    });
  });
});

function pick({ code, signal, timedOut }: { code: number | null; signal: string | null; timedOut: boolean }): unknown {
  return { code, signal, timedOut };
}

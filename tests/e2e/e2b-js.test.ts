// E2B's unmodified npm packages against the daemon: the newest and two older versions.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import * as newest from "e2b";
import * as older from "e2b-2.38";
import * as oldest from "e2b-2.14";
import { newestUnlessAll } from "../helpers/all.ts";
import { E2bDaemon, forgetClocks, PATIENT } from "../helpers/e2b.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";

type Sdk = typeof newest;
type Sandbox = newest.Sandbox;

const SDKS = newestUnlessAll<Sdk>({
  "e2b 2.51": newest,
  "e2b 2.38": older as unknown as Sdk,
  "e2b 2.14": oldest as unknown as Sdk,
});

let e2b: E2bDaemon;

before(async () => {
  forgetClocks();
  e2b = await E2bDaemon.start();
  Object.assign(process.env, e2b.env);
});

after(async () => {
  for (const name of Object.keys(e2b.env)) delete process.env[name];
  await e2b[Symbol.asyncDispose]();
});

for (const [version, sdk] of Object.entries(SDKS)) {
  describe(version, () => {
    const { Sandbox, CommandExitError, TimeoutError, AuthenticationError, InvalidArgumentError } = sdk;
    // error classes that the oldest version does not have
    const FileNotFoundError = sdk.FileNotFoundError ?? sdk.NotFoundError;
    const SandboxNotFoundError = sdk.SandboxNotFoundError ?? sdk.NotFoundError;
    const isOldest = sdk === (oldest as unknown as Sdk);
    let sandbox: Sandbox;

    before(async () => {
      sandbox = await Sandbox.create({ ...PATIENT, envs: { COLOUR: "blue" }, metadata: { "a b": `c&d=${version}` } });
    });

    after(async () => {
      await sandbox.kill();
    });

    test("commands: output, environment, user, exit codes", async () => {
      assert.match(sandbox.sandboxId, /^[a-z0-9]+$/);
      const result = await sandbox.commands.run("echo $COLOUR $USER $PWD $ME; echo oops >&2", { envs: { ME: "you" } });
      assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["blue user /home/user you\n", "oops\n", 0]);
      assert.equal((await sandbox.commands.run("id -un; pwd", { user: "root", cwd: "/tmp" })).stdout, "root\n/tmp\n");
      await assert.rejects(sandbox.commands.run("echo x; exit 3"), (error) => {
        assert.ok(error instanceof CommandExitError);
        assert.deepEqual([error.exitCode, error.stdout, error.error], [3, "x\n", "exit status 3"]);
        return true;
      });
      await assert.rejects(sandbox.commands.run("true", { cwd: "/nowhere" }), InvalidArgumentError);
      await assert.rejects(
        sandbox.commands.run("true", { user: "stranger" }),
        (error) => error instanceof AuthenticationError && error.message.includes("invalid username: 'stranger'"),
      );
    });

    test("commands: one that exceeds its time-out is ended, in the guest too", async () => {
      await assert.rejects(sandbox.commands.run("sleep 4321", { timeoutMs: 500 }), TimeoutError);
      await until(async () => (await sandbox.commands.list()).length === 0);
    });

    test("commands: in the background, with stdin, listed, connected to and killed", async () => {
      const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
      const listed = (await sandbox.commands.list()).map(({ pid, cmd, args }) => ({ pid, cmd, args }));
      assert.deepEqual(listed, [{ pid: cat.pid, cmd: "/bin/bash", args: ["-l", "-c", "cat"] }]);
      const seen: string[] = [];
      const again = await sandbox.commands.connect(cat.pid, { onStdout: (text) => void seen.push(text) });
      await sandbox.commands.sendStdin(cat.pid, "hello\n");
      await until(() => seen.join("") === "hello\n" && cat.stdout === "hello\n");
      assert.equal(await sandbox.commands.kill(cat.pid), true);
      for (const handle of [cat, again])
        await assert.rejects(handle.wait(), (error) => error instanceof CommandExitError && error.error === "signal: killed");
      assert.equal(await sandbox.commands.kill(999_999), false);
    });

    test("terminals: input and resize", async () => {
      let output = "";
      const onData = (data: Uint8Array): void => void (output += Buffer.from(data).toString());
      const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData });
      await sandbox.pty.resize(terminal.pid, { cols: 101, rows: 31 });
      await sandbox.pty.sendInput(terminal.pid, Buffer.from("stty size; exit\n"));
      await terminal.wait();
      assert.match(output, /31 101/);
    });

    test("files: written and read in every format", async () => {
      const { files } = sandbox;
      const { path } = await files.write("notes/ä b.txt", "first");
      assert.equal(path, "/home/user/notes/ä b.txt");
      assert.equal(await files.read("~/notes/ä b.txt"), "first");
      const bytes = Uint8Array.from({ length: 3_000_000 }, (_, at) => at % 251);
      await files.write("/srv/data/bytes", bytes.buffer);
      assert.deepEqual(await files.read("/srv/data/bytes", { format: "bytes" }), bytes);
      assert.equal((await sandbox.commands.run("stat -c '%U %a' /srv/data /srv/data/bytes")).stdout, "user 755\nuser 644\n");
      await files.write([
        { path: "many/1", data: "one" },
        { path: 'many/"2"', data: "two" },
        { path: "many/empty", data: "" },
      ]);
      assert.equal(await files.read('many/"2"'), "two");
      assert.equal(await files.read("many/empty"), "");
      const stream = await files.read("many/1", { format: "stream" });
      assert.equal(await new Response(stream).text(), "one");
      await assert.rejects(files.read("nowhere"), FileNotFoundError);
      await assert.rejects(files.write("/home/user", "x"), InvalidArgumentError);
    });

    test("folders: created, listed, moved, removed", async () => {
      const { files } = sandbox;
      assert.deepEqual([await files.makeDir("d/e"), await files.makeDir("d/e")], [true, false]);
      await files.write("d/e/f", "x");
      const entries = (await files.list("d", { depth: 2 })).map(({ path, type, permissions, owner }) => [path, type, permissions, owner]);
      assert.deepEqual(entries, [
        ["/home/user/d/e", "dir", "drwxr-xr-x", "user"],
        ["/home/user/d/e/f", "file", "-rw-r--r--", "user"],
      ]);
      await sandbox.commands.run("ln -s d/e/f link");
      const link = await files.getInfo("link");
      assert.deepEqual([link.type, link.symlinkTarget, link.size], ["file", "/home/user/d/e/f", 1]);
      assert.equal((await files.rename("d/e/f", "new/place")).path, "/home/user/new/place");
      assert.deepEqual([await files.exists("d/e/f"), await files.exists("new/place")], [false, true]);
      await files.remove("d");
      await files.remove("d");
      assert.equal(await files.exists("d"), false);
      await assert.rejects(files.list("d"), FileNotFoundError);
      await assert.rejects(files.list("new/place"), InvalidArgumentError);
    });

    test("folders: watched", async () => {
      const { files } = sandbox;
      await files.write("watched/a", "1");
      const seen = new Set<string>();
      const handle = await files.watchDir("watched", ({ type, name }) => void seen.add(`${type} ${name}`), { recursive: true });
      await files.write("watched/a", "2");
      await files.makeDir("watched/b");
      await files.rename("watched/a", "watched/c");
      await files.remove("watched/c");
      const expected = ["write a", "create b", "rename a", "create c", "remove c"];
      await until(() => expected.every((event) => seen.has(event)));
      await files.makeDir("watched/d");
      await until(() => seen.has("create d"));
      await files.write("watched/d/e", "new");
      await until(() => ["create d/e", "chmod d/e", "write d/e"].every((event) => seen.has(event)));
      await handle.stop();
      await assert.rejects(
        files.watchDir("nowhere", () => undefined),
        FileNotFoundError,
      );
    });

    test("files: by signed URLs", async () => {
      const form = new FormData();
      form.append("file", new Blob(["by address"]), "ignored");
      const upload = await sandbox.uploadUrl("signed.txt");
      assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
      const download = await sandbox.downloadUrl("signed.txt", { useSignatureExpiration: patience() });
      assert.equal(await (await fetch(download)).text(), "by address");
      assert.equal((await fetch(download.replace("signed.txt", "other.txt"))).status, 401);
      const old = await fetch(await sandbox.downloadUrl("signed.txt", { useSignatureExpiration: -10_000 }));
      assert.deepEqual([old.status, await old.json()], [401, { code: 401, message: "signature is already expired" }]);
    });

    test("a sandbox is described, found by its metadata, and connected to a second time", async () => {
      const info = await Sandbox.getInfo(sandbox.sandboxId);
      assert.deepEqual([info.state, info.templateId, info.metadata], ["running", "base", { "a b": `c&d=${version}` }]);
      const listed = await Sandbox.list({ query: { metadata: { "a b": `c&d=${version}` }, state: ["running"] } }).nextItems();
      assert.deepEqual(
        listed.map(({ sandboxId }) => sandboxId),
        [sandbox.sandboxId],
      );
      assert.deepEqual(await Sandbox.list({ query: { metadata: { "a b": "other" } } }).nextItems(), []);
      const same = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1000 });
      assert.equal((await same.commands.run("echo same")).stdout, "same\n");
      assert.ok((await same.getInfo()).endAt >= info.endAt, "connecting does not shorten its life");
      await same.setTimeout(2 * PATIENT.timeoutMs);
      assert.ok((await same.getInfo()).endAt > info.endAt);
    });

    test("killing a sandbox ends its running requests", async () => {
      const short = await Sandbox.create(PATIENT);
      const under = assert.rejects(short.commands.run("sleep 4321", { timeoutMs: 0 }), isOldest ? sdk.SandboxError : TimeoutError);
      await until(async () => (await short.commands.list()).length === 1);
      assert.equal(await short.isRunning(), true);
      await short.kill();
      await under;
      assert.equal(await short.isRunning(), false);
      await assert.rejects(short.commands.run("true"), SandboxNotFoundError);
      await assert.rejects(Sandbox.connect(short.sandboxId), SandboxNotFoundError);
      if (!isOldest) assert.equal(await Sandbox.kill(short.sandboxId), false);
    });

    test("keys: a wrong one is refused, and one with a limit is limited", async () => {
      await assert.rejects(Sandbox.create({ apiKey: "e2b_00" }), AuthenticationError);
      const name = `limited-${version.replaceAll(/\W/g, "-")}`;
      const { token } = await e2b.daemon.controller.createToken(name, { maxSandboxes: 1 });
      const apiKey = token.replace("fkd_", "e2b_");
      const only = await Sandbox.create({ apiKey, ...PATIENT });
      await assert.rejects(Sandbox.create({ apiKey }), sdk.RateLimitError);
      await only.kill();
    });
  });
}

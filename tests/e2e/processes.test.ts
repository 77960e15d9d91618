// Live processes through the daemon: streamed output, input, signals, several watchers.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { after, before, describe, it } from "node:test";
import { Sandbox, type Process } from "forkd";
import { rounds } from "../helpers/all.ts";
import { TestDaemon } from "../helpers/daemon.ts";
import { residentMemory } from "../helpers/host.ts";
import { patience } from "../helpers/patience.ts";
import { SpecClient } from "../helpers/spec-client.ts";
import { until } from "../helpers/until.ts";

const MIB = 1024 * 1024;
const KEPT = 262_144;
const LARGE = 100 * MIB;

/** Prints numbers until the file /tmp/stop exists */
const COUNT = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.01; done; echo end";

describe("live processes", () => {
  let daemon: TestDaemon;
  let sandbox: Sandbox;
  let rest: SpecClient;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    rest = new SpecClient({ socketPath: daemon.socket });
    sandbox = await Sandbox.create("python", { controller: daemon.controller });
  });

  after(async () => daemon[Symbol.asyncDispose]());

  const sh = async (script: string): Promise<string> => {
    const { stdout, stderr, exit_code: code } = await sandbox.exec(script);
    assert.equal(code, 0, stderr);
    return stdout.trim();
  };

  /** Complete output of a process */
  const textOf = async (process: Process): Promise<string> => {
    let text = "";
    for await (const event of process.output()) text += event.type === "lost" ? `[lost ${event.bytes}]` : event.text;
    return text;
  };

  /** Collects output in the background */
  const reads = async (process: Process): Promise<{ text: () => string }> => {
    let text = "";
    void (async () => {
      for await (const event of process.output()) text += event.type === "lost" ? `[lost ${event.bytes}]` : event.text;
    })().catch(() => undefined); // the handle may be closed
    return { text: () => text };
  };

  it("stream both outputs as they are written, and accept input in between", async () => {
    const seen: string[] = [];
    const process = await sandbox.processes.start("echo one; read x; echo $x >&2; read y; echo $y; exit 5", {
      stdin: true,
      onStdout: (text) => void seen.push(`out ${text}`),
      onStderr: (text) => void seen.push(`err ${text}`),
    });
    await until(() => seen.length === 1);
    await process.write("two\n");
    await until(() => seen.length === 2);
    await process.write("thr");
    await process.write("ee\n");
    assert.deepEqual(await process.wait(), { exit_code: 5, signal: null, timed_out: false });
    assert.deepEqual(seen, ["out one\n", "err two\n", "out three\n"]);
  });

  it("get their environment, folder and user", async () => {
    const script = 'echo "$(pwd) $(id -un) $A $HOME"';
    const process = await sandbox.processes.start(script, { env: { A: "b c" }, cwd: "/usr/share", user: "daemon" });
    assert.equal(await textOf(process), "/usr/share daemon b c /usr/sbin\n");
    const info = await sandbox.processes.get(process.id);
    assert.deepEqual([info.cwd, info.user, info.state, info.exit_code], ["/usr/share", "daemon", "ended", 0]);
  });

  it("continue after their client disconnected, and can be attached to at its position", async () => {
    await sh("rm -f /tmp/stop");
    const process = await sandbox.processes.start(COUNT, { tag: "counter" });
    const { text } = await reads(process);
    await until(() => text().includes("\n20\n"));
    process.detach();
    const { cursor } = process;
    const before = text();
    const known = await sandbox.processes.get("counter");
    await until(async () => (await sandbox.processes.get("counter")).stdout_bytes > known.stdout_bytes + 50);
    const again = await sandbox.processes.attach("counter", { from: cursor });
    assert.deepEqual([again.id, again.tag], [process.id, "counter"]);
    await sh("touch /tmp/stop");
    const since = await textOf(again);
    const numbers = `${before}${since}`.split("\n").slice(0, -2).map(Number);
    assert.deepEqual(
      numbers,
      Array.from({ length: numbers.length }, (_, i) => i + 1),
      "a number is missing, or came twice",
    );
    assert.equal((await again.wait()).exit_code, 0);
  });

  it("are watched by several clients, each at its own position", async () => {
    const process = await sandbox.processes.start("printf 0123456789; read x; printf $x; printf err >&2", { stdin: true });
    const first = await reads(process);
    await until(() => first.text() === "0123456789");
    const [old, fresh, middle] = await Promise.all([
      sandbox.processes.attach(process.id),
      sandbox.processes.attach(process.id, { from: "now" }),
      sandbox.processes.attach(process.id, { from: "4-0" }),
    ]);
    const all = Promise.all([old, fresh, middle].map(textOf));
    await process.write("next\n");
    assert.deepEqual(await all, ["0123456789nexterr", "nexterr", "456789nexterr"]);
    await until(() => first.text() === "0123456789nexterr");
  });

  it("report output that is no longer kept", async () => {
    const script = "import sys; sys.stdout.write(''.join('%07d\\n' % i for i in range(131072)))";
    const process = await sandbox.processes.start(["python3", "-c", script]);
    process.detach();
    await until(async () => (await sandbox.processes.get(process.id)).state === "ended");
    assert.equal((await sandbox.processes.get(process.id)).stdout_bytes, MIB);
    const text = await textOf(await sandbox.processes.attach(process.id));
    assert.ok(text.startsWith(`[lost ${MIB - KEPT}]`), text.slice(0, 40));
    const lines = text.slice(text.indexOf("]") + 1);
    assert.equal(lines.length, KEPT);
    assert.equal(lines.slice(0, 8), `${String((MIB - KEPT) / 8).padStart(7, "0")}\n`);
    assert.equal(lines.slice(-8), "0131071\n");
    const since = await textOf(await sandbox.processes.attach(process.id, { from: `${MIB - 8}-0` }));
    assert.equal(since, "0131071\n");
  });

  it("that ignore the time-out's signal are killed with their whole group", async () => {
    const script = "trap '' TERM; sleep 7001 & (trap '' TERM; sleep 7002) & echo armed; while :; do sleep 0.1; done";
    const process = await sandbox.processes.start(script, { timeoutSecs: patience(0.1) / 1000 });
    assert.equal(await textOf(process), "armed\n");
    assert.deepEqual(await process.wait(), { exit_code: 124, signal: "SIGKILL", timed_out: true });
    assert.equal(await sh("grep -alE '^sleep.700[12]' /proc/[0-9]*/cmdline || true"), "");
  });

  it("are killed with their group, and signalled alone or with it", async () => {
    const process = await sandbox.processes.start("sleep 7003 & echo up; wait");
    const { text } = await reads(process);
    await until(() => text() === "up\n");
    await sandbox.processes.kill(process.id);
    assert.equal((await sandbox.processes.get(process.id)).signal, "SIGKILL");
    assert.equal(await sh("grep -al '^sleep.7003' /proc/[0-9]*/cmdline || true"), "");
    const script =
      "trap 'echo parent' USR1; sh -c 'trap \"echo child; exit\" USR1; echo up; while :; do sleep 0.05; done' & while :; do wait; done";
    const family = await sandbox.processes.start(script);
    const said = await reads(family);
    await until(() => said.text() === "up\n");
    await family.kill("SIGUSR1", { scope: "process" });
    await until(() => said.text().includes("parent"));
    assert.ok(!said.text().includes("child"));
    await family.kill("SIGUSR1");
    await until(() => said.text().includes("child"));
    await sandbox.processes.kill(family.id);
  });

  it("read 100 MB of input in order, while the daemon's memory stays constant", async () => {
    const process = await sandbox.processes.start("cat | sha256sum", { stdin: true });
    const hash = createHash("sha256");
    const content = async function* (): AsyncGenerator<Uint8Array> {
      for (let left = LARGE; left > 0; left -= MIB) {
        const piece = randomBytes(MIB);
        hash.update(piece);
        yield piece;
      }
    };
    await writeFile(`/proc/${daemon.pid}/clear_refs`, "5");
    const before = residentMemory(daemon.pid).peakBytes / MIB;
    await process.write(content());
    const grown = residentMemory(daemon.pid).peakBytes / MIB - before;
    await process.closeStdin();
    assert.equal((await textOf(process)).split(" ")[0], hash.digest("hex"));
    assert.ok(grown < 64, `the daemon took ${grown} MiB more`);
  });

  it("report a closed stdin", async () => {
    const process = await sandbox.processes.start("exec <&-; echo closed; sleep 1000", { stdin: true, tag: "deaf" });
    const { text } = await reads(process);
    await until(() => text() === "closed\n");
    await assert.rejects(
      (async () => {
        for (;;) await process.write("x".repeat(1000));
      })(),
      { code: "STDIN_CLOSED" },
    );
    assert.equal((await sandbox.processes.get("deaf")).stdin_open, false);
    await sandbox.processes.kill("deaf");
    await assert.rejects(process.write("x"), { code: "PROCESS_ENDED" });
  });

  it("of exec are listed, and a second watcher takes no output from the first", async () => {
    const running = sandbox.exec("echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done");
    const isOurs = ({ args, state }: { args: string[]; state: string }): boolean =>
      state === "running" && String(args[2]).includes("/tmp/go");
    await until(async () => (await sandbox.processes.list()).some(isOurs));
    const found = (await sandbox.processes.list()).find(isOurs);
    const watching = textOf(await sandbox.processes.attach(found?.id ?? 0));
    await sh("touch /tmp/go");
    assert.equal((await running).stdout, "begun\ndone\n");
    assert.equal(await watching, "begun\ndone\n");
  });

  it("of forkd itself are hidden, and cannot be attached to", async () => {
    const { value } = await sandbox.eval("import os; x = 41; os.getpid()");
    assert.ok(!(await sandbox.processes.list()).some(({ pid }) => pid === value));
    for (const name of ["1", "kernel%2Fpython"]) {
      const { status } = await rest.problem("GET", `/v1/sandboxes/${sandbox.id}/processes/${name}/output`);
      assert.ok(status === 404 || status === 400, name);
    }
    assert.equal((await sandbox.eval("x + 1")).value, 42);
  });

  it("in large numbers are listed completely", async () => {
    const own = await Sandbox.create("python", { controller: daemon.controller });
    const many = rounds(200, 300);
    const long = "y".repeat(400);
    for (let i = 0; i < many; i += 50)
      await Promise.all(
        Array.from({ length: 50 }, async (_, at) =>
          daemon.controller.startProcess(own.id, ["sh", "-c", "sleep 1000; $0", long], { tag: `many-${i + at}` }),
        ),
      );
    const tags = (await own.processes.list()).map(({ tag }) => tag);
    assert.equal(new Set(tags).size, many);
    await own.kill();
  });

  it("that fork without end are ended by one call, and the guest continues", async () => {
    const own = await Sandbox.create("python", { controller: daemon.controller });
    const bomb = await own.processes.start("echo up; f() { f | f & }; f; sleep 1000");
    const { text } = await reads(bomb);
    await until(() => text().startsWith("up\n"));
    await own.processes.kill(bomb.id, { timeoutMs: patience() });
    assert.equal((await own.exec(["echo", "alive"], { timeoutSecs: patience() / 1000 })).stdout, "alive\n");
    await own.kill();
  });

  it("keep a sandbox in use while a client watches", async () => {
    const own = await Sandbox.create("python", { controller: daemon.controller });
    const process = await own.processes.start("for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; sleep 1000");
    const { text } = await reads(process);
    await daemon.controller.updateSandbox(own.id, { idleTimeoutSecs: 1 });
    await until(() => text().includes("6\n"));
    assert.equal((await own.refresh()).state, "running");
    process.detach();
    await until(async () => {
      const left = await daemon.controller.listSandboxes();
      return !left.some(({ id }) => id === own.id);
    });
  });

  it("are stopped in a paused sandbox, and their watchers wait", async () => {
    await sh("rm -f /tmp/stop");
    const process = await sandbox.processes.start(COUNT);
    const { text } = await reads(process);
    await until(() => text().length > 20);
    await sandbox.pause();
    await assert.rejects(sandbox.processes.list(), { code: "SANDBOX_PAUSED" });
    await sandbox.resume();
    const before = text();
    await until(() => text().length > before.length + 20);
    await sh("touch /tmp/stop");
    await until(() => text().endsWith("end\n"));
    const numbers = text().split("\n").slice(0, -2).map(Number);
    assert.deepEqual(
      numbers,
      numbers.map((_, i) => i + 1),
    );
  });

  it("over REST match the OpenAPI document", async () => {
    const path = `/v1/sandboxes/${sandbox.id}/processes`;
    const events = { accept: "text/event-stream" };
    const { bytes } = await rest.send("POST", path, { json: { args: ["sh", "-c", "printf 'ü%.0s' $(seq 40000)"] }, headers: events });
    assert.match(bytes.toString(), /^id: 0-0\nevent: started\n/);
    assert.doesNotMatch(bytes.toString(), /\ufffd/);
    const { body } = await rest.send("POST", path, { json: { args: ["true"] } });
    const { id } = body as { id: number };
    await until(async () => (await sandbox.processes.get(id)).state === "ended");
    const output = await rest.send("GET", `${path}/${id}/output?follow=false`);
    assert.match(output.bytes.toString(), /event: exit\n/);
    const running = await rest.send("POST", path, { json: { args: ["sh", "-c", "echo some; sleep 1000"], tag: "some" } });
    await until(async () => (await sandbox.processes.get("some")).stdout_bytes === 5);
    const some = await rest.send("GET", `${path}/some/output?follow=false`);
    assert.match(some.bytes.toString(), /event: stdout\ndata: \{"offset":0,"text":"some\\n"\}\n\n$/);
    await rest.send("DELETE", `${path}/${(running.body as { id: number }).id}`);
  });
});

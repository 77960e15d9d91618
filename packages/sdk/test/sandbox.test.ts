// The handle on one sandbox.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, EvalError, Sandbox } from "../src/index.ts";
import { FakeDaemon, problem } from "./helpers/fake-daemon.ts";
import { evalResult, sandbox } from "./helpers/samples.ts";

test("create, eval, fork, and kill at the end of the block", async () => {
  await using daemon = await FakeDaemon.start();
  {
    await using sb = await Sandbox.create("python", { socket: daemon.socket, env: { A: "b" } });
    await sb.eval("x = numpy.arange(5); x.sum()");
    const tips = await sb.fork(3);
    const best = await Promise.all(tips.map((t, i) => t.eval(`strategy(${i})`)));
    assert.equal(best.length, 2);
    assert.deepEqual(
      tips.map(({ id }) => id),
      ["sb-1", "sb-2"],
    );
  }
  assert.deepEqual(daemon.names, ["createSandboxes", "evalCode", "forkSandbox", "evalCode", "evalCode", "deleteSandbox"]);
  assert.deepEqual(daemon.seen[0]?.body, { snapshot_tag: "python", env: { A: "b" }, n: 1 });
  assert.deepEqual(daemon.seen[2]?.body, { n: 3 });
});

test("with kills the sandbox also when the function throws", async () => {
  await using daemon = await FakeDaemon.start();
  const controller = new Controller({ socket: daemon.socket });
  assert.equal(await Sandbox.with("py", (sb) => sb.id, { controller }), "sb-1");
  const fails = Sandbox.with("py", () => Promise.reject(new Error("mine")), { controller });
  await assert.rejects(fails, { message: "mine" });
  assert.deepEqual(daemon.names, ["createSandboxes", "deleteSandbox", "createSandboxes", "deleteSandbox"]);
});

test("the older form, with the tag among the options", async () => {
  await using daemon = await FakeDaemon.start();
  const sb = await Sandbox.create({ snapshotTag: "py", baseUrl: daemon.url, prewarm: true });
  assert.deepEqual(daemon.last.body, { snapshot_tag: "py", prewarm: true, n: 1 });
  assert.equal(sb.info.id, "sb-1");
});

test("code that raises throws, unless throwOnError is false", async () => {
  const raised = {
    ...evalResult,
    result: null,
    error: "ZeroDivisionError: division by zero",
    error_type: "ZeroDivisionError",
    traceback: "Trace",
    exit_code: 1,
  };
  await using daemon = await FakeDaemon.start((_seen, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(raised));
    return true;
  });
  const sb = new Sandbox(new Controller({ socket: daemon.socket }), sandbox);
  const error = await sb.eval("1/0").catch((reason: unknown) => reason);
  assert.ok(error instanceof EvalError);
  assert.deepEqual([error.message, error.errorType, error.traceback], [raised.error, "ZeroDivisionError", "Trace"]);
  assert.deepEqual(error.result, raised);
  assert.deepEqual(await sb.eval("1/0", { throwOnError: false }), raised);
  assert.deepEqual(daemon.last.body, { code: "1/0" });
});

test("a string is run by the guest's shell, an array directly", async () => {
  await using daemon = await FakeDaemon.start();
  const sb = await Sandbox.connect("sb-1", { socket: daemon.socket });
  await sb.exec("cd / && ls");
  assert.deepEqual(daemon.last.body, { args: ["/bin/sh", "-c", "cd / && ls"] });
  await sb.exec(["ls"], { cwd: "/" });
  assert.deepEqual(daemon.last.body, { args: ["ls"], cwd: "/" });
});

test("other methods call the controller, and info is updated", async () => {
  await using daemon = await FakeDaemon.start();
  const sb = await Sandbox.connect("sb-1", { socket: daemon.socket });
  await sb.ping();
  await sb.branch("b1");
  assert.deepEqual(daemon.last.body, { tag: "b1" });
  await sb.branch({ wait: false });
  assert.deepEqual(daemon.last.body, { wait: false });
  await sb.pause();
  assert.equal(sb.info.state, "paused");
  await sb.resume();
  assert.equal(sb.info.state, "running");
  await sb.extend(60);
  assert.deepEqual(daemon.last.body, { ttl_secs: 60 });
  await sb.update({ name: "new" });
  assert.equal(sb.info.name, "new");
  assert.equal((await sb.refresh()).name, null);
  assert.equal((await sb.stats()).id, "sb-1");
  assert.equal((await Array.fromAsync(sb.logs())).join(""), "booted ✓\n");
  assert.equal(await sb.files.readText("/x"), "content");
  assert.equal((await sb.files.read("/x")).length, 7);
  assert.equal((await Array.fromAsync(sb.files.readStream("/x"))).length, 1);
  assert.deepEqual(await sb.files.write("/x", new Uint8Array(7)), { bytes: 7 });
  assert.equal((await sb.files.stat("/x")).kind, "file");
});

test("kill returns whether the sandbox existed", async () => {
  await using daemon = await FakeDaemon.start((_seen, response, count) => {
    if (count === 1) return false;
    if (count === 2) return problem(response, 404, { code: "NOT_FOUND", error: "Gone." });
    if (count === 3) return problem(response, 410, { code: "SANDBOX_LOST", error: "Lost." });
    return problem(response, 500, { code: "INTERNAL", error: "Oh." });
  });
  const sb = new Sandbox(new Controller({ socket: daemon.socket }), sandbox);
  assert.equal(await sb.kill(), true);
  assert.equal(await sb.kill(), false);
  assert.equal(await sb.kill(), false);
  await assert.rejects(sb.kill(), { code: "INTERNAL" });
});

// How answers of the daemon are printed: tables, JSON, ids, exit codes, errors.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Controller } from "forkd";
import { stopIfIdle } from "../src/guest/temporary.ts";
import { fakeDaemon, problem } from "./fake-daemon.ts";
import { patience } from "../../../tests/helpers/patience.ts";
import { until } from "../../../tests/helpers/until.ts";
import { forkd, startForkd } from "./helpers.ts";
import * as samples from "./samples.ts";

const TWO = [
  samples.sandbox("sb-1", { name: "web", metadata: { a: "1" } }),
  samples.sandbox("sb-2", { state: "paused", idle_timeout_secs: 7200 }),
];
/** Longer than any test, but bounded */
const SLEEP_SECS = String(patience() / 1000);
const EXEC = { stdout: "", stderr: "", exit_code: 0, signal: null, timed_out: false, truncated: false };

test("ls prints a table, JSON or ids", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes": { json: TWO } });
  const table = (await forkd(["ls"], daemon.env)).stdout.split("\n");
  assert.match(table[0] ?? "", /^ID +NAME +SNAPSHOT +STATE +AGE +ENDS IN +METADATA$/);
  assert.match(table[1] ?? "", /^sb-1 +web +python +running +1h +never +a=1$/);
  assert.match(table[2] ?? "", /^sb-2 +- +python +paused +1h +(1h|2h) +-$/);
  assert.deepEqual(JSON.parse((await forkd(["ls", "--json"], daemon.env)).stdout), TWO);
  assert.equal((await forkd(["ls", "-q"], daemon.env)).stdout, "sb-1\nsb-2\n");
});

test("ports show a known owner, and text of a guest cannot control the terminal", async () => {
  const port = { port: 80, address: "0.0.0.0", family: "ipv4", protocol: "tcp", process: { pid: 7, name: "ngi\u001b[2Jnx" } };
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/web/ports": { json: [port, { ...port, port: 8080, process: null }] } });
  assert.equal(
    (await forkd(["ports", "web"], daemon.env)).stdout,
    "PORT  ADDRESS  PROCESS\n  80  0.0.0.0  ngi [2Jnx (7)\n8080  0.0.0.0  -\n",
  );
  daemon.answers["GET /v1/sandboxes/web/ports"] = { json: [] };
  assert.equal((await forkd(["ports", "web"], daemon.env)).stdout, "Nothing listens there.\n");
});

test("stdout has only the link", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes/web/ports/8000/preview": { status: 201, json: samples.preview() } });
  const { stdout, stderr } = await forkd(["preview", "web", "8000"], daemon.env);
  assert.equal(stdout, `${samples.preview().url}\n`);
  assert.match(stderr, /port 8000 of web until 2023-11-14 22:13:20 UTC/);
  assert.doesNotMatch(stderr, /fkp_/);
  assert.deepEqual(JSON.parse((await forkd(["preview", "web", "8000", "--json"], daemon.env)).stdout), samples.preview());
});

test("an empty list prints a hint, and nothing for scripts", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes": { json: [] } });
  assert.match((await forkd(["ls"], daemon.env)).stdout, /^There are no sandboxes\. .*forkd fork/);
  assert.equal((await forkd(["ls", "-q"], daemon.env)).stdout, "");
});

test("text of a guest or another user cannot control the terminal", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes": { json: [samples.sandbox("sb-1", { metadata: { a: "\u001b[2J\nx" } })] } });
  assert.match((await forkd(["ls"], daemon.env)).stdout, /a= \[2J x\n$/);
});

test("fork prints what has no effect once, on stderr", async () => {
  const made = ["sb-1", "sb-2"].map((id) => samples.sandbox(id, { warnings: ["per_child_netns has no effect."] }));
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes": { status: 201, json: made } });
  const { code, stdout, stderr } = await forkd(["fork", "python", "-n", "2", "--per-child-netns", "-q"], daemon.env);
  assert.deepEqual([code, stdout, stderr], [0, "sb-1\nsb-2\n", "Note: per_child_netns has no effect.\n"]);
});

test("fork --per-item prints both kinds of outcome and fails", async () => {
  const error = { error: "There is no memory.", code: "LIMIT_REACHED", hint: "End some.", request_id: "r" };
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes": { status: 207, json: { results: [{ sandbox: TWO[0] }, { error }] } } });
  const { code, stdout, stderr } = await forkd(["fork", "python", "-n", "2", "--per-item", "-q"], daemon.env);
  assert.deepEqual([code, stdout, stderr], [1, "sb-1\n", "forkd: There is no memory.\nEnd some. [LIMIT_REACHED]\n"]);
});

test("a daemon's error is printed once, with hint and code", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/x": problem(404, "NOT_FOUND", "There is no sandbox x.", "List them.") });
  const text = await forkd(["inspect", "x"], daemon.env);
  assert.deepEqual([text.code, text.stdout, text.stderr], [1, "", "forkd: There is no sandbox x.\nList them. [NOT_FOUND]\n"]);
  const json = await forkd(["inspect", "x", "--json"], daemon.env);
  assert.deepEqual([json.code, json.stderr], [1, ""]);
  assert.deepEqual(JSON.parse(json.stdout), { error: "There is no sandbox x.", code: "NOT_FOUND", hint: "List them." });
});

test("kill tries every id and fails when one failed", async () => {
  const answers = {
    "DELETE /v1/sandboxes/a": {},
    "DELETE /v1/sandboxes/c": {},
    "DELETE /v1/sandboxes/b": problem(404, "NOT_FOUND", "No b."),
  };
  await using daemon = await fakeDaemon(answers);
  const text = await forkd(["kill", "a", "b", "c"], daemon.env);
  assert.deepEqual(text, { code: 1, stdout: "Ended a.\nEnded c.\n", stderr: "forkd: No b.\nDo something. [NOT_FOUND]\n" });
  const json = await forkd(["kill", "a", "b", "--json"], daemon.env);
  assert.equal(json.code, 1);
  assert.deepEqual(JSON.parse(json.stdout), [
    { id: "a", ok: true },
    { id: "b", ok: false, error: "No b.", code: "NOT_FOUND", hint: "Do something." },
  ]);
});

test("exec --json prints the whole result", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes/sb-1/exec": { json: { ...EXEC, stdout: "hi\n", exit_code: 3 } } });
  const { code, stdout } = await forkd(["exec", "sb-1", "--json", "--", "x"], daemon.env);
  assert.equal(code, 3);
  assert.deepEqual(JSON.parse(stdout), { ...EXEC, stdout: "hi\n", exit_code: 3 });
});

test("the older form of exec fails with a hint to the sandbox id", async () => {
  for (const option of ["--target", "--child"]) {
    const { code, stderr } = await forkd(["exec", option, "10.42.0.2:8888", "--", "ls"]);
    assert.equal(code, 2);
    assert.match(stderr, new RegExp(`^forkd: ${option} is not possible: .*id.*\\n.*\\[USAGE\\]\\n$`));
  }
});

test("eval prints the output, then the value; an error is printed on stderr with exit code 1", async () => {
  const good = {
    result: "[1, 2]",
    error: null,
    error_type: null,
    traceback: null,
    exit_code: 0,
    stdout: "hi\n",
    stderr: "",
    truncated: false,
    results: [],
    execution_count: 1,
  };
  const bad = { ...good, result: null, error: "division by zero", traceback: "Traceback…\nZeroDivisionError", exit_code: 1, stdout: "" };
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes/sb-1/eval": { json: good } });
  assert.deepEqual(await forkd(["eval", "sb-1", "--", "x"], daemon.env), { code: 0, stdout: "hi\n[1, 2]\n", stderr: "" });
  daemon.answers["POST /v1/sandboxes/sb-1/eval"] = { json: bad };
  assert.deepEqual(await forkd(["eval", "sb-1", "--", "1/0"], daemon.env), {
    code: 1,
    stdout: "",
    stderr: "Traceback…\nZeroDivisionError\n",
  });
});

test("displayed objects are listed, and written to files with --save", async () => {
  const shown = { "text/plain": "<Figure>", "image/png": Buffer.from("png").toString("base64"), "text/html": "<b>" };
  const value = { is_main: true, data: { "application/json": { a: 1 } }, omitted: { "text/html": 9_000_000 } };
  const good = { result: "A", error: null, error_type: null, traceback: null, exit_code: 0, stdout: "hi\n", stderr: "", truncated: false };
  const json = { ...good, results: [{ is_main: false, data: shown }, value], execution_count: 1 };
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes/sb-1/eval": { json } });
  const plain = await forkd(["eval", "sb-1", "--", "x"], daemon.env);
  assert.equal(plain.stdout, "hi\n<Figure>\nA\n");
  assert.match(plain.stderr, /^Displayed: image\/png, text\/html\. .*--save.*\nDisplayed: application\/json, text\/html \(too large\)\./);
  const folder = await mkdtemp(join(tmpdir(), "forkd-save-"));
  try {
    const saved = await forkd(["eval", "sb-1", "--save", join(folder, "out"), "--", "x"], daemon.env);
    assert.equal(saved.stdout, plain.stdout);
    assert.match(saved.stderr, /^Saved: .*result-1\.png\nSaved: .*result-1\.html\nSaved: .*result-2\.json\n$/);
    assert.equal(await readFile(join(folder, "out", "result-1.png"), "utf8"), "png");
    assert.deepEqual(JSON.parse(await readFile(join(folder, "out", "result-2.json"), "utf8")), { a: 1 });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("stdout has only the new token", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/tokens": { status: 201, json: { ...samples.token("ci"), token: "abc-secret" } } });
  const { stdout, stderr } = await forkd(["token", "create", "ci"], daemon.env);
  assert.equal(stdout, "abc-secret\n");
  assert.match(stderr, /^Token ci, project default, scope exec\. It is shown once/);
  assert.doesNotMatch(stderr, /abc-secret/);
});

test("the exit code of status is 0 when the daemon runs and 3 when it does not, also for an address", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/status": { json: samples.status({ sandboxes: 2 }) } });
  const up = await forkd(["status"], daemon.env);
  assert.equal(up.code, 0);
  assert.match(up.stdout, /^daemon +0\.1\.0, pid 4242, up 1m$/m);
  assert.match(up.stdout, /^sandboxes +2 of at most 1000$/m);
  assert.match(up.stdout, /^confinement +namespaces$/m);
  assert.match(up.stdout, /^limits +none for single sandboxes: this host does not use cgroup v2 alone$/m);
  const down = await forkd(["status", "--json"], { FORKD_RUN: `${daemon.folder}/none` });
  assert.deepEqual([down.code, JSON.parse(down.stdout)], [3, { running: false }]);
  assert.equal((await forkd(["status", "--daemon-url", "http://127.0.0.1:9"], daemon.env)).code, 3);
});

test("down of a daemon that does not run says so", async () => {
  const { code, stdout } = await forkd(["down"], { FORKD_RUN: "/nonexistent/forkd" });
  assert.deepEqual([code, stdout], [0, "The daemon is not running.\n"]);
});

test("down stops the daemon and waits for the end of its process", async () => {
  const process = spawn("sleep", [SLEEP_SECS]);
  const status = samples.status({ pid: process.pid ?? 0, sandboxes: 2 });
  await using daemon = await fakeDaemon({
    "GET /v1/status": { json: status },
    "GET /v1/config": { json: { drain_secs: { value: 1, source: "default" } } },
    "POST /v1/stop": (_asked, response) => {
      setTimeout(() => process.kill(), 100);
      response.writeHead(202).end();
    },
  });
  const { code, stdout } = await forkd(["down"], daemon.env);
  assert.deepEqual([code, stdout], [0, "The daemon is stopped. 2 sandboxes continue to run; the next daemon takes them over.\n"]);
  assert.equal(process.killed, true);
  assert.deepEqual(daemon.asked.at(-1)?.body, { kill_sandboxes: false });
});

test("a daemon that a command started is stopped only if the daemon has no other users", async () => {
  for (const isUsed of [true, false]) {
    const process = spawn("sleep", [SLEEP_SECS]);
    await using daemon = await fakeDaemon({
      "GET /v1/status": { json: samples.status({ pid: process.pid ?? 0, sandboxes: 0 }) },
      "GET /v1/config": { json: { drain_secs: { value: 1, source: "default" } } },
      "POST /v1/stop": (_asked, response) => {
        if (isUsed) {
          response.writeHead(409, { "content-type": "application/json" });
          response.end(JSON.stringify({ error: "It is used.", code: "IN_USE", hint: "", request_id: "r" }));
          return;
        }
        process.kill();
        response.writeHead(202).end();
      },
    });
    await stopIfIdle(new Controller({ socket: `${daemon.folder}/forkd.sock` }));
    assert.deepEqual(daemon.asked.at(-1)?.body, { kill_sandboxes: false, if_idle: true });
    assert.equal(process.killed, !isUsed);
    process.kill();
  }
});

test("up of a running daemon prints that it runs and that options have no effect", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/status": { json: samples.status({ bind: "127.0.0.1:8889" }) } });
  const { code, stdout, stderr } = await forkd(["up", "--max-sandboxes", "5"], daemon.env);
  assert.equal(code, 0);
  assert.match(stdout, /^The daemon is running already \(pid 4242\)\.\n.*http:\/\/127\.0\.0\.1:8889.*forkd token create/s);
  assert.match(stderr, /^Note: .*'forkd down' first\.\n$/);
});

test("quickstart makes missing images and snapshots and prints next steps", async () => {
  await using daemon = await fakeDaemon({
    "POST /v1/images": { status: 201, json: {} },
    "POST /v1/snapshots": { status: 201, json: samples.snapshot("quickstart") },
    "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-1"), samples.sandbox("sb-2")] },
  });
  const { code, stdout } = await forkd(["quickstart", "-n", "2", "-y"], daemon.env);
  assert.equal(code, 0);
  assert.match(stdout, /^2 sandboxes in \d+ ms\. Next:\n {2}forkd eval sb-1 -- /m);
  assert.deepEqual(daemon.lines(), [
    "GET /v1/snapshots/quickstart",
    "GET /v1/images/python-numpy",
    "POST /v1/images",
    "POST /v1/snapshots",
    "POST /v1/sandboxes",
  ]);
});

test("progress of long work is shown, and its error is the command's", async () => {
  const shown = Promise.withResolvers<void>();
  await using daemon = await fakeDaemon({
    "POST /v1/snapshots": (_asked, response) => {
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.write(`${JSON.stringify({ progress: { step: "Warming up" } })}\n`);
      const error = { error: "The warm-up failed.", code: "WARMUP_FAILED", hint: "Correct it.", request_id: "r" };
      void shown.promise.then(() => response.end(`${JSON.stringify({ error })}\n`));
    },
  });
  const { output, closed } = startForkd(["snapshot", "create", "t"], daemon.env);
  await until(() => output() !== "");
  shown.resolve();
  assert.equal((await closed)[0], 1);
  assert.match(output(), /^(Warming up \(\d+ s\)\n)+forkd: The warm-up failed\.\nCorrect it\. \[WARMUP_FAILED\]\n$/);
});

test("bench --tag removes everything it made", async () => {
  await using daemon = await fakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-1")] },
    "POST /v1/sandboxes/sb-1/exec": { json: EXEC },
    "POST /v1/sandboxes/sb-1/branch": { status: 201, json: samples.snapshot("bench-x", { pause_ms: 3, pause_us: 3000 }) },
  });
  const { code, stdout } = await forkd(["bench", "--tag", "python", "--n", "1", "--per-child-netns", "true", "--json"], daemon.env);
  assert.equal(code, 0);
  const report = JSON.parse(stdout) as Record<string, unknown>;
  assert.partialDeepStrictEqual(report, { tag: "python", n: 1, pause_ms: 3 });
  const ends = daemon.lines().filter((line) => line.startsWith("DELETE"));
  assert.equal(ends.filter((line) => line === "DELETE /v1/sandboxes/sb-1").length, 2);
  assert.ok(ends.some((line) => /^DELETE \/v1\/snapshots\/bench-[0-9a-f]+\?force=true$/.test(line)));
});

test("events are printed as they arrive, one JSON value per line", async () => {
  const events = [1, 2].map((id) => ({
    id,
    time: "2026-01-02T03:04:05Z",
    type: "sandbox.created",
    sandbox: `sb-${id}`,
    snapshot: "python",
    principal: "local",
    reason: null,
    metadata: null,
  }));
  await using daemon = await fakeDaemon({
    "GET /v1/events": (_asked, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const event of events) response.write(`id: ${event.id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    },
  });
  const args = ["events", "--since", "0", "--types", "sandbox.created,sandbox.ended", "-n", "2"];
  const json = await forkd([...args, "--json"], daemon.env);
  assert.deepEqual(
    json.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
    events,
  );
  assert.equal(daemon.lines()[0], "GET /v1/events?types=sandbox.created%2Csandbox.ended&since=0");
  assert.match((await forkd(args, daemon.env)).stdout, /^2026-01-02T03:04:05Z +1 +sandbox\.created +sb-1 of python by local\n/);
});

test("Ctrl-C ends a request that has no answer, with 130", async () => {
  await using daemon = await fakeDaemon({ "POST /v1/sandboxes": () => {} });
  const { child, output, closed } = startForkd(["fork", "python"], daemon.env);
  await until(() => daemon.asked.length > 0);
  child.kill("SIGINT");
  assert.equal((await closed)[0], 130);
  assert.match(output(), /^forkd: Interrupted\.\n.*\[CANCELLED\]\n$/);
});

test("run makes image, snapshot and sandbox, runs the program, and removes them", async () => {
  await using daemon = await fakeDaemon({
    "POST /v1/images": { status: 201, json: {} },
    "POST /v1/snapshots": { status: 201, json: samples.snapshot("run-x") },
    "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-1")] },
    "POST /v1/sandboxes/sb-1/processes": (_asked, response) =>
      response.end(samples.processEvents({ stdout: "4\n", exit: { exit_code: 5 } })),
  });
  const { code, stdout, stderr } = await forkd(["run", "--image", "python3", "--", "python3", "-c", "print(4)"], daemon.env);
  assert.equal(code, 5);
  assert.equal(stdout, "4\n");
  assert.equal(stderr, "Getting the image python3; it is kept for the next time.\n");
  const lines = daemon.lines().map((line) => line.replaceAll(/run-[0-9a-f]+/g, "run-X"));
  assert.deepEqual(lines, [
    "GET /v1/images/python3",
    "POST /v1/images",
    "POST /v1/snapshots",
    "POST /v1/sandboxes",
    "POST /v1/sandboxes/sb-1/processes?encoding=base64",
    "DELETE /v1/sandboxes/run-X",
    "DELETE /v1/snapshots/run-X?force=true",
  ]);
  assert.deepEqual(daemon.asked[1]?.body, { name: "python3", packages: ["python3"] });
  assert.partialDeepStrictEqual(daemon.asked[2]?.body, { image: "python3", warm_up: { kernels: [] } });
  assert.partialDeepStrictEqual(daemon.asked[4]?.body, { timeout_secs: 600 });
});

test("run removes everything when the boot fails", async () => {
  await using daemon = await fakeDaemon({
    "GET /v1/images/mine": { json: {} },
    "POST /v1/snapshots": problem(500, "BOOT_FAILED", "The guest did not boot."),
  });
  const { code, stderr } = await forkd(["run", "--image", "mine", "--", "true"], daemon.env);
  assert.equal(code, 1);
  assert.match(stderr, /^forkd: The guest did not boot\.\n.*\[BOOT_FAILED\]\n$/);
  assert.match(daemon.lines().at(-1) ?? "", /^DELETE \/v1\/snapshots\/run-/);
});

test("snapshot-diff runs the command, branches and ends the fork", async () => {
  await using daemon = await fakeDaemon({
    "POST /v1/sandboxes": { status: 201, json: [samples.sandbox("sb-1")] },
    "POST /v1/sandboxes/sb-1/exec": { json: EXEC },
    "POST /v1/sandboxes/sb-1/branch": { status: 201, json: samples.snapshot("b", { pause_ms: 1, pause_us: 1000 }) },
  });
  const { code, stdout } = await forkd(["snapshot-diff", "--from", "a", "--tag", "b", "--exec", "touch x && y", "-q"], daemon.env);
  assert.deepEqual([code, stdout], [0, "b\n"]);
  assert.deepEqual(daemon.asked[1]?.body, { args: ["sh", "-c", "touch x && y"], timeout_secs: 600 });
  assert.match(daemon.lines().at(-1) ?? "", /^DELETE \/v1\/sandboxes\/run-/);
});

test("cleanup without -y in a pipe does not ask and removes nothing", async () => {
  const found = { removed: [{ kind: "staging", name: "x", bytes: 10 }], bytes: 10, dry_run: true };
  await using daemon = await fakeDaemon({ "POST /v1/gc": { json: found } });
  const { code, stderr } = await forkd(["cleanup"], daemon.env);
  assert.equal(code, 2);
  assert.match(stderr, /--yes/);
  assert.deepEqual(
    daemon.asked.map((asked) => asked.body),
    [{ dry_run: true }],
  );
});

test("the token of an address is only in the header", async () => {
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes": { json: [] } });
  const env = { FORKD_URL: `unix://${daemon.folder}/forkd.sock`, FORKD_TOKEN: "a-very-secret-token" };
  const { stdout, stderr } = await forkd(["ls"], env);
  assert.equal(daemon.asked[0]?.headers.authorization, "Bearer a-very-secret-token");
  assert.doesNotMatch(stdout + stderr, /a-very-secret-token/);
  await forkd(["ls"], { ...daemon.env, FORKD_TOKEN: "a-very-secret-token" });
  assert.equal(daemon.asked[1]?.headers.authorization, undefined);
});

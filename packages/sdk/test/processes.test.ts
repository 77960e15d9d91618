// Handles on processes: output, input in order, lost connections.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Controller, SandboxProcesses, type Process, type ProcessOutput } from "../src/index.ts";
import { FakeDaemon, problem, type Override } from "./helpers/fake-daemon.ts";
import { PROCESS_EVENTS } from "./helpers/samples.ts";
import type { ServerResponse } from "node:http";

const [STARTED, FIRST, SECOND, ERR, EXIT] = PROCESS_EVENTS;

function events(response: ServerResponse, ...parts: string[]): true {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(parts.join(""));
  return true;
}

/** Answers requests that open a stream with these, in order; other requests from the table */
function streams(...answers: ((response: ServerResponse) => true)[]): Override {
  let at = 0;
  return ({ route, headers }, response) => {
    const isStream = route === "watchProcess" || (route === "startProcess" && headers.accept?.includes("event-stream"));
    return isStream ? answers[Math.min(at++, answers.length - 1)]?.(response) : false;
  };
}

const whole = (response: ServerResponse): true => {
  events(response, ...PROCESS_EVENTS);
  response.end();
  return true;
};

function processesOf(daemon: FakeDaemon, way: "socket" | "url" = "socket"): SandboxProcesses {
  return new SandboxProcesses(new Controller({ [way]: daemon[way], retries: 0 }), "sb-1");
}

for (const way of ["socket", "url"] as const) {
  test(`over ${way}: a process is started, read and waited for`, async () => {
    await using daemon = await FakeDaemon.start(streams(whole));
    const process = await processesOf(daemon, way).start("make", { tag: "web", stdin: true });
    assert.deepEqual([process.id, process.pid, process.tag, process.terminal], [7, 70, "web", false]);
    const output: ProcessOutput[] = await Array.fromAsync(process.output());
    assert.deepEqual(
      output.map((event) => (event.type === "lost" ? "lost" : [event.type, event.offset, event.text, event.bytes.length])),
      [
        ["stdout", 0, "hi", 3],
        ["stdout", 3, "ü!", 2],
        ["stderr", 0, "err", 3],
      ],
    );
    assert.deepEqual(await process.wait(), { exit_code: 3, signal: null, timed_out: false });
    assert.equal(process.cursor, "5-3");
    const [seen] = daemon.seen;
    assert.deepEqual(seen?.body, { args: ["/bin/sh", "-c", "make"], tag: "web", stdin: true });
    assert.match(String(seen?.headers.accept), /text\/event-stream/);
    await assert.rejects(process.output().next(), { code: "BAD_REQUEST" });
  });

  test(`over ${way}: a stream resumes at its cursor after a lost connection`, async () => {
    const read = Promise.withResolvers<void>();
    await using daemon = await FakeDaemon.start(
      streams(
        (response) => {
          events(response, STARTED, FIRST);
          void read.promise.then(() => response.destroy());
          return true;
        },
        (response) => problem(response, 503, { code: "STOPPING", error: "Stops." }),
        (response) => {
          events(response, STARTED.replace("0-0", "3-0"), SECOND);
          response.end();
          return true;
        },
        (response) => events(response, STARTED.replace("0-0", "5-0"), ERR, EXIT),
      ),
    );
    let text = "";
    const process = await processesOf(daemon, way).start(["x"], {
      onStdout: (out) => {
        text += out;
        read.resolve();
      },
      onStderr: (err) => void (text += err),
    });
    assert.equal((await process.wait()).exit_code, 3);
    assert.equal(text, "hiü!err");
    assert.deepEqual(daemon.names, ["startProcess", "watchProcess", "watchProcess", "watchProcess"]);
    assert.deepEqual(
      daemon.seen.map(({ headers }) => headers["last-event-id"]),
      [undefined, "3-0", "3-0", "5-0"],
    );
    assert.deepEqual(daemon.last.params, { id: "sb-1", process: "7" });
  });
}

test("lost output is reported to handlers and readers", async () => {
  const lost = 'id: 9-0\nevent: lost\ndata: {"channel":"stdout","bytes":4}\n\n';
  await using daemon = await FakeDaemon.start(streams((response) => events(response, STARTED, FIRST, lost, EXIT)));
  const told: unknown[] = [];
  const process = await processesOf(daemon).attach(7, { from: "0-0", onLost: (loss) => void told.push(loss) });
  await process.wait();
  assert.deepEqual(told, [{ channel: "stdout", bytes: 4 }]);
  const again = await processesOf(daemon).attach("web");
  assert.deepEqual((await Array.fromAsync(again.output())).at(-1), { type: "lost", channel: "stdout", bytes: 4 });
  assert.deepEqual(daemon.seen[0]?.query, { stdout_from: 0, stderr_from: 0, encoding: "base64" });
  assert.deepEqual(daemon.seen[1]?.query, { encoding: "base64" });
});

test("attach accepts start, now or a cursor", async () => {
  await using daemon = await FakeDaemon.start(streams(whole));
  await (await processesOf(daemon).attach("web", { from: "now" })).wait();
  assert.deepEqual(daemon.last.query, { stdout_from: "now", stderr_from: "now", encoding: "base64" });
  await assert.rejects(processesOf(daemon).attach("web", { from: "yesterday" }), { code: "BAD_REQUEST" });
});

test("an error answer is an error, and so is a daemon that does not return", async () => {
  await using daemon = await FakeDaemon.start((_seen, response) => problem(response, 422, { code: "EXEC_FAILED", error: "No." }));
  await assert.rejects(processesOf(daemon).start(["x"]), { name: "InvalidRequestError", code: "EXEC_FAILED" });
  assert.equal(daemon.seen.length, 1, "a program was started twice");
  const error = 'event: error\ndata: {"error":"Gone.","code":"VMM_EXITED","hint":"h","request_id":"r"}\n\n';
  await using gone = await FakeDaemon.start(streams((response) => events(response, STARTED, error)));
  const process = await processesOf(gone).start(["x"]);
  await assert.rejects(process.wait(), { name: "SandboxGoneError", code: "VMM_EXITED" });
});

test("writes keep the order of the calls, and small ones are sent together", async () => {
  const bodies: string[] = [];
  await using daemon = await FakeDaemon.start((seen, response) => {
    if (seen.route === "startProcess") return events(response, STARTED);
    bodies.push(`${String(seen.body)}${(seen.query as { close?: boolean }).close === true ? "." : ""}`);
    return false;
  });
  const process = await processesOf(daemon).start(["cat"], { stdin: true });
  const stream = async function* (): AsyncGenerator<Uint8Array> {
    yield new TextEncoder().encode("d");
    yield new TextEncoder().encode("e");
  };
  await Promise.all([
    process.write("a"),
    process.write("b"),
    process.write(new TextEncoder().encode("c")),
    process.write(stream()),
    process.write("f"),
    process.closeStdin(),
  ]);
  assert.deepEqual(bodies, ["a", "bc", "de", "f."]);
  process.detach();
});

test("a failed write does not fail later ones", async () => {
  await using daemon = await FakeDaemon.start((seen, response, count) => {
    if (seen.route === "startProcess") return events(response, STARTED);
    if (count === 1) return problem(response, 409, { code: "STDIN_CLOSED", error: "Closed." });
    return false;
  });
  const process = await processesOf(daemon).start(["cat"], { stdin: true });
  await assert.rejects(process.write("a"), { code: "STDIN_CLOSED" });
  await process.write("b");
  process.detach();
});

test("detach ends only the watch; so does leaving the loop", async () => {
  await using daemon = await FakeDaemon.start(streams((response) => events(response, STARTED, FIRST)));
  const process: Process = await processesOf(daemon).start(["x"], { onStdout: () => undefined });
  const waiting = process.wait();
  process.detach();
  await assert.rejects(waiting, { code: "CANCELLED" });
  const other = await processesOf(daemon).attach(7);
  for await (const event of other.output()) {
    assert.equal(event.type, "stdout");
    break;
  }
  await assert.rejects(other.wait(), { code: "CANCELLED" });
  await using unread = await processesOf(daemon).attach(7);
  assert.equal(unread.id, 7);
  assert.ok(!daemon.names.includes("killProcess") && !daemon.names.includes("signalProcess"));
});

test("the caller's signal ends the watch", async () => {
  await using daemon = await FakeDaemon.start(streams((response) => events(response, STARTED)));
  const caller = new AbortController();
  const process = await processesOf(daemon).start(["x"], { signal: caller.signal });
  caller.abort(new Error("enough"));
  await assert.rejects(process.wait(), { message: "enough" });
  await assert.rejects(processesOf(daemon).start(["x"], { signal: AbortSignal.abort(new Error("mine")) }), { message: "mine" });
});

test("an error of a handler ends the watch, and wait rejects with it", async () => {
  await using daemon = await FakeDaemon.start(streams((response) => events(response, STARTED, FIRST)));
  const onStdout = (): never => {
    throw new Error("screen full");
  };
  const process = await processesOf(daemon).start(["x"], { onStdout });
  await assert.rejects(process.wait(), { message: "screen full" });
});

test("signals, sizes, lists", async () => {
  await using daemon = await FakeDaemon.start(streams((response) => events(response, STARTED)));
  const processes = processesOf(daemon);
  const process = await processes.start(["x"]);
  await process.kill();
  assert.deepEqual(daemon.last.body, { signal: "SIGTERM" });
  await process.kill("SIGINT", { scope: "process" });
  assert.deepEqual(daemon.last.body, { signal: "SIGINT", scope: "process" });
  await process.resize({ rows: 5, cols: 6 });
  await processes.list();
  await processes.get(7);
  await processes.kill("web");
  assert.deepEqual(daemon.names.slice(-4), ["resizeProcess", "listProcesses", "getProcess", "killProcess"]);
  assert.deepEqual(daemon.last.params, { id: "sb-1", process: "web" });
  process.detach();
});

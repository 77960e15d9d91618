// A process attached to the command line: streamed output, input in pieces, forwarded signals.

import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaveKeys } from "../src/terminal/raw-terminal.ts";
import { fakeDaemon, type Answer, type FakeDaemon } from "./fake-daemon.ts";
import { until } from "../../../tests/helpers/until.ts";
import { forkd, forkdProcess, startForkd, type Started } from "./helpers.ts";
import { processEvents, processInfo } from "./samples.ts";
import type { ServerResponse } from "node:http";

const START = "POST /v1/sandboxes/sb-1/processes";

function ended(said: Parameters<typeof processEvents>[0]): Answer {
  return (_asked, response) => response.end(processEvents(said));
}

/** A process that runs until its test ends it */
class Running {
  #response: ServerResponse | undefined;
  readonly answer: Answer = (_asked, response) => {
    this.#response = response;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(processEvents({ stdout: "up\n" }));
  };

  exit(code: number): void {
    this.#response?.end(
      processEvents({ exit: { exit_code: code } })
        .split("\n\n")
        .at(-2) + "\n\n",
    );
  }
}

const run = (daemon: FakeDaemon, args: string[]): Started => startForkd(args, daemon.env);

test("exec forwards bytes and the exit code", async () => {
  const bytes = Buffer.from([0, 255, 10, 27, 200]);
  await using daemon = await fakeDaemon({ [START]: ended({ stdout: bytes, stderr: "oops\n", exit: { exit_code: 7 } }) });
  const result = await forkdProcess(["exec", "sb-1", "--", "x"], daemon.env);
  assert.equal(result.code, 7);
  assert.deepEqual(result.bytes, bytes);
  assert.equal(result.stderr, "oops\n");
});

test("a program that does not exist ends with 127, one that cannot be run with 126, as in a shell", async () => {
  await using daemon = await fakeDaemon();
  for (const exitCode of [127, 126]) {
    const details = { errno: "ENOENT", exit_code: exitCode };
    const json = { error: "Cannot start.", code: "EXEC_FAILED", hint: "Check it.", request_id: "r", details };
    daemon.answers["POST /v1/sandboxes/sb-1/processes"] = { status: 422, json };
    daemon.answers["POST /v1/sandboxes/sb-1/exec"] = { status: 422, json };
    for (const options of [[], ["-d"], ["--json"]])
      assert.equal((await forkd(["exec", "sb-1", ...options, "--", "x"], daemon.env)).code, exitCode, options.join(" "));
  }
});

test("exec that timed out ends with 124 and names the option to raise", async () => {
  await using daemon = await fakeDaemon({ [START]: ended({ stdout: "part\n", exit: { exit_code: 124, timed_out: true } }) });
  const { code, stdout, stderr } = await forkd(["exec", "sb-1", "--timeout-secs", "1", "--", "x"], daemon.env);
  assert.deepEqual([code, stdout], [124, "part\n"]);
  assert.match(stderr, /after 1 s; raise --timeout-secs/);
});

test("output is printed before the end, and lost output is reported", async () => {
  const live = new Running();
  await using daemon = await fakeDaemon({ [START]: live.answer });
  const { output, closed } = run(daemon, ["exec", "sb-1", "--", "x"]);
  await until(() => output() === "up\n");
  live.exit(3);
  assert.equal((await closed)[0], 3);
  const lost = 'id: 9-0\nevent: lost\ndata: {"channel":"stdout","bytes":4}\n\n';
  await using other = await fakeDaemon({
    [START]: (_asked, response) => response.end(processEvents() + lost + processEvents({ exit: {} })),
  });
  assert.match((await forkd(["exec", "sb-1", "--", "x"], other.env)).stderr, /^Note: 4 bytes of stdout were dropped/);
});

test("-i forwards standard input as it arrives, and its end", async () => {
  const live = new Running();
  await using daemon = await fakeDaemon({ [START]: live.answer, "POST /v1/sandboxes/sb-1/processes/7/stdin": {} });
  const { child, closed } = run(daemon, ["exec", "-i", "sb-1", "--", "cat"]);
  const written = (): string =>
    daemon.asked
      .filter(({ path }) => path.includes("/stdin"))
      .map(({ bytes, path }) => `${bytes.toString()}${path.endsWith("close=true") ? "." : ""}`)
      .join("|");
  child.stdin.write("one");
  await until(() => written() === "one");
  child.stdin.write("two");
  await until(() => written() === "one|two");
  child.stdin.end();
  await until(() => written() === "one|two|.");
  live.exit(0);
  assert.equal((await closed)[0], 0);
});

test("a program that does not read its input is no failure of the command", async () => {
  const live = new Running();
  const refuse = { status: 409, json: { error: "Closed.", code: "STDIN_CLOSED", hint: "h", request_id: "r" } };
  await using daemon = await fakeDaemon({ [START]: live.answer, "POST /v1/sandboxes/sb-1/processes/7/stdin": refuse });
  const { child, output, closed } = run(daemon, ["exec", "-i", "sb-1", "--", "head"]);
  child.stdin.write("one");
  await until(() => daemon.asked.length === 2);
  live.exit(0);
  assert.equal((await closed)[0], 0);
  assert.equal(output(), "up\n");
});

test("the first Ctrl-C is sent to the program, the second kills it", async () => {
  const live = new Running();
  await using daemon = await fakeDaemon({
    [START]: live.answer,
    "POST /v1/sandboxes/sb-1/processes/7/signal": {},
    "DELETE /v1/sandboxes/sb-1/processes/7": (_asked, response) => {
      response.writeHead(204).end();
      live.exit(137);
    },
  });
  const { child, output, closed } = run(daemon, ["exec", "sb-1", "--", "x"]);
  await until(() => output() === "up\n");
  child.kill("SIGINT");
  await until(() => daemon.asked.length === 2);
  assert.deepEqual(daemon.asked[1]?.body, { signal: "SIGINT" });
  child.kill("SIGINT");
  assert.equal((await closed)[0], 137);
  assert.deepEqual(
    daemon.asked.map(({ method }) => method),
    ["POST", "POST", "DELETE"],
  );
});

test("a command that is terminated kills its program", async () => {
  const live = new Running();
  await using daemon = await fakeDaemon({
    [START]: live.answer,
    "DELETE /v1/sandboxes/sb-1/processes/7": (_asked, response) => {
      response.writeHead(204).end();
      live.exit(137);
    },
  });
  const { child, output, closed } = run(daemon, ["exec", "sb-1", "--", "x"]);
  await until(() => output() === "up\n");
  child.kill("SIGTERM");
  assert.equal((await closed)[0], 143);
  assert.equal(daemon.asked.at(-1)?.method, "DELETE");
});

test("a program whose output is not read is ended, as in a pipeline", async () => {
  const endless: Answer = (_asked, response) => {
    response.write(processEvents());
    const piece = `id: 1-1\nevent: stdout\ndata: ${JSON.stringify({ offset: 0, base64: Buffer.alloc(30_000, "y\n").toString("base64") })}\n\n`;
    const timer = setInterval(() => response.write(piece), 5);
    response.once("close", () => clearInterval(timer));
  };
  await using daemon = await fakeDaemon({ [START]: endless, "DELETE /v1/sandboxes/sb-1/processes/7": {} });
  const { child, output, closed } = run(daemon, ["exec", "sb-1", "--", "yes"]);
  await until(() => output() !== "");
  child.stdout.destroy();
  assert.equal((await closed)[0], 141);
  assert.equal(daemon.asked.at(-1)?.method, "DELETE");
});

test("attach detaches on Ctrl-C, prints how to attach again, and does not end the process", async () => {
  const live = new Running();
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/sb-1/processes/web/output": live.answer });
  const { child, output, closed } = run(daemon, ["attach", "sb-1", "web"]);
  await until(() => output() === "up\n");
  child.kill("SIGINT");
  assert.equal((await closed)[0], 130);
  assert.match(output(), /Left process 7 running\. To attach again: forkd attach sb-1 7 --from 1-1\n$/);
  assert.deepEqual(
    daemon.asked.map(({ method }) => method),
    ["GET"],
  );
});

test("-d prints the process id, or everything as JSON", async () => {
  const info = processInfo(7, { tag: "web" });
  await using daemon = await fakeDaemon({ [START]: { status: 201, json: info } });
  assert.equal((await forkd(["exec", "-d", "sb-1", "--", "x"], daemon.env)).stdout, "7\n");
  assert.deepEqual(JSON.parse((await forkd(["exec", "-d", "--json", "sb-1", "--", "x"], daemon.env)).stdout), info);
});

test("ps prints a table, JSON or ids; those that have ended with -a", async () => {
  const known = [
    processInfo(2, { state: "ended", exit_code: 3 }),
    processInfo(3, { tag: "web", terminal: true, args: ["sh", "-c", "echo \u001b[2J"] }),
    processInfo(4, { state: "ended", exit_code: 137, signal: "SIGKILL" }),
    processInfo(5, { state: "ended", exit_code: 124, timed_out: true }),
  ];
  await using daemon = await fakeDaemon({ "GET /v1/sandboxes/sb-1/processes": { json: known } });
  const all = (await forkd(["ps", "-a", "sb-1"], daemon.env)).stdout.split("\n");
  assert.match(all[0] ?? "", /^ID +PID +TAG +USER +STATE +AGE +TTY +COMMAND$/);
  assert.match(all[1] ?? "", /^ 2 +102 +- +root +exit 3 +1h +- +sleep 9$/);
  assert.match(all[2] ?? "", /^ 3 +103 +web +root +running +1h +yes +sh -c echo {2}\[2J$/);
  assert.match(all[3] ?? "", / SIGKILL /);
  assert.match(all[4] ?? "", / timed out /);
  assert.equal((await forkd(["ps", "-q", "sb-1"], daemon.env)).stdout, "3\n");
  assert.deepEqual(JSON.parse((await forkd(["ps", "--json", "sb-1"], daemon.env)).stdout), [known[1]]);
});

test("Ctrl-] three times within a second detaches; fewer are forwarded", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const released: string[] = [];
  const keys = new LeaveKeys((held) => void released.push(Buffer.from(held).toString()));
  const take = (text: string): string | undefined => {
    const passed = keys.take(Buffer.from(text));
    return passed && Buffer.from(passed).toString();
  };
  assert.equal(take("ab"), "ab");
  assert.equal(take("a\u001d"), "a");
  assert.equal(take("b"), "\u001db");
  assert.equal(take("\u001d\u001dx\u001d"), "\u001d\u001dx");
  t.mock.timers.tick(1000);
  assert.deepEqual(released, ["\u001d"]);
  assert.equal(take("\u001d"), "");
  t.mock.timers.tick(900);
  assert.equal(take("\u001d"), "");
  t.mock.timers.tick(900);
  assert.equal(take("\u001d"), undefined);
  assert.deepEqual(released, ["\u001d"]);
});

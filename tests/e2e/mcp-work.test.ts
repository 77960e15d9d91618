// MCP tools on real VMs: fork, branch, programs, processes, files, ports, and answers of a hostile guest.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { TestDaemon } from "../helpers/daemon.ts";
import { ask, NEWEST, overStdio, use } from "../helpers/mcp.ts";
import { patience } from "../helpers/patience.ts";
import { until } from "../helpers/until.ts";
import type { Client } from "@modelcontextprotocol/client";

/** At most the limit of the tools */
const WAIT_SECS = Math.min(300, patience() / 1000);
const LINES = 6000;
/** More output than fits into one answer, with characters of two, three and four bytes */
const PRINT_LINES = `python3 -c 'for i in range(${LINES}): print(i, "ä€😀")'`;
const ALL_LINES = Array.from({ length: LINES }, (_, i) => `${i} ä€😀\n`).join("");

const ENDLESS_SERVER = String.raw`
import socket
server = socket.create_server(("", 8001))
print("up", flush=True)
while True:
    client = server.accept()[0]
    client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: " + b"h" * 6000 + b"\r\n\r\n")
    try:
        while True: client.sendall(b"z" * 65536)
    except OSError: pass
`;

const SILENT_SERVER =
  'import socket; server = socket.create_server(("", 8002)); print("up", flush=True); socket.create_server(("", 8003)).accept()';

type Output = { stdout: string; stderr: string; next_cursor: string; more: boolean; state: string; exit_code: number };

describe("MCP at work", () => {
  let daemon: TestDaemon;
  let client: Client;
  let sandbox_id: string;

  before(async () => {
    daemon = await TestDaemon.start();
    await daemon.makePython();
    client = await overStdio(daemon, NEWEST);
    sandbox_id = await spawn();
  });

  after(async () => {
    await client.close();
    await daemon[Symbol.asyncDispose]();
  });

  beforeEach(async () => {
    assert.equal((await use(client, "ping_sandbox", { sandbox_id }))["pong"], true);
  });

  async function spawn(): Promise<string> {
    const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "spawn_sandboxes", { snapshot_tag: "python" });
    return sandboxes[0]?.id ?? "";
  }

  const sh = (script: string, more: object = {}): object => ({ sandbox_id, args: ["sh", "-c", script], ...more });

  it("forks a running sandbox: each copy continues from there, and the tree shows it", async () => {
    await use(client, "eval_code", { sandbox_id, code: "state = [1]" });
    const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "fork_sandbox", { sandbox_id, n: 2 });
    const values = await Promise.all(
      sandboxes.map(async ({ id }, i) => (await use(client, "eval_code", { sandbox_id: id, code: `state.append(${i}); state` }))["value"]),
    );
    assert.deepEqual(values, [
      [1, 0],
      [1, 1],
    ]);
    assert.match(JSON.stringify(await use(client, "get_tree")), new RegExp(sandboxes[1]?.id ?? "-"));
    for (const { id } of sandboxes) await use(client, "kill_sandbox", { sandbox_id: id });
  });

  it("branches, forks the branch, and cleans up", async () => {
    await use(client, "write_file", { sandbox_id, path: "/srv/kept/note", content: "before" });
    const { tag } = await use<{ tag: string }>(client, "branch_sandbox", { sandbox_id, tag: "safe" });
    await use(client, "remove_file", { sandbox_id, path: "/srv/kept", recursive: true });
    const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "spawn_sandboxes", { snapshot_tag: tag });
    const id = sandboxes[0]?.id ?? "";
    assert.equal((await use(client, "read_file", { sandbox_id: id, path: "/srv/kept/note" }))["content"], "before");
    const refused = await ask(client, "delete_snapshot", { tag: "python" });
    assert.equal(refused.isError, true);
    await use(client, "kill_sandbox", { sandbox_id: id });
    await use(client, "delete_snapshot", { tag });
    const { snapshots } = await use<{ snapshots: { tag: string }[] }>(client, "list_snapshots");
    assert.deepEqual(
      snapshots.map((snapshot) => snapshot.tag),
      ["python"],
    );
  });

  it("long output is delivered in pages, complete", async () => {
    const first = await use<Output & { truncated: boolean; process: number }>(client, "exec_command", sh(PRINT_LINES));
    assert.deepEqual([first.truncated, first.exit_code], [true, 0]);
    assert.ok(Buffer.byteLength(first.stdout) <= 16 * 1024);
    let text = first.stdout;
    let cursor = first.next_cursor;
    for (let more = true; more;) {
      const page = await use<Output>(client, "read_output", { sandbox_id, process: first.process, cursor, max_bytes: 30_001 });
      text += page.stdout;
      cursor = page.next_cursor;
      more = page.more;
    }
    assert.equal(text, ALL_LINES);
  });

  it("a program need not read its input", async () => {
    const stdin = "x".repeat(1_000_000);
    assert.equal((await use(client, "exec_command", { sandbox_id, args: ["true"], stdin }))["exit_code"], 0);
    assert.equal((await use(client, "exec_command", { sandbox_id, args: ["wc", "-c"], stdin }))["stdout"], "1000000\n");
  });

  it("files are delivered in pages, and binary content as base64", async () => {
    await use(client, "exec_command", sh(`mkdir -p /srv/many && cd /srv/many && touch $(seq 100 170) && ${PRINT_LINES} > /srv/long`));
    let text = "";
    for (let offset: number | null = 0; offset !== null;) {
      const page: { content: string; next_offset: number | null } = await use(client, "read_file", {
        sandbox_id,
        path: "/srv/long",
        offset,
      });
      text += page.content;
      offset = page.next_offset;
    }
    assert.equal(text, ALL_LINES);
    const bytes = Buffer.from([0, 255, 254, 10]);
    await use(client, "write_file", { sandbox_id, path: "/srv/bytes", content: bytes.toString("base64"), encoding: "base64" });
    const read = await use(client, "read_file", { sandbox_id, path: "/srv/bytes" });
    assert.deepEqual([read["encoding"], read["content"], read["next_offset"]], ["base64", bytes.toString("base64"), null]);
    const names: string[] = [];
    for (let cursor: string | null | undefined; cursor !== null;) {
      const page: { files: { path: string }[]; next_cursor: string | null } = await use(client, "list_files", {
        sandbox_id,
        path: "/srv/many",
        ...(cursor === undefined ? {} : { cursor }),
      });
      names.push(...page.files.map(({ path }) => path));
      cursor = page.next_cursor;
    }
    assert.equal(names.length, 71);
  });

  it("a process continues to run, is read from a position, written to, and ended", async () => {
    const { id } = await use<{ id: number }>(client, "start_process", { ...sh("echo ready; cat; echo over"), stdin: true, tag: "talk" });
    const begun = await use<Output>(client, "read_output", { sandbox_id, process: id, wait_secs: WAIT_SECS });
    assert.deepEqual([begun.stdout, begun.state], ["ready\n", "running"]);
    await use(client, "write_stdin", { sandbox_id, process: "talk", text: "some words\n", close: true });
    let { next_cursor: cursor } = begun;
    let rest = "";
    for (let state = "running"; state === "running";) {
      const page = await use<Output>(client, "read_output", { sandbox_id, process: "talk", cursor, wait_secs: WAIT_SECS });
      rest += page.stdout;
      cursor = page.next_cursor;
      state = page.state;
    }
    assert.equal(rest, "some words\nover\n");
    await use(client, "start_process", { sandbox_id, args: ["sleep", "1000"], tag: "sleeper" });
    await use(client, "signal_process", { sandbox_id, process: "sleeper", signal: "SIGKILL" });
    const { processes } = await use<{ processes: object[] }>(client, "list_processes", { sandbox_id, running: true });
    assert.deepEqual(processes, []);
  });

  it("a server is started, waited for and requested", async () => {
    await use(
      client,
      "start_process",
      sh("echo hello > /srv/index.html; exec python3 -um http.server 8000 --bind 127.0.0.1 -d /srv > /tmp/log 2>&1"),
    );
    const waited = await use(client, "wait_for_text", { sandbox_id, path: "/tmp/log", marker: "Serving HTTP" });
    assert.equal(waited["found"], true);
    const { ports } = await use<{ ports: { port: number }[] }>(client, "list_ports", { sandbox_id });
    assert.deepEqual(
      ports.map(({ port }) => port),
      [8000],
    );
    const answer = await use(client, "http_request", { sandbox_id, port: 8000, path: "/index.html" });
    assert.deepEqual([answer["status"], answer["body"], answer["truncated"]], [200, "hello\n", false]);
    assert.equal((await use(client, "http_request", { sandbox_id, port: 8000, path: "/none" }))["status"], 404);
    await use(client, "start_process", { sandbox_id, args: ["python3", "-c", SILENT_SERVER], tag: "silent" });
    await use(client, "read_output", { sandbox_id, process: "silent", wait_secs: WAIT_SECS });
    const silent = await ask(client, "http_request", { sandbox_id, port: 8002, timeout_secs: 0.2 });
    assert.deepEqual([silent.isError, silent.value["code"]], [true, "GATEWAY_TIMEOUT"]);
    const closed = await ask(client, "http_request", { sandbox_id, port: 9, path: "/" });
    assert.deepEqual([closed.isError, closed.value["code"]], [true, "PORT_CLOSED"]);
  });

  it("a text that does not appear is no error, and neither is one missing in a file", async () => {
    await use(client, "exec_command", sh("printf 'one tw' > '/srv/odd $(name)'"));
    const wait = { sandbox_id, path: "/srv/odd $(name)", timeout_secs: 0.2, poll_interval_ms: 10 };
    assert.equal((await use(client, "wait_for_text", { ...wait, marker: "two" }))["found"], false);
    assert.equal((await use(client, "wait_for_text", { ...wait, path: "/none", marker: "two" }))["found"], false);
    const found = use(client, "wait_for_text", { ...wait, marker: "two", timeout_secs: WAIT_SECS });
    await use(client, "exec_command", sh("printf 'o' >> '/srv/odd $(name)'"));
    assert.deepEqual(await found, { found: true, offset: 4 });
  });

  it("reports progress while a program runs", async () => {
    const told: string[] = [];
    const running = use(client, "exec_command", sh("echo begun; until [ -e /srv/go ]; do sleep 0.05; done"), {
      onprogress: ({ message = "" }) => told.push(message),
    });
    await until(() => told.some((message) => message.startsWith("6 bytes of output")));
    await use(client, "write_file", { sandbox_id, path: "/srv/go", content: "" });
    assert.equal((await running)["stdout"], "begun\n");
  });

  it("a call that is cancelled ends its program", async () => {
    const stop = new AbortController();
    const running = use(client, "exec_command", sh("echo begun; sleep 1000", { timeout_secs: 2000 }), {
      signal: stop.signal,
      onprogress: () => stop.abort(),
    });
    await assert.rejects(running);
    await until(async () => {
      const processes = await daemon.controller.listProcesses(sandbox_id);
      return processes.filter(({ args, state }) => args.includes("echo begun; sleep 1000") && state === "ended").length === 1;
    });
  });

  it("wrong arguments are reported to the model", async () => {
    for (const [name, args] of [
      ["exec_command", { sandbox_id, args: [] }],
      ["exec_command", { sandbox_id }],
      ["spawn_sandboxes", { snapshot_tag: "python", n: 0 }],
      ["get_sandbox", { sandbox_id, more: 1 }],
    ] as const) {
      const { isError, value } = await ask(client, name, args);
      assert.equal(isError, true, name);
      assert.match(JSON.stringify(value), /sandbox_id|args|n|more/);
    }
    const unkept = await ask(client, "spawn_sandboxes", { snapshot_tag: "python", ttl_secs: 5 });
    assert.deepEqual([unkept.isError, unkept.value["code"]], [true, "BAD_REQUEST"]);
  });

  describe("hostile output of a guest", () => {
    it("endless output is cut, and the program is ended", async () => {
      const result = await use<Output & { timed_out: boolean }>(client, "exec_command", sh("yes", { timeout_secs: 1 }));
      assert.equal(result.timed_out, true);
      assert.ok(result.stdout.length <= 16 * 1024);
      const evaluated = await use(client, "eval_code", { sandbox_id, code: "print('x' * 3_000_000); 'y' * 3_000_000" });
      assert.equal(evaluated["truncated"], true);
      assert.ok(JSON.stringify(evaluated).length < 100_000);
    });

    it("control characters, broken UTF-8 and forged answers stay inside a JSON text", async () => {
      const fake = '{"jsonrpc":"2.0","id":1,"result":{}}\\n"}]}';
      const result = await use<Output>(client, "exec_command", {
        sandbox_id,
        args: ["python3", "-c", `import sys; sys.stdout.buffer.write(b'\\x1b[2J\\x00\\xff\\xfe\\r\\n' + ${JSON.stringify(fake)}.encode())`],
      });
      assert.match(result.stdout, /\[2J/);
      assert.ok(result.stdout.includes('{"jsonrpc":"2.0","id":1,"result":{}}'));
      assert.equal(result.exit_code, 0);
    });

    it("endless files and server answers are read only as far as requested", async () => {
      const zeros = await use<{ bytes: number }>(client, "read_file", { sandbox_id, path: "/dev/zero", max_bytes: 1000 });
      assert.equal(zeros.bytes, 1000);
      const waited = await use(client, "wait_for_text", { sandbox_id, path: "/dev/zero", marker: "x", timeout_secs: 1 });
      assert.equal(waited["found"], false);
      const { id } = await use<{ id: number }>(client, "start_process", { sandbox_id, args: ["python3", "-c", ENDLESS_SERVER] });
      assert.equal((await use<Output>(client, "read_output", { sandbox_id, process: id, wait_secs: WAIT_SECS })).stdout, "up\n");
      const answer = await use<{ body: string; truncated: boolean; headers: object }>(client, "http_request", { sandbox_id, port: 8001 });
      assert.deepEqual([answer.body.length, answer.truncated], [16 * 1024, true]);
      assert.ok(JSON.stringify(answer.headers).length < 5000);
    });
  });
});

// The MCP server with the official client, over both transports and in every protocol version.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { TestDaemon } from "../helpers/daemon.ts";
import { ask, httpTransport, McpProcess, newClient, NEWEST, overHttp, overStdio, stdioTransport, use, VERSIONS } from "../helpers/mcp.ts";
import { until } from "../helpers/until.ts";
import type { Version } from "../helpers/mcp.ts";
import type { Client } from "@modelcontextprotocol/client";

/** Folder in which npm installs the commands of packages */
const BIN = resolve(import.meta.dirname, "..", "..", "node_modules", ".bin");
/** Tools of deeplethe/forkd 0.5, with their parameters */
const REFERENCE: Record<string, string[]> = {
  list_snapshots: [],
  spawn_sandboxes: ["snapshot_tag", "n", "per_child_netns", "memory_limit_mib", "prewarm", "live_fork"],
  branch_sandbox: ["sandbox_id", "tag", "diff", "measure_diff", "mode", "wait"],
  create_snapshot: ["tag", "kernel", "rootfs", "rw", "tap", "boot_wait_secs"],
  wait_for_text: ["sandbox_id", "path", "marker", "timeout_secs", "poll_interval_ms"],
  list_sandboxes: [],
  get_sandbox: ["sandbox_id"],
  kill_sandbox: ["sandbox_id"],
  exec_command: ["sandbox_id", "args", "timeout_secs"],
  eval_code: ["sandbox_id", "code"],
  ping_sandbox: ["sandbox_id"],
};

describe("MCP", () => {
  let daemon: TestDaemon;
  let http: McpProcess;
  let token: string;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    await daemon.makePython();
    token = (await daemon.controller.createToken("agent", { scope: "exec" })).token;
    http = await McpProcess.start(daemon);
  });

  after(async () => {
    await http[Symbol.asyncDispose]();
    await daemon[Symbol.asyncDispose]();
  });

  const ways: [name: string, connect: (version: Version) => Promise<Client>][] = [
    ["stdio", async (version) => overStdio(daemon, version)],
    ["HTTP", async (version) => overHttp(http.url, token, version)],
  ];
  for (const [name, connect] of ways) {
    for (const version of VERSIONS) {
      it(`over ${name} in ${version}: all steps from snapshot to answer`, async () => {
        const client = await connect(version);
        try {
          assert.match(client.getInstructions() ?? "", /fork_sandbox/);
          const { tools } = await client.listTools();
          for (const [tool, parameters] of Object.entries(REFERENCE)) {
            const { properties = {} } = tools.find((one) => one.name === tool)?.inputSchema ?? {};
            assert.deepEqual(
              parameters.filter((parameter) => !(parameter in properties)),
              [],
              tool,
            );
          }
          const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "spawn_sandboxes", { snapshot_tag: "python" });
          const sandbox_id = sandboxes[0]?.id ?? "";
          const { stdout, exit_code } = await use(client, "exec_command", { sandbox_id, args: ["echo", "läuft"] });
          assert.deepEqual([stdout, exit_code], ["läuft\n", 0]);
          assert.equal((await use(client, "eval_code", { sandbox_id, code: "numpy.arange(4).sum().item()" }))["value"], 6);
          const failed = await ask(client, "get_sandbox", { sandbox_id: "sb-nothing" });
          assert.deepEqual([failed.isError, failed.value["code"]], [true, "NOT_FOUND"]);
          const { contents } = await client.readResource({ uri: `forkd://sandboxes/${sandbox_id}` });
          assert.match(JSON.stringify(contents), new RegExp(`\\\\"id\\\\":\\\\"${sandbox_id}`));
          await use(client, "kill_sandbox", { sandbox_id });
        } finally {
          await client.close();
        }
      });
    }
  }

  for (const [name, connect] of ways) {
    for (const version of ["2025-11-25", NEWEST] as const) {
      it(`over ${name} in ${version}: progress is reported, and a call can be cancelled`, async () => {
        const client = await connect(version);
        const sandbox_id = await spawn(client);
        const stop = new AbortController();
        const told: number[] = [];
        const running = use(
          client,
          "exec_command",
          { sandbox_id, args: ["sh", "-c", "echo begun; sleep 1000"], timeout_secs: 2000 },
          {
            signal: stop.signal,
            onprogress: ({ progress }) => {
              told.push(progress);
              stop.abort();
            },
          },
        );
        await assert.rejects(running);
        assert.deepEqual(told, [1]);
        await until(async () => (await daemon.controller.listProcesses(sandbox_id)).every(({ state }) => state === "ended"));
        await use(client, "kill_sandbox", { sandbox_id });
        await client.close();
      });
    }
  }

  it("over stdio every sandbox ends with the client, except kept ones", async () => {
    const client = await overStdio(daemon, NEWEST);
    const [mine, kept, later, forked] = [
      await spawn(client),
      await spawn(client, { keep: true }),
      await spawn(client),
      await spawn(client),
    ];
    await use(client, "keep_sandbox", { sandbox_id: later, name: "for-the-user" });
    const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "fork_sandbox", { sandbox_id: forked });
    await client.close();
    await until(async () => (await alive()).length === 2);
    assert.deepEqual(await alive(), [kept, later].toSorted());
    for (const id of [mine, forked, sandboxes[0]?.id ?? ""]) await assert.rejects(daemon.controller.getSandbox(id), { code: "NOT_FOUND" });
    const { name, expires_at_unix, metadata } = await daemon.controller.getSandbox(later);
    assert.deepEqual([name, expires_at_unix, metadata], ["for-the-user", null, {}]);
    for (const id of [kept, later]) await daemon.controller.killSandbox(id);
  });

  it("over stdio sandboxes end on SIGTERM, and by their renewed time to live when the server is killed", async () => {
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      const transport = stdioTransport(daemon, ["--lease", "5s"]);
      const client = newClient("2025-11-25");
      await client.connect(transport);
      const id = await spawn(client);
      const first = (await daemon.controller.getSandbox(id)).expires_at_unix ?? 0;
      await until(async () => ((await daemon.controller.getSandbox(id)).expires_at_unix ?? 0) > first);
      assert.ok(transport.pid);
      process.kill(transport.pid, signal);
      await until(async () => (await alive()).length === 0);
      await client.close();
    }
  });

  it("over HTTP sandboxes end with the session: deleted, idle for too long, or with the server", async () => {
    const { token } = await daemon.controller.createToken("sessions");
    for (const how of ["deleted", "silent", "server"] as const) {
      await using server = await McpProcess.start(daemon, how === "silent" ? ["--idle", "3s"] : []);
      const transport = httpTransport(server.url, token);
      const client = newClient("2025-11-25");
      await client.connect(transport);
      await spawn(client);
      if (how === "deleted") await transport.terminateSession();
      else if (how === "server") assert.equal(await server.stop(), 0);
      else await client.close();
      await until(async () => (await alive()).length === 0);
      await client.close();
    }
    await daemon.controller.deleteToken("sessions");
  });

  it("over HTTP without sessions sandboxes end when idle", async () => {
    await using server = await McpProcess.start(daemon, ["--idle", "4s"]);
    const client = await overHttp(server.url, token, NEWEST);
    const id = await spawn(client);
    assert.equal((await daemon.controller.getSandbox(id)).idle_timeout_secs, 4);
    await client.close();
    await until(async () => (await alive()).length === 0);
  });

  it("over HTTP the daemon's tokens decide", async () => {
    const init = {
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    };
    const post = async (headers: Record<string, string>, body: unknown = init): Promise<Response> =>
      fetch(http.url, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
        body: JSON.stringify(body),
      });
    assert.equal((await post({})).status, 401);
    assert.equal((await post({ authorization: "Bearer fkd_wrong-wrong-wrong-wrong" })).status, 401);
    assert.equal((await post({ authorization: `Bearer ${token}`, origin: "https://evil.example" })).status, 403);
    assert.equal((await post({ authorization: `Bearer ${token}` }, { ...init, params: "x".repeat(5_000_000) })).status, 413);
    assert.equal((await fetch(http.url.replace("/mcp", "/"), { headers: { authorization: `Bearer ${token}` } })).status, 404);

    const begun = await post({ authorization: `Bearer ${token}` });
    assert.equal(begun.status, 200);
    const session = { "mcp-session-id": begun.headers.get("mcp-session-id") ?? "", "mcp-protocol-version": "2025-11-25" };
    const list = { jsonrpc: "2.0", id: 2, method: "tools/list", params: {} };
    const reader = await daemon.controller.createToken("reader", { scope: "read" });
    assert.equal((await post({ authorization: `Bearer ${token}`, ...session }, list)).status, 200);
    assert.equal((await post({ authorization: `Bearer ${reader.token}`, ...session }, list)).status, 404, "a session of another token");

    const client = await overHttp(http.url, reader.token, NEWEST);
    assert.deepEqual((await use<{ sandboxes: unknown[] }>(client, "list_sandboxes")).sandboxes, []);
    assert.equal((await ask(client, "spawn_sandboxes", { snapshot_tag: "python" })).value["code"], "FORBIDDEN");
    await daemon.controller.deleteToken("reader");
    await assert.rejects(use(client, "list_sandboxes"));
    await client.close();
  });

  async function spawn(client: Client, more: object = {}): Promise<string> {
    const { sandboxes } = await use<{ sandboxes: { id: string }[] }>(client, "spawn_sandboxes", { snapshot_tag: "python", ...more });
    return sandboxes[0]?.id ?? "";
  }

  async function alive(): Promise<string[]> {
    return (await daemon.controller.listSandboxes()).map(({ id }) => id).toSorted();
  }
});

describe("MCP without a daemon", () => {
  for (const [name, program] of [
    ["forkd mcp", ["forkd", "mcp"]],
    ["forkd-mcp", ["forkd-mcp"]],
  ] as const) {
    it(`${name} starts it when a tool needs it, and not before`, async () => {
      await using daemon = await TestDaemon.make();
      const [command, ...args] = program;
      const env = { ...(daemon.env as Record<string, string>), PATH: `${BIN}:${process.env["PATH"] ?? ""}` };
      const client = newClient("2025-11-25");
      await client.connect(new StdioClientTransport({ command: join(BIN, command), args, env, stderr: "inherit" }));
      try {
        await client.listTools();
        assert.equal(existsSync(daemon.socket), false);
        assert.deepEqual((await use<{ snapshots: unknown[] }>(client, "list_snapshots")).snapshots, []);
      } finally {
        await client.close();
        assert.equal((await daemon.cli(["down"])).code, 0);
      }
    });
  }
});

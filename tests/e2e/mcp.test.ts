// The MCP server with the official client, over both transports and in every version of the protocol.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { TestDaemon } from "../helpers/daemon.ts";
import { ask, McpProcess, overHttp, overStdio, use, VERSIONS, type Version } from "../helpers/mcp.ts";
import type { Client } from "@modelcontextprotocol/client";

/** Of deeplethe/forkd 0.5, with their parameters */
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
      it(`over ${name} in ${version}: the whole way from snapshot to answer`, async () => {
        const client = await connect(version);
        try {
          assert.match(client.getInstructions() ?? "", /fork_sandbox/);
          const { tools } = await client.listTools();
          for (const [tool, parameters] of Object.entries(REFERENCE)) {
            const { properties = {} } = tools.find((one) => one.name === tool)?.inputSchema ?? {};
            assert.deepEqual(parameters.filter((parameter) => !(parameter in properties)), [], tool);
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
});

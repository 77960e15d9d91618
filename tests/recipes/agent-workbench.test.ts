// The recipe agent-workbench: each server in a fork, used by its own client through the proxy.
// Builds images: the image of a recipe is part of what is tested.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { Sandbox } from "forkd";
import { TestDaemon } from "../helpers/daemon.ts";
import { Jupyter } from "../helpers/jupyter.ts";
import { overHttp } from "../helpers/mcp.ts";
import { patience } from "../helpers/patience.ts";
import { connectBrowser, warmPage, whyNoBrowser } from "../helpers/playwright.ts";
import { buildRecipe } from "../helpers/recipe.ts";

import type { Client } from "@modelcontextprotocol/client";

const TOOLS = ["browser_eval", "browser_open", "browser_screenshot", "list_files", "read_file", "run_shell", "write_file"];
const PNG = "iVBORw0KGgo";
/** The client's default of one minute is too short for emulated guests on a busy machine */
const PATIENCE = { timeout: patience() };

describe("recipe agent-workbench", { skip: await whyNoBrowser() }, () => {
  let daemon: TestDaemon;
  let token: string;
  let sandbox: Sandbox;
  let other: Sandbox;
  let mcp: Client;

  before(async () => {
    daemon = await TestDaemon.start(["--bind", "127.0.0.1:0"]);
    token = (await daemon.controller.createToken("agent")).token;
    const tag = await buildRecipe(daemon, "agent-workbench");
    const { controller } = daemon;
    sandbox = await Sandbox.create(tag, { controller });
    other = await Sandbox.create(tag, { controller });
    mcp = await overHttp(`${proxyOf(sandbox, 8931)}/mcp`, token, "2025-11-25");
  });

  after(async () => {
    await mcp?.close();
    await daemon[Symbol.asyncDispose]();
  });

  it("offers files and a shell as MCP tools", async () => {
    assert.deepEqual((await mcp.listTools()).tools.map(({ name }) => name).toSorted(), TOOLS);
    await use("write_file", { path: "work/page.html", content: "<title>made by the agent</title><h1>Done</h1>" });
    assert.equal(await use("list_files", { path: "work" }), "page.html");
    assert.match(await use("read_file", { path: "/home/agent/work/page.html" }), /made by the agent/);
    assert.equal(await use("run_shell", { command: "whoami; grep -c agent work/page.html; exit 3" }), "agent\n1\n\nexit code 3");
    const missing = await mcp.callTool({ name: "read_file", arguments: { path: "nowhere" } }, PATIENCE);
    assert.equal(missing.isError, true);
    assert.match(textOf(missing.content), /^FileNotFoundError/);
    const late = await mcp.callTool({ name: "run_shell", arguments: { command: "sleep 600", timeout_secs: 0.1 } }, PATIENCE);
    assert.match(textOf(late.content), /^TimeoutError/);
  });

  it("supports every MCP version that has this transport and begins with a handshake", async () => {
    for (const version of ["2025-03-26", "2025-06-18"] as const) {
      const client = await overHttp(`${proxyOf(sandbox, 8931)}/mcp`, token, version);
      assert.equal((await client.listTools()).tools.length, TOOLS.length);
      await client.close();
    }
  });

  it("has one browser, for MCP and for Playwright", async () => {
    assert.ok(daemon.bind);
    const browser = await connectBrowser(sandbox, daemon.bind, token);
    const page = warmPage(browser);
    assert.equal(await page.title(), "warm");
    assert.match(await use("browser_open", { url: "http://127.0.0.1:8888/api" }), /"version"/);
    assert.match(await page.innerText("body"), /"version"/);
    await page.setContent("<title>by Playwright</title>");
    assert.equal(await use("browser_eval", { expression: "document.title" }), '"by Playwright"');
    const { content } = await mcp.callTool({ name: "browser_screenshot", arguments: {} }, PATIENCE);
    const [shot] = content;
    assert.ok(shot?.type === "image" && shot.data.startsWith(PNG));
    await browser.close();
  });

  it("blocks access of pages to its servers", async () => {
    const cross = { origin: "http://evil.example", "content-type": "application/json" };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    assert.equal((await sandbox.ports.fetch(8931, "/mcp", { method: "POST", headers: cross, body })).status, 403);
    const form = { "content-type": "text/plain" };
    assert.equal((await sandbox.ports.fetch(8931, "/mcp", { method: "POST", headers: form, body })).status, 415);
    assert.equal((await sandbox.ports.fetch(8888, "/api/terminals", { method: "POST", headers: cross, body: "{}" })).status, 404);
  });

  it("has a warm Jupyter kernel, separate in each fork", async () => {
    const [mine, theirs] = [jupyterOf(sandbox), jupyterOf(other)];
    const [kernel] = await mine.call<{ id: string }[]>("/api/kernels");
    assert.ok(kernel);
    assert.equal(await mine.execute(kernel.id, "x = 40; x + 2"), "42");
    assert.equal(await theirs.execute(kernel.id, "x"), "NameError");
    assert.equal(await mine.execute(kernel.id, "open('work/page.html').read().count('agent')"), "1");
  });

  it("has a terminal over a WebSocket", async () => {
    const jupyter = jupyterOf(sandbox);
    const { name } = await jupyter.call<{ name: string }>("/api/terminals", "POST");
    assert.match(await jupyter.type(name, "echo $((6 * 7)) $(whoami)", /^42 agent/m), /42 agent/);
  });

  function proxyOf({ id }: Sandbox, port: number): string {
    return `http://${daemon.bind}/v1/sandboxes/${id}/proxy/${port}`;
  }

  function jupyterOf(where: Sandbox): Jupyter {
    return new Jupyter(proxyOf(where, 8888), { "x-forkd-token": token });
  }

  async function use(name: string, args: Record<string, unknown>): Promise<string> {
    const { content, isError } = await mcp.callTool({ name, arguments: args }, PATIENCE);
    assert.notEqual(isError, true, JSON.stringify(content));
    return textOf(content);
  }
});

function textOf(content: Awaited<ReturnType<Client["callTool"]>>["content"]): string {
  return content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

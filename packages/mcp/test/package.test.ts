// The published package: plain JavaScript, started as npm starts it, with its dependencies.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, realpath, rename, rm, symlink } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "..", "..", "..");

describe("the published package", () => {
  let dir: string;
  let bin: string;
  const server = createServer((_request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify([]));
  });

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), "forkd-mcp-"));
    await run(process.execPath, ["--disable-warning=ExperimentalWarning", join(ROOT, "scripts", "build-npm.ts"), join(dir, "packages")]);
    const modules = join(dir, "node_modules");
    await mkdir(modules);
    await rename(join(dir, "packages", "sdk"), join(modules, "forkd"));
    await rename(join(dir, "packages", "mcp"), join(modules, "forkd-vm-mcp"));
    for (const name of ["@modelcontextprotocol", "zod"])
      await symlink(await realpath(join(ROOT, "node_modules", name)), join(modules, name));
    bin = join(modules, "forkd-vm-mcp", "bin.js");
    server.listen(join(dir, "forkd.sock"));
    await once(server, "listening");
  });

  after(async () => {
    server.close();
    await rm(dir, { recursive: true, force: true });
  });

  it("depends on what it imports, and on nothing else", async () => {
    const manifest = JSON.parse(await readFile(join(dir, "node_modules", "forkd-vm-mcp", "package.json"), "utf8")) as Record<
      string,
      unknown
    >;
    assert.deepEqual(Object.keys(manifest["dependencies"] as object), ["@modelcontextprotocol/server", "forkd", "zod"]);
    assert.equal(manifest["name"], "forkd-vm-mcp");
    assert.match((manifest["dependencies"] as Record<string, string>)["forkd"] ?? "", /^npm:forkd-vm@\d+\.\d+\.\d+$/);
    assert.doesNotMatch(await readFile(bin, "utf8"), /from "\.[^"]+\.ts"/);
  });

  it("says what it is", async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, "packages", "mcp", "package.json"), "utf8")) as { version: string };
    assert.equal((await run(process.execPath, [bin, "--version"])).stdout, `${version}\n`);
    assert.match((await run(process.execPath, [bin, "--help"])).stdout, /^Usage: forkd-mcp/);
    await assert.rejects(run(process.execPath, [bin, "--lease-secs", "0"]), { code: 2 });
  });

  it("serves a client from the daemon of this user", async () => {
    const client = await connect({ FORKD_RUN: dir });
    assert.ok((await client.listTools()).tools.length > 20);
    assert.deepEqual((await client.callTool({ name: "list_sandboxes", arguments: {} })).content, [
      { type: "text", text: '{"sandboxes":[],"next_cursor":null}' },
    ]);
    await client.close();
  });

  it("says how to get a daemon when there is none and no forkd to start one", async () => {
    const client = await connect({ FORKD_RUN: join(dir, "nothing"), PATH: join(dir, "nothing") });
    const { content, isError } = await client.callTool({ name: "list_sandboxes", arguments: {} });
    assert.equal(isError, true);
    assert.match(JSON.stringify(content), /DAEMON_UNREACHABLE.*forkd up/);
    await client.close();
  });

  async function connect(env: Record<string, string>): Promise<Client> {
    const client = new Client({ name: "test", version: "1" });
    await client.connect(new StdioClientTransport({ command: process.execPath, args: [bin], env, stderr: "inherit" }));
    return client;
  }
});

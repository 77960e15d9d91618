// The official MCP client, connected to `forkd mcp` over stdio or HTTP.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { join, resolve } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { patience } from "./patience.ts";
import type { RequestOptions } from "@modelcontextprotocol/client";
import type { TestDaemon } from "./daemon.ts";

const ROOT = resolve(import.meta.dirname, "..", "..");
const CLI = join(ROOT, "packages", "cli", "bin", "forkd.mjs");
const NODE_OPTIONS = ["--disable-warning=ExperimentalWarning"];

/** All protocol versions of the client; the last one has no sessions */
export const VERSIONS = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] as const;
export type Version = (typeof VERSIONS)[number];
export const NEWEST: Version = "2026-07-28";

export function newClient(version: Version): Client {
  const options = version === NEWEST ? { versionNegotiation: { mode: { pin: version } } } : { supportedProtocolVersions: [version] };
  return new Client({ name: "test", version: "1" }, options);
}

/** Transport that starts `forkd mcp` as a child process */
export function stdioTransport(daemon: TestDaemon, args: string[] = [], env: Record<string, string> = {}): StdioClientTransport {
  return new StdioClientTransport({
    command: process.execPath,
    args: [...NODE_OPTIONS, CLI, "mcp", ...args],
    env: { ...(daemon.env as Record<string, string>), FORKD_NO_AUTOSTART: "1", ...env },
    stderr: "inherit",
  });
}

export async function overStdio(daemon: TestDaemon, version: Version, args: string[] = []): Promise<Client> {
  const client = newClient(version);
  await client.connect(stdioTransport(daemon, args));
  assert.equal(client.getNegotiatedProtocolVersion(), version);
  return client;
}

export async function overHttp(url: string, token: string, version: Version): Promise<Client> {
  const client = newClient(version);
  await client.connect(httpTransport(url, token));
  assert.equal(client.getNegotiatedProtocolVersion(), version);
  return client;
}

export function httpTransport(url: string, token: string): StreamableHTTPClientTransport {
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${token}` } } });
}

/** A `forkd mcp --http` process; ends when disposed */
export class McpProcess implements AsyncDisposable {
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  static async start(daemon: TestDaemon, args: string[] = []): Promise<McpProcess> {
    const child = spawn(process.execPath, [...NODE_OPTIONS, CLI, "mcp", "--http", "127.0.0.1:0", ...args], {
      env: { ...daemon.env, FORKD_NO_AUTOSTART: "1" },
      stdio: ["ignore", "ignore", "pipe"],
    });
    assert.ok(child.stderr);
    for await (const line of createInterface(child.stderr)) {
      const url = /^MCP at (\S+),/.exec(line)?.[1];
      if (url !== undefined) {
        child.stderr.resume();
        return new McpProcess(child, url);
      }
      process.stderr.write(`${line}\n`);
    }
    throw new Error("the MCP server did not start");
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill(signal);
      await once(this.#child, "exit");
    }
    return this.#child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

export type Answer = { value: Record<string, unknown>; isError: boolean };

/** JSON of a tool's answer, which may be an error */
export async function ask(client: Client, name: string, args: object = {}, opts: RequestOptions = {}): Promise<Answer> {
  const result = await client.callTool({ name, arguments: args as Record<string, unknown> }, { timeout: patience(), ...opts });
  const [content, ...rest] = result.content;
  assert.ok(content?.type === "text" && rest.length === 0, JSON.stringify(result).slice(0, 500));
  return { value: parse(content.text), isError: result.isError === true };
}

/** Value of a call that must succeed */
export async function use<T = Record<string, unknown>>(
  client: Client,
  name: string,
  args: object = {},
  opts: RequestOptions = {},
): Promise<T> {
  const { value, isError } = await ask(client, name, args, opts);
  assert.equal(isError, false, `${name}: ${JSON.stringify(value)}`);
  return value as T;
}

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { text };
  }
}

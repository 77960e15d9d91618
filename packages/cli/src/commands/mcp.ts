// forkd mcp

import { Command } from "commander";
import { connect, connectIfRunning } from "../daemon/connect.ts";
import { failure, usageError } from "../errors.ts";
import { problemOf } from "../exit.ts";
import { addText, duration } from "../options/values.ts";
import { printNote } from "../terminal/output.ts";
import { VERSION } from "../installation.ts";
import { mcpInstallCommand } from "./mcp/install.ts";

import type { Cli } from "../cli.ts";

type Options = {
  http?: string;
  lease: number;
  idle: number;
  allowHost?: string[];
  tlsCert?: string;
  tlsKey?: string;
  insecure?: boolean;
};

const DEFAULT_SECS = 600;

export function mcpCommand(cli: Cli): Command {
  return new Command("mcp")
    .description("serve forkd to a model as MCP tools, at standard input and output or over HTTP")
    .option("--http <host:port>", "serve over HTTP; each request needs a token of the daemon")
    .option("--lease <time>", "how long sandboxes outlive a server that was killed (default: 10m)", duration, DEFAULT_SECS)
    .option("--idle <time>", "with --http: idle time after which a client's sandboxes end (default: 10m)", duration, DEFAULT_SECS)
    .option("--allow-host <name>", "with --http: another host name that requests may use; may be repeated", addText)
    .option("--tls-cert <file>", "with --http: certificate, for https")
    .option("--tls-key <file>", "with --http: its key")
    .option("--insecure", "with --http: allow plain http on an address that others can reach")
    .action(async (opts: Options) => (opts.http === undefined ? serveStdio(cli, opts) : serveHttp(cli, opts, opts.http)))
    .addCommand(mcpInstallCommand(cli));
}

async function serveStdio(cli: Cli, opts: Options): Promise<void> {
  if (process.stdin.isTTY) printNote("Waiting for an MCP client at standard input; 'forkd mcp install' configures a client to start it.");
  const { serveOverStdio } = await import("forkd-mcp");
  await serveOverStdio({
    version: VERSION,
    connect: async () => connect(cli),
    leaseSecs: opts.lease,
    signal: cli.signal,
    onError: note,
  });
}

async function serveHttp(cli: Cli, opts: Options, address: string): Promise<void> {
  const { HttpServer, isLoopback } = await import("forkd-mcp");
  const { host, port } = parseAddress(address);
  const tls = await certificate(opts);
  if (!tls && !opts.insecure && !isLoopback(host)) {
    throw failure(
      "BAD_CONFIG",
      `Cannot serve on ${address}: others could read the tokens in transit.`,
      "Give --tls-cert and --tls-key, or serve on 127.0.0.1 behind a proxy; --insecure serves without encryption.",
    );
  }
  const url = await daemonUrl(cli);
  const { Controller } = await import("forkd");
  const server = await HttpServer.listen({
    version: VERSION,
    host,
    port,
    tls,
    hosts: opts.allowHost,
    connect: async (token) => new Controller({ url, token, project: cli.project ?? "", timeoutMs: 0 }),
    idleSecs: opts.idle,
    leaseSecs: opts.lease,
    onError: note,
  });
  printNote(`MCP at ${server.url}, for the daemon at ${url}. Clients need a token: forkd token create NAME. Ctrl-C ends it.`);
  if (!cli.signal.aborted) await new Promise((resolve) => cli.signal.addEventListener("abort", resolve, { once: true }));
  await server.close();
}

/** HTTP clients need a token: through the socket each of them would be the owner */
async function daemonUrl(cli: Cli): Promise<string> {
  if (cli.daemonUrl !== undefined && !cli.daemonUrl.startsWith("unix:")) return cli.daemonUrl;
  const forkd = await connectIfRunning(cli);
  const status = await forkd?.status({ signal: cli.signal });
  if (status?.bind) return `${status.tls ? "https" : "http"}://${status.bind}`;
  throw failure(
    "NO_TCP",
    "Cannot serve over HTTP: the daemon is not running, or does not listen on TCP, so it cannot check tokens.",
    "Start it with 'forkd up', or name one with --daemon-url.",
  );
}

async function certificate(opts: Options): Promise<{ cert: Buffer; key: Buffer } | undefined> {
  if (opts.tlsCert === undefined && opts.tlsKey === undefined) return undefined;
  if (opts.tlsCert === undefined || opts.tlsKey === undefined) throw usageError("--tls-cert and --tls-key need each other");
  const { readFile } = await import("node:fs/promises");
  return { cert: await readFile(opts.tlsCert), key: await readFile(opts.tlsKey) };
}

function parseAddress(text: string): { host: string; port: number } {
  const [, host = "", port = ""] = /^(?:\[?([^\]]*)\]?:)?(\d+)$/.exec(text) ?? [];
  if (port === "" || Number(port) > 65_535) throw usageError(`'${text}' is not an address: use HOST:PORT, such as 127.0.0.1:8890`);
  return { host: host || "127.0.0.1", port: Number(port) };
}

/** Standard output carries the protocol */
function note(error: unknown): void {
  const { error: message, code } = problemOf(error);
  printNote(`forkd mcp: ${message} [${code}]`);
}

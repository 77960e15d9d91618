#!/usr/bin/env node
// forkd-mcp: the MCP server as a program of its own. Its daemon is that of FORKD_URL, else this user's, which `forkd` starts if needed.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Controller } from "forkd";
import { problemOf } from "./errors.ts";
import { localDaemon } from "./local-daemon.ts";
import { serveOverStdio } from "./stdio.ts";

const DEFAULT_LEASE_SECS = 600;
const EXIT_USAGE = 2;
const HELP = `Usage: forkd-mcp [--lease-secs SECS]

Serves forkd to a model as MCP tools, at standard input and output.
The daemon is the one of FORKD_URL (with FORKD_TOKEN), else this user's own, which the command 'forkd' starts if needed.
'forkd mcp' does the same, can serve over HTTP, and adds itself to the settings of clients.

  --lease-secs SECS  how long sandboxes outlive a server that was killed (default: ${DEFAULT_LEASE_SECS})
  -V, --version      print the version
  -h, --help         print this help
`;

process.exitCode = await main(process.argv.slice(2));

async function main(argv: string[]): Promise<number> {
  const version = await ownVersion();
  let options: ReturnType<typeof parse>;
  try {
    options = parse(argv);
  } catch (error) {
    process.stderr.write(`forkd-mcp: ${error instanceof Error ? error.message : String(error)}\nRun 'forkd-mcp --help'. [USAGE]\n`);
    return EXIT_USAGE;
  }
  if (options.help || options.version) {
    process.stdout.write(options.help ? HELP : `${version}\n`);
    return 0;
  }
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(name, () => stop.abort());
  const connect = process.env["FORKD_URL"] ? async (): Promise<Controller> => new Controller({ timeoutMs: 0 }) : localDaemon();
  await serveOverStdio({ version, connect, leaseSecs: options.leaseSecs, signal: stop.signal, onError: note });
  return 0;
}

function parse(argv: string[]): { leaseSecs: number; help: boolean; version: boolean } {
  const { values } = parseArgs({
    args: argv,
    options: {
      "lease-secs": { type: "string", default: String(DEFAULT_LEASE_SECS) },
      version: { type: "boolean", short: "V", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const leaseSecs = Number(values["lease-secs"]);
  if (!Number.isSafeInteger(leaseSecs) || leaseSecs < 1) throw new Error("--lease-secs must be a whole number of at least 1.");
  return { leaseSecs, help: values.help, version: values.version };
}

async function ownVersion(): Promise<string> {
  const manifest = await readFile(join(import.meta.dirname, import.meta.filename.endsWith(".ts") ? ".." : ".", "package.json"), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}

/** Standard output carries the protocol */
function note(error: unknown): void {
  const { error: message, code } = problemOf(error);
  process.stderr.write(`forkd-mcp: ${message} [${code}]\n`);
}

// examples/run NAME: packages, daemon, snapshot, model, and then the example itself. Ctrl-C ends it in order, a second one at once.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { exampleNames, prepareExample, ROOT, type CommandLine } from "./examples.ts";
import { IN_NAMESPACE, withoutNamespace } from "./namespace.ts";

const run = promisify(execFile);
const FORKD = join(ROOT, "forkd");
const NODE = [process.execPath, "--disable-warning=ExperimentalWarning"];
const IMAGE = "python-numpy";
/** Long enough to end every sandbox of an example */
const PATIENCE_MS = 60_000;

const [name = "", ...rest] = process.argv.slice(2);
const tag = process.env["FORKD_TAG"] ?? "python";
const stop = new AbortController();
const { signal } = stop;
let endNow = (): void => undefined;
for (const kind of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(kind, () => {
    if (signal.aborted) endNow();
    else stop.abort(128 + constants.signals[kind]);
  });
}

try {
  if (rest.length > 0 || !exampleNames().includes(name)) {
    console.error(`usage: examples/run NAME, where NAME is one of: ${exampleNames().join(", ")}`);
    process.exitCode = 2;
  } else {
    const code = await runExample();
    process.exitCode = signal.aborted ? (signal.reason as number) : code;
  }
} catch (error) {
  const { stderr, message } = error as Error & { stderr?: string };
  if (!signal.aborted) console.error(`examples/run: ${name} failed: ${(stderr || message).trim()}`);
  process.exitCode = signal.aborted ? (signal.reason as number) : 1;
}

async function runExample(): Promise<number> {
  const { OPENAI_API_KEY: key, OPENAI_MODEL: model, FORKD_URL: url, ...others } = process.env;
  if (key && !model) throw new Error("OPENAI_API_KEY is set but OPENAI_MODEL is not: which model shall be asked?");
  if (!key && url && !url.startsWith("unix:"))
    throw new Error(`${url} cannot be reached offline: unset FORKD_URL to use this machine's daemon, or set OPENAI_API_KEY.`);
  if (!key) await checkNamespace();
  const command = await prepareExample(name, { note, signal });
  const socket = await prepareSnapshot();
  // Frameworks leave caches and databases where they are run and in the home folder.
  const home = await mkdtemp(join(tmpdir(), "forkd-example-"));
  try {
    const env = {
      ...others,
      HOME: home,
      PYTHONPATH: join(ROOT, "python", "src"),
      PYTHONDONTWRITEBYTECODE: "1",
      PYTHONUNBUFFERED: "1",
      FORKD,
      FORKD_URL: url ?? `unix://${socket}`,
      FORKD_TAG: tag,
      FORKD_NO_AUTOSTART: "1",
    };
    if (key) return await runCommand(command, { cwd: home, env: { ...env, OPENAI_API_KEY: key, OPENAI_MODEL: model } });
    console.log("no OPENAI_API_KEY: offline, in a network namespace that has nothing but loopback");
    const [program, ...args] = [...IN_NAMESPACE, ...NODE, join(import.meta.dirname, "offline.ts"), command.program, ...command.args];
    return await runCommand({ program, args }, { cwd: home, env });
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

async function checkNamespace(): Promise<void> {
  const why = await withoutNamespace(signal);
  signal.throwIfAborted();
  if (why === undefined) return;
  const hint = "Set OPENAI_API_KEY and OPENAI_MODEL, or let this user make namespaces ('forkd doctor' says how) and install iproute2.";
  throw new Error(`without a key it runs offline, in a network namespace, and none can be made: ${why}. ${hint}`);
}

/** A Python with numpy, as in the README; starts the daemon, and says where its socket is */
async function prepareSnapshot(): Promise<string> {
  const { stdout } = await run(FORKD, ["snapshot", "ls", "-q"], { signal });
  if (!stdout.split("\n").includes(tag)) {
    note(`making the snapshot '${tag}'`);
    await run(FORKD, ["image", "build", IMAGE, "--packages", "python3,python3-numpy"], { signal });
    await run(FORKD, ["snapshot", "create", tag, "--image", IMAGE, "-c", "import numpy"], { signal });
  }
  const status = await run(FORKD, ["status", "--json"], { signal });
  return (JSON.parse(status.stdout) as { socket: string }).socket;
}

/** In a process group of its own; what it says about an interruption is of no interest */
async function runCommand({ program, args }: CommandLine, opts: { cwd: string; env: NodeJS.ProcessEnv }): Promise<number> {
  signal.throwIfAborted();
  const child = spawn(program, args, { ...opts, detached: true, stdio: ["ignore", "inherit", "pipe"] });
  child.stderr.on("data", (text: Buffer) => {
    if (!signal.aborted) process.stderr.write(text);
  });
  const send = (kind: NodeJS.Signals): void => {
    if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) process.kill(-child.pid, kind);
  };
  endNow = () => send("SIGKILL");
  signal.addEventListener("abort", () => {
    send("SIGINT");
    setTimeout(endNow, PATIENCE_MS).unref();
  });
  const [code, kind] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  return code ?? 128 + constants.signals[kind ?? "SIGKILL"];
}

function note(message: string): void {
  console.error(`examples/run: ${message}`);
}

// The load of the E2B benchmark, with E2B's SDK and with forkd's.

import { ForkdError } from "@forkd/runtime";
import { Sandbox } from "forkd";
import { median, percentiles, round, type Percentiles } from "./stats.ts";
import { inTurns } from "./turns.ts";

import type * as e2bPackage from "e2b";
import type { Controller } from "forkd";

const ECHO_WARM_UP = 5;
const COMMAND = "echo on";
const ANSWER = "on\n";
/** time to live of sandboxes, in case this process is killed and cannot end them */
const LIFE_SECS = 600;

type E2bSandbox = e2bPackage.Sandbox;
type E2b = Pick<typeof e2bPackage, "Sandbox" | "TimeoutError">;

/** Both SDKs, to the same daemon at the same address, with the same token and the same snapshot */
export type Clients = {
  e2b: E2b;
  connection: { apiKey: string; apiUrl: string; sandboxUrl: string };
  controller: Controller;
  tag: string;
  signal: AbortSignal;
};

/** Medians, ms */
export type Compared = { e2b: number; own: number; ratio: number };

export type Sessions = { count: number; errors: number; first_error: string | null; seconds: number };

/** Used only by tests and this benchmark, so missing where only forkd was installed */
export async function loadE2b(): Promise<E2b> {
  try {
    return await import("e2b");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    const hint = "Run the benchmark from forkd's repository after 'npm install', or install the npm package e2b beside forkd.";
    throw new ForkdError("HOST_TOOL_MISSING", "Cannot measure E2B's SDK: the npm package e2b is not installed.", { hint, cause: error });
  }
}

export async function compareCreates(clients: Clients, rounds: number): Promise<Compared> {
  const times = await inTurns(
    { e2b: async () => timeOne(async () => createE2b(clients)), own: async () => timeOne(async () => createOwn(clients)) },
    { rounds, signal: clients.signal },
  );
  return compare(times);
}

/** One sandbox into so many, until each has answered a command */
export async function compareForks(clients: Clients, count: number, rounds: number): Promise<Compared> {
  const { signal } = clients;
  const sandbox = await createE2b(clients);
  const source = await createOwn(clients);
  try {
    const times = await inTurns(
      { e2b: async () => timeE2bForks(sandbox, count), own: async () => timeOwnForks(source, count, signal) },
      { rounds, warmUp: 1, signal },
    );
    return compare(times);
  } finally {
    await Promise.all([sandbox.kill(), source.kill()]);
  }
}

/** From a line sent to a command's stdin to its echo: two ways, and a request that is answered */
export async function timeEcho(clients: Clients, rounds: number): Promise<Percentiles> {
  const sandbox = await createE2b(clients);
  let arrived: (() => void) | undefined;
  const cat = await sandbox.commands.run("cat", { background: true, stdin: true, timeoutMs: 0, onStdout: () => arrived?.() });
  const times: number[] = [];
  for (let i = -ECHO_WARM_UP; i < rounds; i++) {
    clients.signal.throwIfAborted();
    const echo = new Promise<void>((resolve) => (arrived = resolve));
    const began = performance.now();
    await Promise.all([sandbox.commands.sendStdin(cat.pid, `${i}\n`), echo.then(() => times.push(performance.now() - began))]);
  }
  await sandbox.commands.closeStdin(cat.pid);
  await cat.wait();
  await sandbox.kill();
  return percentiles(times.slice(ECHO_WARM_UP));
}

/** Each by itself from its making to its end, all begun at once */
export async function runSessions(clients: Clients, count: number): Promise<Sessions> {
  const began = performance.now();
  const sessions = Array.from({ length: count }, async (_, at) => runSession(clients, `session ${at}`));
  const ended = await unlessAborted(Promise.allSettled(sessions), clients.signal);
  const failed = ended.filter((each) => each.status === "rejected");
  const [first] = failed;
  return {
    count,
    errors: failed.length,
    first_error: first ? String(first.reason) : null,
    seconds: round((performance.now() - began) / 1000),
  };
}

/** From the request to kill a sandbox to the error of a command that runs in it */
export async function timeKillSeen(clients: Clients, rounds: number): Promise<Percentiles> {
  const times: number[] = [];
  for (let i = -1; i < rounds; i++) {
    clients.signal.throwIfAborted();
    const sandbox = await createE2b(clients);
    const command = await sandbox.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
    const seen = command.wait().then(
      () => null,
      (error: unknown) => ({ error, at: performance.now() }),
    );
    const began = performance.now();
    const [end] = await Promise.all([seen, clients.e2b.Sandbox.kill(sandbox.sandboxId, clients.connection)]);
    if (!(end?.error instanceof clients.e2b.TimeoutError))
      throw new ForkdError("EXEC_FAILED", `A command in a sandbox that was killed ended with ${String(end?.error)}.`);
    if (i >= 0) times.push(end.at - began);
  }
  return percentiles(times);
}

/** Sessions in progress after a failure end with their daemon */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

async function runSession(clients: Clients, text: string): Promise<void> {
  const sandbox = await createE2b(clients);
  try {
    await askE2b(sandbox);
    await sandbox.files.write("note", text);
    const read = await sandbox.files.read("note");
    if (read !== text) throw new ForkdError("FILE_FAILED", `A file held ${JSON.stringify(read)} instead of ${JSON.stringify(text)}.`);
  } finally {
    await sandbox.kill();
  }
}

async function createE2b({ e2b, connection, tag }: Clients): Promise<E2bSandbox> {
  return e2b.Sandbox.create(tag, { ...connection, timeoutMs: LIFE_SECS * 1000 });
}

/** With what one of E2B's has by default: it may connect to the internet */
async function createOwn({ controller, tag, signal }: Clients): Promise<Sandbox> {
  return Sandbox.create(tag, { controller, ttlSecs: LIFE_SECS, network: { mode: "open" }, signal });
}

async function timeOne(create: () => Promise<{ kill: () => Promise<unknown> }>): Promise<number> {
  const began = performance.now();
  const sandbox = await create();
  const ms = performance.now() - began;
  await sandbox.kill();
  return ms;
}

async function timeE2bForks(sandbox: E2bSandbox, count: number): Promise<number> {
  const began = performance.now();
  const forks = (await sandbox.fork({ count, timeoutMs: LIFE_SECS * 1000 })).map((fork) => {
    if (fork instanceof Error) throw fork;
    return fork;
  });
  await Promise.all(forks.map(askE2b));
  const ms = performance.now() - began;
  await Promise.all(forks.map(async (fork) => fork.kill()));
  return ms;
}

async function timeOwnForks(sandbox: Sandbox, count: number, signal: AbortSignal): Promise<number> {
  const began = performance.now();
  const forks = await sandbox.fork(count, { ttlSecs: LIFE_SECS, signal });
  await Promise.all(forks.map(async (fork) => askOwn(fork, signal)));
  const ms = performance.now() - began;
  await Promise.all(forks.map(async (fork) => fork.kill()));
  return ms;
}

async function askE2b(sandbox: E2bSandbox): Promise<void> {
  check((await sandbox.commands.run(COMMAND)).stdout);
}

/** The same program with the same user as E2B's SDK has it started */
async function askOwn(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  check((await sandbox.exec(["/bin/bash", "-l", "-c", COMMAND], { user: "user", cwd: "/home/user", timeoutSecs: 60, signal })).stdout);
}

function check(stdout: string): void {
  if (stdout !== ANSWER) throw new ForkdError("EXEC_FAILED", `A sandbox answered ${JSON.stringify(stdout)}.`);
}

function compare(times: Record<"e2b" | "own", number[]>): Compared {
  const [e2b, own] = [median(times.e2b), median(times.own)];
  return { e2b, own, ratio: round(e2b / own) };
}

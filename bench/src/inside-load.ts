// The load of the benchmark inside a sandbox: calls, streams, files, requests to a server, connections to the host.

import { once } from "node:events";
import { Agent, request } from "node:http";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { addAbortSignal } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ForkdError } from "@forkd/runtime";
import { rssMibOf } from "./daemon-load.ts";
import { CONNECTING } from "./inside-programs.ts";
import { median, percentiles, round, type Percentiles } from "./stats.ts";

import type { Sandbox as LocalSandbox } from "@forkd/runtime";
import type { Sandbox } from "forkd";

const MIB = 1024 * 1024;
const CHUNK = 256 * 1024;
const SAMPLE_MS = 10;
const WARM_UP_ROUNDS = 5;
const TURN = 10;
const WARM_UP_MS = 500;
const RAW_FILE = "/tmp/raw";

export type Calls = { eval_ms: number; exec_ms: number; ratio: number };
export type Transfer = { mib_per_second: number; daemon_more_mib: number };
export type Requests = { per_second: number; errors: number };
export type PolicyChange = { allowed_ms: Percentiles; cut_ms: Percentiles };

/** Alternates in batches, so that other load of the machine affects both sides */
export async function compareExecAndEval(sandbox: Sandbox, rounds: number, signal: AbortSignal): Promise<Calls> {
  const times: { eval: number[]; exec: number[] } = { eval: [], exec: [] };
  for (let turn = -1; turn * TURN < rounds; turn++) {
    const evals = await timed(TURN, async () => sandbox.eval("1+1", { signal }));
    const execs = await timed(TURN, async () => {
      const { exit_code: code } = await sandbox.exec(["true"], { signal });
      if (code !== 0) throw new ForkdError("EXEC_FAILED", `true ended with ${code}.`);
    });
    if (turn < 0) continue;
    times.eval.push(...evals);
    times.exec.push(...execs);
  }
  const [evalMs, execMs] = [median(times.eval), median(times.exec)];
  return { eval_ms: evalMs, exec_ms: execMs, ratio: round(execMs / evalMs) };
}

async function timed(count: number, work: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const began = performance.now();
    await work();
    times.push(performance.now() - began);
  }
  return times;
}

/** From a line sent to a process's stdin to its echo on stdout: more than the way of a byte that the guest writes */
export async function timeEcho(sandbox: Sandbox, rounds: number, signal: AbortSignal): Promise<Percentiles> {
  let arrived: (() => void) | undefined;
  const process = await sandbox.processes.start(["cat"], { stdin: true, signal, onStdout: () => arrived?.() });
  const times: number[] = [];
  for (let i = -WARM_UP_ROUNDS; i < rounds; i++) {
    signal.throwIfAborted();
    const echo = new Promise<void>((resolve) => (arrived = resolve));
    const began = performance.now();
    await process.write(`${i}\n`);
    await echo;
    if (i >= 0) times.push(performance.now() - began);
  }
  await process.closeStdin();
  await process.wait();
  return percentiles(times);
}

export async function* zeroes(bytes: number): AsyncGenerator<Uint8Array> {
  const chunk = new Uint8Array(CHUNK);
  for (let left = bytes; left > 0; left -= CHUNK) yield left >= CHUNK ? chunk : chunk.subarray(0, left);
}

/** How fast it went, and how much larger the process became meanwhile */
export async function watched(pid: number, bytes: number, work: () => Promise<void>): Promise<Transfer> {
  const before = await rssMibOf(pid);
  let most = before;
  const over = new AbortController();
  const watching = (async () => {
    while (!over.signal.aborted) {
      most = Math.max(most, await rssMibOf(pid));
      await sleep(SAMPLE_MS);
    }
  })();
  let perSecond = 0;
  try {
    perSecond = await speedOf(bytes, work);
  } finally {
    over.abort();
    await watching;
  }
  return { mib_per_second: perSecond, daemon_more_mib: round(Math.max(0, most - before)) };
}

/** MiB a second */
export async function speedOf(bytes: number, work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return round((bytes / MIB / (performance.now() - began)) * 1000);
}

/** One file through the agent's channel alone, without daemon, HTTP and archive */
export async function rawTransfers({ files }: LocalSandbox, bytes: number): Promise<{ up: number; down: number }> {
  const up = await speedOf(bytes, async () => files.write(RAW_FILE, zeroes(bytes)));
  const down = await speedOf(bytes, async () => countOf(files.readChunks(RAW_FILE), bytes));
  await files.remove(RAW_FILE);
  return { up, down };
}

export async function countOf(chunks: AsyncIterable<Uint8Array>, expected: number): Promise<void> {
  let length = 0;
  for await (const chunk of chunks) length += chunk.length;
  if (length !== expected) throw new ForkdError("FILE_FAILED", `${length} bytes came back instead of ${expected}.`);
}

/** Requests without pause over kept connections, one at a time on each */
export async function requestWithoutPause(
  at: { socketPath: string; path: string },
  opts: { connections: number; seconds: number; signal: AbortSignal },
): Promise<Requests> {
  const agent = new Agent({ keepAlive: true, maxSockets: opts.connections });
  const began = performance.now() + WARM_UP_MS;
  const until = began + opts.seconds * 1000;
  let [answered, errors] = [0, 0];
  const client = async (): Promise<void> => {
    while (performance.now() < until) {
      opts.signal.throwIfAborted();
      const isRight = await requestOnce(agent, at);
      // a failed request counts
      if (!isRight) errors++;
      else if (performance.now() >= began) answered++;
    }
  };
  try {
    await Promise.all(Array.from({ length: opts.connections }, client));
  } finally {
    agent.destroy();
  }
  return { per_second: round(answered / opts.seconds), errors };
}

/** Time until a rule takes effect, from the request: until a program that keeps trying connects, and until its connection is closed */
export async function timePolicy(sandbox: Sandbox, rounds: number, signal: AbortSignal): Promise<PolicyChange> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const allowed: number[] = [];
  const cut: number[] = [];
  await sandbox.network.set({ mode: "none" }, { signal });
  const program = await sandbox.processes.start(["python3", "-c", CONNECTING, "host.forkd.internal", String(port)], { signal });
  try {
    // the first waits for the program to start
    for (let i = -1; i < rounds; i++) {
      const connected = once(server, "connection", { signal }) as Promise<[Socket]>;
      const opening = performance.now();
      await Promise.all([connected, sandbox.network.set({ mode: "allow", allow: [`127.0.0.1:${port}`] }, { signal })]);
      const [socket] = await connected;
      const opened = performance.now();
      const closed = closeOf(socket, signal);
      const closing = performance.now();
      await Promise.all([closed, sandbox.network.set({ mode: "none" }, { signal })]);
      const cutAt = performance.now();
      if (i < 0) continue;
      allowed.push(opened - opening);
      cut.push(cutAt - closing);
    }
  } finally {
    await program.kill("SIGKILL");
    server.close();
  }
  return { allowed_ms: percentiles(allowed), cut_ms: percentiles(cut) };
}

/** It sends without end; what comes is thrown away, and a reset is an end like any other */
async function closeOf(socket: Socket, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  addAbortSignal(signal, socket);
  socket
    .resume()
    .on("error", () => socket.destroy())
    .once("close", resolve);
  return promise;
}

async function requestOnce(agent: Agent, { socketPath, path }: { socketPath: string; path: string }): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({ agent, socketPath, path }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece: string) => (text += piece));
      response.on("end", () => resolve(response.statusCode === 200 && text === "ok"));
    });
    asked.on("error", () => resolve(false));
    asked.end();
  });
}

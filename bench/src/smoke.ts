// One check of each feature of a sandbox: boot, fork, certificate, branch, disk, network, clock. A failure is reported, and the other checks continue.

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { messageOf } from "@forkd/runtime";
import { IMAGE, killAll, type BenchOptions } from "./setup.ts";

import type { AddressInfo } from "node:net";
import type { Runtime, Sandbox, Snapshot } from "@forkd/runtime";

const MEMORY_MIB = 512;
const DISK_MIB = 128;
const CALL_MS = 120_000;
/** A clock that is off by more than this is wrong, as at a freeze */
const MAX_DRIFT_PPM = 10_000;

/** `detail`: the observation, or the reason of a failure */
export type SmokeStep = { what: string; ok: boolean; ms: number; detail: string };

export type SmokeOptions = BenchOptions & {
  /** over which the clock is compared with the host's */
  clockSecs: number;
};

type State = { runtime: Runtime; tag: string; opts: SmokeOptions; snapshot?: Snapshot; sandbox?: Sandbox };

/** What a step does with what the ones before it made; the result is what was seen */
const STEPS: Record<string, (state: State) => Promise<string>> = { boot, fork, certificate, branch, network, clock };

export async function smoke(runtime: Runtime, opts: SmokeOptions): Promise<SmokeStep[]> {
  const state: State = { runtime, tag: `smoke-${randomBytes(6).toString("hex")}`, opts };
  const steps: SmokeStep[] = [];
  try {
    for (const [what, run] of Object.entries(STEPS)) {
      opts.signal.throwIfAborted();
      opts.progress({ step: `${runtime.accelerator.accelerator}: ${what}` });
      steps.push(await tried(what, async () => run(state)));
    }
  } finally {
    await killAll(runtime);
    for (const tag of [`${state.tag}-branch`, state.tag]) await runtime.removeSnapshot(tag).catch(() => undefined); // it may not have been made
  }
  return steps;
}

async function tried(what: string, run: () => Promise<string>): Promise<SmokeStep> {
  const began = performance.now();
  const took = (): number => Math.round(performance.now() - began);
  try {
    const detail = await run();
    return { what, ok: true, ms: took(), detail };
  } catch (error) {
    return { what, ok: false, ms: took(), detail: messageOf(error) };
  }
}

async function boot(state: State): Promise<string> {
  const { runtime, tag, opts } = state;
  const warmUp = { kernels: [{ language: "python" as const, code: "import socket, time, urllib.request; answer = 41" }] };
  const made = await runtime.createSnapshot({ tag, image: IMAGE, memoryMiB: MEMORY_MIB, diskMiB: DISK_MIB, warmUp, signal: opts.signal });
  state.snapshot = made.snapshot;
  const { cpu, vendor = "emulated" } = made.snapshot.manifest.shape;
  return `${Math.round(made.timings.bootMs)} ms to the agent, ${cpu} (${vendor})`;
}

async function fork(state: State): Promise<string> {
  const sandbox = await state.runtime.forkOne(needed(state.snapshot), { signal: state.opts.signal });
  state.sandbox = sandbox;
  expectEqual(await evaluate(sandbox, "answer + 1"), 42);
  const processor = await sandbox.exec(["sh", "-c", "grep -m1 'model name' /proc/cpuinfo"], { timeoutMs: CALL_MS });
  return `${Math.round(sandbox.forkMs)} ms; ${sandbox.isolation}; ${processor.stdout.toString().trim().replace(/\s+/g, " ")}`;
}

async function certificate(state: State): Promise<string> {
  const [first, second] = [needed(state.sandbox), await state.runtime.forkOne(needed(state.snapshot))];
  const [one, other] = [first.certificate, second.certificate];
  const random = "__import__('os').urandom(16).hex()";
  expectOther(await evaluate(first, random), await evaluate(second, random), "random numbers");
  expectOther(one.identity.machine_id, other.identity.machine_id, "machine ids");
  expectOther(one.identity.boot_id, other.identity.boot_id, "boot ids");
  await second.kill();
  const kernels = Object.entries(one.kernels).map(([name, { state: is }]) => `${name} ${is}`);
  return `clock skew ${one.clock_skew_ms.toFixed(1)} ms, ${one.guest_rng}, ${kernels.join(", ")}, ${one.disk}, ${one.memory}`;
}

/** With memory and disk: what was there before is in the child, what comes after is not */
async function branch(state: State): Promise<string> {
  const source = needed(state.sandbox);
  await evaluate(source, 'exec(\'answer = 1000; open("/kept", "w").write("before")\')');
  const branched = await state.runtime.branch(source, `${state.tag}-branch`);
  await evaluate(source, 'exec(\'answer = 2000; open("/kept", "w").write("after")\')');
  const child = await state.runtime.forkOne(branched.snapshot);
  expectEqual(await evaluate(child, "answer"), 1000);
  expectEqual(await evaluate(child, "open('/kept').read()"), "before");
  expectEqual(await evaluate(source, "answer"), 2000);
  await child.kill();
  return `pause ${branched.pauseMs.toFixed(1)} ms, ${branched.changedPages} pages, disk in a layer of its own`;
}

/** A server of this process on the loopback: nothing leaves the machine */
async function network(state: State): Promise<string> {
  const server = createServer((_request, response) => response.end("reached"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const { port } = server.address() as AddressInfo;
    const policy = { mode: "allow" as const, allow: [`127.0.0.1:${port}`], deny: [], egressLimitBytes: null };
    const child = await state.runtime.forkOne(needed(state.snapshot), { network: policy });
    const fetch = `urllib.request.urlopen('http://host.forkd.internal:${port}/', timeout=60).read().decode()`;
    expectEqual(await evaluate(child, fetch), "reached");
    await child.kill();
    return "allowed server reached";
  } finally {
    server.close();
  }
}

async function clock(state: State): Promise<string> {
  const { clockSecs, signal } = state.opts;
  const sandbox = needed(state.sandbox);
  const look = async (): Promise<{ guest: number; host: number; wall: number; within: number }> => {
    const from = performance.now();
    const [guest, wall] = (await evaluate(sandbox, "[time.monotonic(), time.time()]")) as [number, number];
    const within = performance.now() - from;
    return { guest: guest * 1000, host: from + within / 2, wall: wall * 1000 - (Date.now() - within / 2), within };
  };
  const first = await look();
  await sleep(clockSecs * 1000, undefined, { signal });
  const last = await look();
  const overMs = last.host - first.host;
  const ppm = ((last.guest - first.guest) / overMs - 1) * 1e6;
  const boundPpm = ((first.within + last.within) / 2 / overMs) * 1e6;
  if (Math.abs(ppm) - boundPpm > MAX_DRIFT_PPM) throw new Error(`the clock is off by ${ppm.toFixed(0)} ppm`);
  return `drift ${ppm.toFixed(0)} ± ${boundPpm.toFixed(0)} ppm over ${Math.round(overMs / 1000)} s, wall clock off by ${last.wall.toFixed(0)} ms`;
}

async function evaluate(sandbox: Sandbox, code: string): Promise<unknown> {
  const { json, error } = await sandbox.eval(code, { timeoutMs: CALL_MS });
  if (error) throw new Error(`${code}: ${error.traceback}`);
  return json;
}

function needed<V>(value: V | undefined): V {
  if (value === undefined) throw new Error("not tried: what it needs failed");
  return value;
}

function expectEqual(seen: unknown, wanted: unknown): void {
  if (seen !== wanted) throw new Error(`${JSON.stringify(seen)} in place of ${JSON.stringify(wanted)}`);
}

function expectOther(one: unknown, other: unknown, what: string): void {
  if (one === other) throw new Error(`two forks have the same ${what}: ${JSON.stringify(one)}`);
}

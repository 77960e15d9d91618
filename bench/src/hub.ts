// Snapshots between two stores through a real registry: bytes sent, bytes fetched, and time.

import { createReadStream } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Runtime } from "@forkd/runtime";
import { Sandbox } from "forkd";
import { OwnDaemon } from "./daemon-process.ts";
import { atMost, type Goal } from "./goals.ts";
import { describeMachine, type Machine } from "./machine.ts";
import { OwnRegistry } from "./registry-process.ts";
import { IMAGE, type BenchOptions } from "./setup.ts";
import { round } from "./stats.ts";

const MEMORY_MIB = 512;
const WARM = "import numpy; warm = numpy.arange(100_000)";
/** What the branch adds: data that does not compress */
const WORK = "import os; blob = os.urandom(8 << 20)";
const CHECK = "[int(warm.sum()), len(blob)]";

type Push = { ms: number; bytes: number; sent_bytes: number };

export type HubReport = {
  machine: Machine;
  method: string;
  base: Push;
  /** of a branch of it, into the same repository */
  branch: Push & { delta_bytes: number };
  /** the branch into another repository of the same registry, and once more */
  mounted: Push;
  repeated: Push;
  /** of the branch in a store that has nothing, from a file and from the registry, each with the first fork and eval */
  unpack_ms: number;
  pull_ms: number;
  /** of the branch in a store that has the base */
  pull_branch_ms: number;
  goals: Goal[];
};

export async function benchHub(opts: BenchOptions): Promise<HubReport> {
  const { signal, progress } = opts;
  const common = { signal, progress, maxSandboxes: 10 };
  await using registry = await OwnRegistry.start({ signal });
  await using sender = await OwnDaemon.start({ ...common, borrow: ["images", "guestKernels"] });
  progress({ step: "Making a snapshot and a branch of it" });
  await makeSnapshots(sender, signal);
  const push = async (tag: string, name: string): Promise<Push> => {
    const began = performance.now();
    const { bytes, sent_bytes } = await sender.controller.pushSnapshot(tag, `oci://${registry.host}/${name}`, { signal });
    return { ms: round(performance.now() - began), bytes, sent_bytes };
  };
  progress({ step: "Pushing the snapshot" });
  const base = await push("base", "bench/one:base");
  progress({ step: "Pushing the branch" });
  const pushed = await push("branch", "bench/one:branch");
  const { bytes: deltaBytes } = await sender.controller.preparePack("branch", { without: ["base"], signal });
  const mounted = await push("branch", "bench/two:branch");
  const repeated = await push("branch", "bench/two:branch");

  progress({ step: "Unpacking the branch in another store" });
  const file = await packedFile(sender, signal);
  const unpackMs = await inNewStore(common, async (daemon) => {
    await daemon.controller.unpack(createReadStream(file.path), { signal });
  });
  await file.close();
  progress({ step: "Pulling the branch in another store" });
  const pullMs = await inNewStore(common, async ({ controller }) => {
    await controller.pullSnapshot(`oci://${registry.host}/bench/one:branch`, { signal });
  });
  progress({ step: "Pulling the branch where the snapshot is" });
  let pullBranchMs = 0;
  await inNewStore(common, async ({ controller }) => {
    await controller.pullSnapshot(`oci://${registry.host}/bench/one:base`, { signal });
    const began = performance.now();
    await controller.pullSnapshot(`oci://${registry.host}/bench/one:branch`, { signal });
    pullBranchMs = round(performance.now() - began);
  });
  const branch = { ...pushed, delta_bytes: deltaBytes };
  const measured = { base, branch, mounted, repeated, unpack_ms: unpackMs, pull_ms: pullMs, pull_branch_ms: pullBranchMs };
  await using runtime = await Runtime.start({ home: sender.homeForRuntime, signal });
  return { machine: describeMachine(runtime), method: METHOD, ...measured, goals: goalsOf(measured) };
}

async function makeSnapshots({ controller }: OwnDaemon, signal: AbortSignal): Promise<void> {
  const warmUp = { kernels: [{ language: "python" as const, code: WARM }] };
  await controller.createSnapshot("base", { image: IMAGE, memoryMib: MEMORY_MIB, warmUp, signal });
  await using sandbox = await Sandbox.create("base", { controller, signal });
  await sandbox.eval(WORK, { signal });
  await sandbox.branch("branch", { signal });
}

/** A file with the branch, as `forkd pack` writes it */
async function packedFile({ controller }: OwnDaemon, signal: AbortSignal): Promise<{ path: string; close: () => Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-bench-"));
  const path = join(dir, "branch.forkd");
  await writeFile(path, controller.readPack("branch", { signal }), { signal });
  return { path, close: async () => rm(dir, { recursive: true, force: true }) };
}

/** Milliseconds of the work in a store that has nothing, with the first fork and what it says */
async function inNewStore(common: BenchOptions & { maxSandboxes: number }, work: (daemon: OwnDaemon) => Promise<void>): Promise<number> {
  await using daemon = await OwnDaemon.start({ ...common, borrow: ["guestKernels"] });
  const { controller } = daemon;
  const began = performance.now();
  await work(daemon);
  await using sandbox = await Sandbox.create("branch", { controller, signal: common.signal });
  const { value } = await sandbox.eval(CHECK, { signal: common.signal });
  const ms = round(performance.now() - began);
  if (JSON.stringify(value) !== "[4999950000,8388608]") throw new Error(`the fork says ${JSON.stringify(value)}`);
  return ms;
}

const METHOD = [
  `a registry on loopback and stores of their own; a ${MEMORY_MIB} MiB snapshot with a warm Python and numpy, and a branch of it that has made 8 MiB of random bytes`,
  "each pushed once by a daemon through the SDK, the branch into the same repository, then into another one, then there again; compressing what was not compressed before is part of it",
  "the delta is the pack of the branch without its base, which is what a push of it has to send",
  "the branch unpacked from a file, and pulled from the registry, each by a daemon whose store has no image and no snapshot, until the first fork has evaluated what base and branch have left in its memory",
].join("; ");

function goalsOf({
  branch,
  unpack_ms: unpackMs,
  pull_ms: pullMs,
  mounted,
  repeated,
}: Omit<HubReport, "machine" | "method" | "goals">): Goal[] {
  return [
    atMost("second push of a branch, of its delta", round(branch.sent_bytes / branch.delta_bytes), 1.2, "×"),
    atMost("pull and first fork, more than unpacking by", round(pullMs - unpackMs), 1000, "ms"),
    atMost("push into a neighbouring repository, of its delta", round(mounted.sent_bytes / branch.delta_bytes), 0.1, "×"),
    atMost("the same push again, of its delta", round(repeated.sent_bytes / branch.delta_bytes), 0.1, "×"),
  ];
}

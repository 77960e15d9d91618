// Snapshot creation: boot an image, warm it up, freeze it.

import { randomBytes } from "node:crypto";
import { mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { GuestClock, sampleClock } from "../agent/clock.ts";
import { AgentConnection } from "../agent/wire/connection.ts";
import { OutputTail } from "../util/growing-buffer.ts";
import { holdProcesses } from "../agent/hold.ts";
import { ProcessRegistry } from "../agent/process/registry.ts";
import { Kernel } from "../agent/kernel/kernel.ts";
import type { Language } from "../agent/kernel/language.ts";
import { switchNetwork } from "../agent/network.ts";
import { PROTOCOL_VERSION } from "../agent/wire/protocol.ts";
import { startResync } from "../agent/resync.ts";
import { runProgram } from "../agent/process/run.ts";
import type { Home } from "../home.ts";
import type { GuestKernel } from "../guest-kernel/guest-kernel.ts";
import { freeBytes } from "../host/free-space.ts";
import { PLATFORM } from "../host/platform.ts";
import { withStaging } from "../host/staging.ts";
import type { StoredImage } from "../image/store.ts";
import type { WardenSource } from "../warden/source.ts";
import { Egress } from "../egress/egress.ts";
import type { Network } from "../egress/network.ts";
import type { NetworkPolicy } from "../egress/policy.ts";
import { SNAPSHOT_VERSION, type SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Progress } from "../util/progress.ts";
import type { Engine, MachineShape, Vm } from "../vmm/driver.ts";
import { SandboxDisk } from "./disk.ts";
import { endingOf, outputOf, unlessEnded } from "./vmm-end.ts";

const MIB = 1024 * 1024;
const BOOT_TAKES_MIB = 32;
const BOOT_WITHIN_MS = 120_000;
const BOOT_ATTEMPTS = 3;
const CALL_WITHIN_MS = 30_000;
const WARMUP_WITHIN_MS = 300_000;
const MAX_SHOWN_OUTPUT = 4096;

/** Steps between the parent's boot and its freeze */
export type WarmUp = {
  /** programs to run in order; each must exit with 0 */
  exec?: string[][] | undefined;
  /** interpreters to start, with their warm-up code; "auto": python if the image has it */
  kernels?: { language: Language; code?: string | undefined; cwd?: string | undefined }[] | "auto" | undefined;
  /** limit for each program and each piece of code */
  timeoutMs?: number | undefined;
};

export type SnapshotRequest = {
  tag: string;
  /** id of the new snapshot */
  id?: string | undefined;
  image: StoredImage;
  guestKernel: GuestKernel;
  shape: MachineShape;
  /** null: no disk, the guest's writes stay in its memory */
  diskMiB: number | null;
  warmUp: WarmUp;
  env: Record<string, string>;
  /** policy during the warm-up, and of the forks */
  policy: NetworkPolicy;
  signal?: AbortSignal | undefined;
  progress?: Progress | undefined;
};

export type BootContext = {
  home: Home;
  engine: Engine;
  warden: WardenSource;
  snapshots: SnapshotStore;
  runDir: string;
  vmsDir: string;
  network: Network;
};

export type SnapshotTimings = { bootMs: number; warmUpMs: number; freezeMs: number };

/** Boots, warms and freezes a parent. On failure no snapshot with that tag exists */
export async function makeSnapshot(
  context: BootContext,
  request: SnapshotRequest,
): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
  await checkSpace(context.home, request.shape.memoryMiB);
  await context.snapshots.reserve(request.tag);
  try {
    return await despiteCrashes(async () => withStaging(context.home, async (staging) => bootWarmFreeze(context, request, staging)));
  } finally {
    await context.snapshots.release(request.tag);
  }
}

/** Crash of the guest kernel before the agent answered: no code of the image has run yet */
export class CrashedAtBoot extends ForkdError {}

/**
 * Boots again after a crash of the guest kernel. TCG can crash a correct kernel on a busy host (seen: a NULL pointer,
 * and a pointer in EFLAGS); without a retry one such crash fails the request.
 */
export async function despiteCrashes<V>(make: () => Promise<V>): Promise<V> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof CrashedAtBoot) || attempt === BOOT_ATTEMPTS) throw error;
    }
  }
}

/**
 * Refuses early if the disk has no room: the VM's memory is a sparse file that grows, and no guest boots with less than
 * this
 */
async function checkSpace(home: Home, memoryMiB: number): Promise<void> {
  const [free, needed] = [Math.floor((await freeBytes(home.root)) / MIB), Math.min(memoryMiB, BOOT_TAKES_MIB)];
  if (free < needed)
    throw new ForkdError("NO_SPACE", `Cannot boot a VM: its memory is a file in FORKD_HOME, whose disk has ${free} MiB free.`, {
      details: { free_mib: free, needed_mib: needed },
    });
}

async function bootWarmFreeze(
  context: BootContext,
  request: SnapshotRequest,
  staging: string,
): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
  const { shape, image, guestKernel, signal, progress } = request;
  const dir = join(staging, "snapshot");
  const id = newId("sb");
  const runDir = join(context.runDir, id);
  await using cleanup = new AsyncDisposableStack();
  await mkdir(dir, { mode: 0o700 });
  await mkdir(runDir, { mode: 0o700 });
  cleanup.defer(async () => rm(runDir, { recursive: true, force: true }));
  const memory = join(dir, "memory.ram");
  const deviceState = join(dir, "device.state");
  const key = randomBytes(16);
  const initrd = initrdFor(request);

  const began = performance.now();
  progress?.({ step: "Booting the parent" });
  const disk = request.diskMiB === null ? null : await SandboxDisk.format(join(context.vmsDir, id), request.diskMiB, signal);
  cleanup.defer(async () => disk?.remove());
  const root = `forkd.root=/dev/vda forkd.fstype=squashfs${disk ? " forkd.disk=/dev/vdb" : ""}`;
  const commandLine = `${context.engine.commandLine(shape.accelerator)} forkd.key=${key.toString("hex")} ${root}`;
  const vm = await context.engine.boot({
    shape,
    dir: runDir,
    rootfs: image.rootfsPath,
    memory,
    disk: disk?.spec ?? null,
    guestKernel: guestKernel.vmlinuz,
    initrd,
    commandLine,
  });
  cleanup.defer(async () => vm.kill());
  const agent = new AgentConnection(vm.agentSocket).attach(key);
  cleanup.defer(() => agent.close());
  await unlessEnded(agent.hello(BOOT_WITHIN_MS, signal), failOnBoot(vm, shape));
  const env = { ...image.manifest.config.env, ...request.env };
  const identity = { sandboxId: newId("sb"), hostname: "forkd", machineId: randomBytes(16).toString("hex"), env };
  await unlessEnded(startResync(agent, identity, CALL_WITHIN_MS), failOnBoot(vm, shape));
  const { policy } = request;
  void new Egress(agent, { network: context.network, owner: { sandbox: null, snapshot: request.tag }, policy });
  if (policy.mode !== "none") await unlessEnded(switchNetwork(agent, true, CALL_WITHIN_MS), failOnBoot(vm, shape));
  const clock = new GuestClock(async () => sampleClock(agent));
  clock.restart(await unlessEnded(sampleClock(agent), failOnBoot(vm, shape)));
  const booted = performance.now();

  progress?.({ step: "Warming up" });
  const kernels = await unlessEnded(warm(agent, request), failOnExit(vm));
  const warmed = performance.now();

  progress?.({ step: "Freezing" });
  const drift = await unlessEnded(clock.check(signal), failOnExit(vm));
  // Without the hold, a running process draws the same random numbers in every fork until the agent has reseeded the
  // guest kernel.
  await unlessEnded(holdProcesses(agent, CALL_WITHIN_MS), failOnExit(vm));
  agent.hold();
  await vm.pause();
  await vm.saveDeviceState();
  await vm.kill();
  await vm.takeDeviceState(deviceState);
  const warden = await context.warden();
  await warden.trim(memory);
  const layers = await disk?.saveAll(dir);
  const frozen = performance.now();

  const manifest: SnapshotManifest = {
    version: SNAPSHOT_VERSION,
    id: request.id ?? newId("sn"),
    tag: request.tag,
    createdAt: new Date().toISOString(),
    shape,
    imageId: image.id,
    guestKernelId: guestKernel.id,
    agentKey: key.toString("hex"),
    agentProtocol: PROTOCOL_VERSION,
    memory: { kind: "base", bytes: (await stat(memory)).blocks * 512 },
    disk: disk && layers ? { sizeMiB: disk.sizeMiB, layers } : null,
    deviceStateBytes: (await stat(deviceState)).size,
    kernels,
    env,
    clock: drift,
    network: policy,
    mounts: [],
    branchedFrom: null,
    depth: 0,
  };
  const snapshot = await context.snapshots.publish(dir, manifest);
  return { snapshot, timings: { bootMs: booted - began, warmUpMs: warmed - booted, freezeMs: frozen - warmed } };
}

function initrdFor({ diskMiB, guestKernel }: SnapshotRequest): string {
  const initrd = diskMiB === null ? guestKernel.initrd : guestKernel.diskInitrd;
  if (initrd === null)
    throw new ForkdError("GUEST_KERNEL_MISSING", `Cannot give the machine a disk: the guest kernel ${guestKernel.release} has no ext4.`);
  return initrd;
}

async function warm(agent: AgentConnection, request: SnapshotRequest): Promise<SnapshotManifest["kernels"]> {
  const { signal, warmUp } = request;
  const timeoutMs = warmUp.timeoutMs ?? WARMUP_WITHIN_MS;
  for (const argv of warmUp.exec ?? []) await warmExec(agent, argv, timeoutMs, signal);
  const kernels: Kernel[] = [];
  const wanted = warmUp.kernels === "auto" ? await interpretersIn(agent, timeoutMs, signal) : (warmUp.kernels ?? []);
  for (const { language, code, cwd } of wanted) {
    const kernel = await Kernel.start(agent, language, { timeoutMs, cwd, signal });
    if (code) await warmEval(kernel, code, timeoutMs, signal);
    await kernel.settled();
    kernels.push(kernel);
  }
  for (const { dead } of kernels) if (dead) throw new ForkdError("WARMUP_FAILED", `The warm-up failed: ${dead.message}`, { cause: dead });
  return kernels.map((kernel) => kernel.facts);
}

async function interpretersIn(
  agent: AgentConnection,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<{ language: Language; code?: string; cwd?: string }[]> {
  try {
    const { code } = await runProgram(new ProcessRegistry(agent), ["python3", "--version"], { timeoutMs, signal });
    return code === 0 ? [{ language: "python" }] : [];
  } catch (error) {
    if (error instanceof ForkdError && error.code === "EXEC_FAILED") return [];
    throw error;
  }
}

async function warmExec(agent: AgentConnection, argv: string[], timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
  const output = new OutputTail(MAX_SHOWN_OUTPUT);
  const status = await runProgram(new ProcessRegistry(agent), argv, {
    timeoutMs,
    signal,
    onOutput: (_channel, bytes) => output.add(bytes),
  });
  if (status.code === 0) return;
  const ending = status.timedOut
    ? `did not end within ${timeoutMs} ms`
    : status.signal
      ? `was ended by ${status.signal}`
      : `exited with ${status.code}`;
  throw new ForkdError("WARMUP_FAILED", `The warm-up program ${JSON.stringify(argv.join(" "))} ${ending}.\n${output.toString()}`);
}

async function warmEval(kernel: Kernel, code: string, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    const result = await kernel.eval(code, { timeoutMs, warm: true, signal });
    if (!result.error) return;
    throw new ForkdError(
      "WARMUP_FAILED",
      `The ${kernel.language} warm-up code failed.\n${result.stdout}${result.stderr}${result.error.traceback}`,
    );
  } catch (error) {
    if (error instanceof ForkdError && error.code === "EVAL_TIMEOUT")
      throw new ForkdError("WARMUP_FAILED", `The warm-up hangs: ${messageOf(error)}`, { cause: error });
    throw error;
  }
}

async function failOnBoot(vm: Vm, { accelerator }: MachineShape): Promise<never> {
  const { console } = await vm.exited;
  if (accelerator === "tcg" && PLATFORM.kernel.fault.test(console))
    throw new CrashedAtBoot("BOOT_FAILED", `The guest kernel crashed while it booted, ${BOOT_ATTEMPTS} times.\n${console}`);
  return failOnExit(vm);
}

async function failOnExit(vm: Vm): Promise<never> {
  const exit = await vm.exited;
  const output = outputOf(exit);
  const message = `The VM ended (${endingOf(exit)}) before it was ready.${output}`;
  if (exit.isOutOfSpace) throw new ForkdError("NO_SPACE", message);
  throw new ForkdError("BOOT_FAILED", message, output === "" ? { hint: "It left no output; 'forkd doctor' checks the host." } : {});
}

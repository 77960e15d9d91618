// From an image to a snapshot: boot, warm, freeze.

import { randomBytes } from "node:crypto";
import { mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection } from "../guest/connection.ts";
import { OutputTail } from "../guest/growing-buffer.ts";
import { ProcessHub } from "../guest/hub.ts";
import { Kernel } from "../guest/kernel.ts";
import type { Language } from "../guest/language.ts";
import { switchNetwork } from "../guest/network.ts";
import { PROTOCOL_VERSION } from "../guest/protocol.ts";
import { startResync } from "../guest/resync.ts";
import { runProgram } from "../guest/run.ts";
import type { Home } from "../home.ts";
import type { GuestKernel } from "../image/guest-kernel.ts";
import { withStaging } from "../host/staging.ts";
import type { StoredImage } from "../image/store.ts";
import type { WardenSource } from "../memory/warden-source.ts";
import { Egress } from "../net/egress.ts";
import type { Network } from "../net/network.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import { SNAPSHOT_VERSION, type SnapshotManifest } from "../snapshot/manifest.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Progress } from "../util/progress.ts";
import type { Engine, MachineShape, Vm } from "../vmm/driver.ts";
import { SandboxDisk } from "./disk.ts";
import { unlessEnded } from "./vmm-end.ts";

const BOOT_WITHIN_MS = 120_000;
const CALL_WITHIN_MS = 30_000;
const WARMUP_WITHIN_MS = 300_000;
const MAX_SHOWN_OUTPUT = 4096;

/** What is done to a parent between its boot and its freeze */
export type WarmUp = {
  /** programs, in order; each must exit with 0 */
  exec?: string[][] | undefined;
  /** interpreters to keep warm, with the code that warms them; "auto": python where the image has it */
  kernels?: { language: Language; code?: string | undefined; cwd?: string | undefined }[] | "auto" | undefined;
  /** for each program and each code */
  timeoutMs?: number | undefined;
};

export type SnapshotRequest = {
  tag: string;
  /** of the new snapshot */
  id?: string | undefined;
  image: StoredImage;
  guestKernel: GuestKernel;
  shape: MachineShape;
  /** null: what the guest writes stays in its memory */
  diskMiB: number | null;
  warmUp: WarmUp;
  env: Record<string, string>;
  /** in force during the warm-up, and for its forks */
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

/** Boots, warms and freezes a parent; when anything fails no snapshot of that tag exists */
export async function makeSnapshot(
  context: BootContext,
  request: SnapshotRequest,
): Promise<{ snapshot: Snapshot; timings: SnapshotTimings }> {
  await context.snapshots.reserve(request.tag);
  try {
    return await withStaging(context.home, async (staging) => bootWarmFreeze(context, request, staging));
  } finally {
    await context.snapshots.release(request.tag);
  }
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
  const commandLine = `${guestCommandLine(shape.accelerator)} forkd.key=${key.toString("hex")} ${root}`;
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
  await unlessEnded(agent.hello(BOOT_WITHIN_MS, signal), failOnExit(vm));
  const env = { ...image.manifest.config.env, ...request.env };
  await startResync(agent, { sandboxId: newId("sb"), hostname: "forkd", machineId: randomBytes(16).toString("hex"), env }, CALL_WITHIN_MS);
  const { policy } = request;
  void new Egress(agent, { network: context.network, owner: { sandbox: null, snapshot: request.tag }, policy });
  if (policy.mode !== "none") await switchNetwork(agent, true, CALL_WITHIN_MS);
  const booted = performance.now();

  progress?.({ step: "Warming up" });
  const kernels = await warm(agent, request);
  const warmed = performance.now();

  progress?.({ step: "Freezing" });
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

/**
 * Under the translator every piece of guest kernel code costs time after each fork. Guards against speculation mean nothing
 * on an emulated CPU; pressure statistics and security modules without a policy do nothing for anybody. A program at
 * addresses of its own each time is translated each time: at the same ones it starts five times as fast.
 */
function guestCommandLine(accelerator: "kvm" | "tcg"): string {
  const common = "console=ttyS0 quiet loglevel=4 panic=-1 random.trust_cpu=on tsc=reliable nowatchdog audit=0";
  return accelerator === "tcg" ? `${common} mitigations=off psi=0 norandmaps lsm=` : common;
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
    const { code } = await runProgram(new ProcessHub(agent), ["python3", "--version"], { timeoutMs, signal });
    return code === 0 ? [{ language: "python" }] : [];
  } catch (error) {
    if (error instanceof ForkdError && error.code === "EXEC_FAILED") return [];
    throw error;
  }
}

async function warmExec(agent: AgentConnection, argv: string[], timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
  const output = new OutputTail(MAX_SHOWN_OUTPUT);
  const status = await runProgram(new ProcessHub(agent), argv, { timeoutMs, signal, onOutput: (_channel, bytes) => output.add(bytes) });
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

async function failOnExit(vm: Vm): Promise<never> {
  const exit = await vm.exited;
  const ending = exit.signal ?? `exit code ${exit.code}`;
  throw new ForkdError("BOOT_FAILED", `The VM ended (${ending}) before its agent was ready.\n${exit.log}\n${exit.console}`);
}

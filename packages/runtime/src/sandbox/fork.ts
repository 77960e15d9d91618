// Forks: a snapshot becomes a running sandbox with its own identity.

import { randomBytes } from "node:crypto";
import { access, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection } from "../agent/wire/connection.ts";
import { within } from "../util/within.ts";
import { Contexts } from "../agent/kernel/contexts.ts";
import { Kernel, type KernelFacts } from "../agent/kernel/kernel.ts";
import { switchNetwork } from "../agent/network.ts";
import { startResync } from "../agent/resync.ts";
import { hasLimits, NO_LIMITS, type ControlGroups, type HostLimits, type VmGroup } from "../host/control-groups.ts";
import type { FlatCache, FlatImage } from "../snapshot/flat-images.ts";
import { Egress } from "../egress/egress.ts";
import type { Network } from "../egress/network.ts";
import type { NetworkPolicy } from "../egress/policy.ts";
import type { Hidden } from "../share/hidden.ts";
import { startSharing, type Share } from "../share/server.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Engine, RestoreSpec, Vm } from "../vmm/driver.ts";
import type { ForkCertificate, KernelState } from "./certificate.ts";
import { SandboxDisk } from "./disk.ts";
import { recordImage } from "./memory-image.ts";
import { Sandbox } from "./sandbox.ts";
import { endingOf, outputOf, unlessEnded } from "./vmm-end.ts";

const READY_WITHIN_MS = 60_000;
/** A fork is ready before; the first request to a VMM costs a few milliseconds */
const WATCH_AFTER_MS = 500;
const START_ATTEMPTS = 3;
/** A waiting VMM has its state loaded and resumes at once. After this time a new VMM is faster */
const ACTIVATE_WITHIN_MS = 2000;
/** A VMM whose channels are closed is reported as ended soon after */
const ENDED_WITHIN_MS = 1000;
/** time for a busy interpreter to reseed, before the child is returned with "pending" */
const RESEED_WITHIN_MS = 1000;

export type ForkContext = {
  engine: Engine;
  flats: FlatCache;
  /** parent folder of the VMs' folders */
  runDir: string;
  /** parent folder of the VMs' disks */
  vmsDir: string;
  rootfsOf: (snapshot: Snapshot) => Promise<string>;
  groups: ControlGroups;
  /** code of the node, with which the ids of its sandboxes begin */
  node: string;
};

/** A VM with its folder and memory, not yet assigned to a sandbox */
export type UnclaimedVm = {
  id: string;
  dir: string;
  vm: Vm;
  agent: AgentConnection;
  memory: FlatImage;
  /** snapshot whose memory image it maps */
  imageOf: Snapshot;
  disk: SandboxDisk | null;
  group: VmGroup | undefined;
};

/** A stopped VM from which others are cloned; it has no agent */
export type HeldVm = Omit<UnclaimedVm, "agent">;

export type StartOptions = {
  id?: string | undefined;
  limits?: HostLimits;
  /** the VM becomes a zygote */
  isZygote?: boolean;
};

/** Starts the VMM of a child and removes everything on failure */
export async function startUnclaimedVm(
  context: ForkContext,
  snapshot: Snapshot,
  start: RestoreSpec["start"],
  opts: StartOptions = {},
): Promise<UnclaimedVm> {
  const rootfs = await context.rootfsOf(snapshot);
  const { shape } = snapshot.manifest;
  const { deviceState } = snapshot;
  const kind = opts.isZygote ? "zygote" : "sandbox";
  const clonable = canBeCloned(context.engine, snapshot) ? kind : undefined;
  // a sandbox with limits is not copied (mayCopy), so its VMM needs no room for that in its filters
  const freezable = canBeFrozen(context.engine, snapshot) && !hasLimits(opts.limits ?? NO_LIMITS);
  const makeDisk = async (dir: string, sizeMiB: number): Promise<SandboxDisk> => SandboxDisk.above(dir, sizeMiB, snapshot);
  return makeUnclaimedVm(context, snapshot, { ...opts, makeDisk }, async ({ disk, ...files }) =>
    context.engine.restore({ shape, ...files, rootfs, disk: disk?.spec ?? null, deviceState, start, clonable, freezable }),
  );
}

/** Clones a zygote of the same snapshot; the child is paused. Removes everything on failure */
export async function cloneUnclaimedVm(
  context: ForkContext,
  snapshot: Snapshot,
  zygote: Pick<HeldVm, "vm" | "disk" | "imageOf">,
  opts: StartOptions,
): Promise<UnclaimedVm> {
  const { imageOf } = zygote;
  const makeDisk = async (dir: string): Promise<SandboxDisk | null> => zygote.disk && SandboxDisk.copyOf(dir, zygote.disk, snapshot);
  return makeUnclaimedVm(context, snapshot, { ...opts, makeDisk, imageOf }, async ({ disk, ...files }) =>
    context.engine.clone(zygote.vm, { ...files, active: disk?.spec.active ?? null }),
  );
}

/** KVM's state belongs to the process that created it */
export function canBeCloned({ cloneObstacle }: Pick<Engine, "cloneObstacle">, { manifest: { shape } }: Snapshot): boolean {
  return cloneObstacle === null && shape.accelerator === "tcg";
}

function canBeFrozen({ freezeObstacle }: Engine, { manifest: { shape } }: Snapshot): boolean {
  return freezeObstacle === null && shape.accelerator === "kvm" && !shape.hugepages;
}

type MakeDisk = (dir: string, sizeMiB: number) => Promise<SandboxDisk | null>;
type ChildFiles = { dir: string; memory: string; disk: SandboxDisk | null; group: string | undefined };

async function makeUnclaimedVm(
  context: ForkContext,
  snapshot: Snapshot,
  {
    id = newId("sb", context.node),
    limits = NO_LIMITS,
    makeDisk,
    imageOf = snapshot,
  }: StartOptions & { makeDisk: MakeDisk; imageOf?: Snapshot },
  make: (files: ChildFiles) => Promise<Vm>,
): Promise<UnclaimedVm> {
  const dir = join(context.runDir, id);
  const memory = await context.flats.acquire(imageOf);
  let disk: SandboxDisk | null = null;
  let group: VmGroup | undefined;
  try {
    await mkdir(dir, { mode: 0o700 });
    if (imageOf !== snapshot) await recordImage(dir, imageOf.manifest.id);
    const { disk: wanted } = snapshot.manifest;
    if (wanted) disk = await makeDisk(join(context.vmsDir, id), wanted.sizeMiB);
    group = await context.groups.make(id, limits);
    const vm = await make({ dir, memory: memory.path, disk, group: group?.dir });
    return { id, dir, vm, agent: new AgentConnection(vm.agentSocket), memory, imageOf, disk, group };
  } catch (error) {
    memory.release();
    await rm(dir, { recursive: true, force: true });
    await disk?.remove();
    await group?.remove();
    throw error;
  }
}

export async function discardUnclaimedVm(child: UnclaimedVm): Promise<void> {
  child.agent.close();
  await discardHeldVm(child);
}

export async function discardHeldVm(child: HeldVm): Promise<void> {
  await child.vm.kill();
  child.memory.release();
  await rm(child.dir, { recursive: true, force: true });
  await child.disk?.remove();
  await child.group?.remove();
}

/** The guest ended by itself before it was ready: no request has reached it */
export class EndedAtStart extends ForkdError {}

/** Restores again after such an end; TCG can crash a correct guest kernel on a busy host, also when it boots */
export async function despiteEnds<V>(restore: () => Promise<V>, onEnd: (why: string) => void): Promise<V> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await restore();
    } catch (error) {
      if (!(error instanceof EndedAtStart) || attempt === START_ATTEMPTS) throw error;
      onEnd(error.message);
    }
  }
}

/** Identity of the suspended sandbox that a child continues */
export type Continued = { id: string; machineId: string; bootId: string; spentBytes: number };

export type Personality = {
  snapshot: Snapshot;
  env: Record<string, string>;
  /** egress policy; default: the one of the snapshot */
  policy: NetworkPolicy | undefined;
  network: Network;
  shares: readonly Share[];
  hidden: Hidden;
  /** without it, the child gets a new identity */
  as?: Continued | undefined;
  startedAt: number;
  onGone: (sandbox: Sandbox) => void;
  signal?: AbortSignal | undefined;
};

/** Resets clock, randomness and identity of a child and makes it a sandbox. Ends the child on failure */
export async function personalize(child: UnclaimedVm, opts: Personality): Promise<Sandbox> {
  const late = new Error("late");
  // the VMM of a guest that ended waits until it is asked
  const watching = setTimeout(() => child.vm.watch(), WATCH_AFTER_MS);
  try {
    const work = makeSandbox(child, opts);
    work.catch(() => undefined); // the race below may end with the VMM's exit
    return await within(unlessEnded(work, failOnExit(child)), READY_WITHIN_MS, opts.signal, () => late);
  } catch (error) {
    const isLate = error === late || (error instanceof ForkdError && error.code === "AGENT_TIMEOUT");
    const explained = isLate ? await explainLate(child) : error;
    await discardUnclaimedVm(child);
    throw explained;
  } finally {
    clearTimeout(watching);
  }
}

/**
 * Makes a sandbox of a waiting VMM, from the pool or a clone. Returns undefined if that VMM ended or does not answer, and
 * reports why: the caller then starts a new one
 */
export async function activate(pooled: UnclaimedVm, over: Personality, onFailure: (why: string) => void): Promise<Sandbox | undefined> {
  const ready = personalize(pooled, over);
  try {
    const late = (): Error => new Error(`its VMM did not resume it within ${ACTIVATE_WITHIN_MS} ms`);
    await Promise.all([within(pooled.vm.resume(), ACTIVATE_WITHIN_MS, undefined, late), ready]);
    return await ready;
  } catch (error) {
    over.signal?.throwIfAborted();
    onFailure(`${messageOf(error)}${await endOf(pooled.vm, error)}`);
    await pooled.vm.kill();
    await ready.catch(() => undefined); // it removes the rest of the VM
    return undefined;
  }
}

/** How the VMM ended, if that is the cause: the error itself says only that a channel to it is closed */
async function endOf(vm: Vm, error: unknown): Promise<string> {
  if (!(error instanceof ForkdError) || error.code !== "VMM_EXITED") return "";
  const exit = await within(vm.exited, ENDED_WITHIN_MS, undefined, () => new Error("it still runs")).catch(() => undefined);
  return exit === undefined ? " Its VMM still runs." : ` Its VMM has ended: ${endingOf(exit)}.${outputOf(exit)}`;
}

async function makeSandbox(child: UnclaimedVm, opts: Personality): Promise<Sandbox> {
  const { manifest } = opts.snapshot;
  const agent = child.agent.attach(Buffer.from(manifest.agentKey, "hex"));
  const identity = {
    sandboxId: child.id,
    hostname: child.id,
    machineId: opts.as?.machineId ?? randomBytes(16).toString("hex"),
    env: { ...manifest.env, ...opts.env },
    bootId: opts.as?.bootId,
  };
  const policy = opts.policy ?? manifest.network;
  const owner = { sandbox: child.id, snapshot: manifest.tag };
  // the policy must be in force before the guest sends its first frame
  const network = new Egress(agent, { network: opts.network, owner, policy, spent: opts.as?.spentBytes });
  // all requests are sent before the first answer: one round trip in total
  const resync = startResync(agent, identity, READY_WITHIN_MS);
  resync.catch(() => undefined); // awaited below
  const isSwitched = policy.mode !== "none" || manifest.network.mode !== "none";
  const switched = isSwitched ? switchNetwork(agent, policy.mode !== "none", READY_WITHIN_MS) : Promise.resolve();
  switched.catch(() => undefined); // awaited below
  const { shares, hidden } = opts;
  const sharing = startSharing(agent, { shares, hidden, mounted: manifest.mounts });
  sharing.catch(() => undefined); // awaited below
  const attached = manifest.kernels.map((facts) => ({ facts, ...Kernel.attach(agent, facts) }));
  const { clockSkewMs, bootId, generators, held, uniqueAtMs } = await resync;
  await switched;
  const states: Record<string, KernelState> = {};
  // the agent passes the environment to new programs, but running interpreters do not have it
  if (Object.keys(opts.env).length > 0) for (const { kernel } of attached) kernel.setEnvironment(opts.env);
  for (const { facts, kernel, reseeded } of attached) states[kernel.context] = await reseedState(facts, reseeded, generators);
  await sharing;
  const contexts = new Contexts(
    agent,
    attached.map(({ kernel }) => kernel),
    { isComplete: true },
  );
  const certificate: ForkCertificate = {
    clock_skew_ms: clockSkewMs,
    clock_drift_ppm: manifest.clock?.driftPpm ?? null,
    clock_measured: manifest.clock ? "snapshot" : null,
    guest_rng: "reseeded",
    ran_before_ms: held ? 0 : ranFor(manifest.stoppedAtMs, uniqueAtMs),
    // a resumed sandbox has no siblings
    not_reseeded: held || opts.as ? [] : manifest.kernels.flatMap((facts) => notReseeded(facts, generators)),
    kernels: states,
    identity: { hostname: identity.hostname, machine_id: identity.machineId, boot_id: bootId },
    disk: child.disk ? "private-layer" : "private-overlay",
    memory: "private-copy-on-write",
  };
  return new Sandbox({
    ...child,
    snapshot: opts.snapshot,
    env: identity.env,
    network,
    shares,
    contexts,
    certificate,
    forkMs: performance.now() - opts.startedAt,
    onGone: opts.onGone,
  });
}

/** @param filled generators that the agent reseeded, as `context/generator` */
async function reseedState(
  { language, context = language, reseed, busy }: KernelFacts,
  reseeded: Promise<string[]>,
  filled: string[],
): Promise<KernelState> {
  const late = new Error("late");
  const own = filled
    .filter((name) => name.startsWith(`${context}/`) && !name.endsWith("/generation"))
    .map((name) => name.slice(context.length + 1));
  if (reseed === "memory" && own.length === 0)
    throw new ForkdError("FORK_FAILED", `The ${language} kernel could not be reseeded: the agent filled none of its generators.`);
  try {
    const generators = [...own, ...(await within(reseeded, RESEED_WITHIN_MS, undefined, () => late))];
    // a running eval may use generators that are not registered yet
    return { state: busy ? "pending" : "reseeded", generators };
  } catch (error) {
    if (error === late) return { state: "pending", generators: own };
    throw new ForkdError("FORK_FAILED", `The ${language} kernel could not be reseeded: ${messageOf(error)}`, { cause: error });
  }
}

/** In ms, rounded up to microseconds; unknown for snapshots of earlier versions */
function ranFor(stoppedAtMs: number | undefined, uniqueAtMs: number | undefined): number | null {
  if (stoppedAtMs === undefined || uniqueAtMs === undefined) return null;
  return Math.max(0, Math.ceil((uniqueAtMs - stoppedAtMs) * 1000) / 1000);
}

/**
 * The agent finds OpenSSL's generators only while processes are held. In an unheld branch it has the addresses from the
 * snapshot below
 */
function notReseeded({ language, context = language }: KernelFacts, filled: string[]): string[] {
  const openssl = `${context}/openssl`;
  const isConcerned = language === "node" || language === "typescript";
  return isConcerned && !filled.includes(openssl) ? [openssl] : [];
}

/** Why a child is not ready, as far as its VMM tells: the state of its CPUs, and the end of its console */
async function explainLate({ vm }: UnclaimedVm): Promise<ForkdError> {
  const [running, console] = await Promise.allSettled([vm.isRunning(), vm.drainConsole()]);
  const state = running.status === "rejected" ? `its VMM does not answer` : running.value ? "its CPUs run" : "its CPUs are stopped";
  const output = console.status === "rejected" ? "" : outputOf({ log: await vm.lastLog(), console: console.value.toString("utf8").trim() });
  return new ForkdError("FORK_FAILED", `The child was not ready within ${READY_WITHIN_MS} ms; ${state}.${output}`);
}

async function failOnExit(child: UnclaimedVm): Promise<never> {
  const exit = await child.vm.exited;
  const code = exit.isOutOfSpace ? "NO_SPACE" : "FORK_FAILED";
  const message = `The child's VMM ended (${endingOf(exit)}) before it was ready.${outputOf(exit)}`;
  throw exit.code === 0 ? new EndedAtStart(code, message) : new ForkdError(code, message);
}

/** Throws if the snapshot was removed between lookup and lock */
export async function checkThere({ deviceState, manifest: { tag } }: Snapshot): Promise<void> {
  try {
    await access(deviceState);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag} any more.`);
  }
}

// From a snapshot to a running sandbox that is a machine of its own.

import { randomBytes } from "node:crypto";
import { access, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection, within } from "../guest/connection.ts";
import { Contexts } from "../guest/contexts.ts";
import { Kernel, type KernelFacts } from "../guest/kernel.ts";
import { switchNetwork } from "../guest/network.ts";
import { startResync } from "../guest/resync.ts";
import { NO_LIMITS, type ControlGroups, type HostLimits, type VmGroup } from "../host/control-groups.ts";
import type { FlatCache, FlatImage } from "../memory/flat.ts";
import { Egress } from "../net/egress.ts";
import type { Network } from "../net/network.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { Hidden } from "../share/hidden.ts";
import { startSharing, type Share } from "../share/server.ts";
import type { Snapshot } from "../snapshot/store.ts";
import { newId } from "../util/id.ts";
import type { Engine, RestoreSpec, Vm } from "../vmm/driver.ts";
import type { ForkCertificate, KernelState } from "./certificate.ts";
import { SandboxDisk } from "./disk.ts";
import { Sandbox } from "./sandbox.ts";
import { unlessEnded } from "./vmm-end.ts";

const READY_WITHIN_MS = 60_000;
/** how long a busy interpreter may take to reseed before the child is handed over with "pending" */
const RESEED_WITHIN_MS = 1000;

export type ForkContext = {
  engine: Engine;
  flats: FlatCache;
  /** folder for the folders of VMs */
  runDir: string;
  /** folder for the disks of VMs */
  vmsDir: string;
  rootfsOf: (snapshot: Snapshot) => Promise<string>;
  groups: ControlGroups;
};

/** A VM with its folder and memory, not yet anybody's */
export type RawChild = {
  id: string;
  dir: string;
  vm: Vm;
  agent: AgentConnection;
  memory: FlatImage;
  disk: SandboxDisk | null;
  group: VmGroup | undefined;
};

/** Starts the VMM of a child; on failure nothing of it remains */
export async function startRawChild(
  context: ForkContext,
  snapshot: Snapshot,
  start: RestoreSpec["start"],
  { id = newId("sb"), limits = NO_LIMITS }: { id?: string | undefined; limits?: HostLimits } = {},
): Promise<RawChild> {
  const dir = join(context.runDir, id);
  const rootfs = await context.rootfsOf(snapshot);
  const memory = await context.flats.acquire(snapshot);
  let disk: SandboxDisk | null = null;
  let group: VmGroup | undefined;
  try {
    await mkdir(dir, { mode: 0o700 });
    const { disk: wanted } = snapshot.manifest;
    if (wanted) disk = await SandboxDisk.above(join(context.vmsDir, id), wanted.sizeMiB, snapshot);
    group = await context.groups.make(id, limits);
    const vm = await context.engine.restore({
      shape: snapshot.manifest.shape,
      dir,
      rootfs,
      memory: memory.path,
      disk: disk?.spec ?? null,
      deviceState: snapshot.deviceState,
      start,
      group: group?.dir,
    });
    return { id, dir, vm, agent: new AgentConnection(vm.agentSocket), memory, disk, group };
  } catch (error) {
    memory.release();
    await rm(dir, { recursive: true, force: true });
    await disk?.remove();
    await group?.remove();
    throw error;
  }
}

export async function discardRawChild(child: RawChild): Promise<void> {
  child.agent.close();
  await child.vm.kill();
  child.memory.release();
  await rm(child.dir, { recursive: true, force: true });
  await child.disk?.remove();
  await child.group?.remove();
}

/** The sandbox that a child goes on as */
export type Continued = { id: string; machineId: string; spentBytes: number };

export type HandOver = {
  snapshot: Snapshot;
  env: Record<string, string>;
  /** what the child may connect to; without it, what its snapshot says */
  policy: NetworkPolicy | undefined;
  network: Network;
  shares: readonly Share[];
  hidden: Hidden;
  /** without it, the child is a machine of its own */
  as?: Continued | undefined;
  startedAt: number;
  onGone: (sandbox: Sandbox) => void;
  signal?: AbortSignal | undefined;
};

/** Gives a child its own clock, randomness and identity, and makes it a sandbox; a child that cannot be made right is ended */
export async function handOver(child: RawChild, opts: HandOver): Promise<Sandbox> {
  try {
    const work = makeItsOwn(child, opts);
    work.catch(() => undefined); // the race below may be lost to the VMM's end
    return await within(
      unlessEnded(work, failOnExit(child)),
      READY_WITHIN_MS,
      opts.signal,
      () => new ForkdError("FORK_FAILED", `The child was not ready within ${READY_WITHIN_MS} ms.`),
    );
  } catch (error) {
    await discardRawChild(child);
    throw error;
  }
}

/** A sandbox from a VMM of the pool, or nothing when that VMM ended while it waited: then a new one does */
export async function letGo(pooled: RawChild, over: HandOver): Promise<Sandbox | undefined> {
  const ready = handOver(pooled, over);
  try {
    await Promise.all([pooled.vm.resume(), ready]);
    return await ready;
  } catch {
    over.signal?.throwIfAborted();
    await pooled.vm.kill();
    await ready.catch(() => undefined); // it removes what is left
    return undefined;
  }
}

async function makeItsOwn(child: RawChild, opts: HandOver): Promise<Sandbox> {
  const { manifest } = opts.snapshot;
  const agent = child.agent.attach(Buffer.from(manifest.agentKey, "hex"));
  const identity = {
    sandboxId: child.id,
    hostname: child.id,
    machineId: opts.as?.machineId ?? randomBytes(16).toString("hex"),
    env: { ...manifest.env, ...opts.env },
  };
  const policy = opts.policy ?? manifest.network;
  const owner = { sandbox: child.id, snapshot: manifest.tag };
  // in force before the guest has said a word
  const network = new Egress(agent, { network: opts.network, owner, policy, spent: opts.as?.spentBytes });
  // everything is sent at once, before the guest has answered anything: one round trip in all
  const resync = startResync(agent, identity, READY_WITHIN_MS);
  resync.catch(() => undefined); // awaited below
  const isSwitched = policy.mode !== "none" || manifest.network.mode !== "none";
  const switched = isSwitched ? switchNetwork(agent, policy.mode !== "none", READY_WITHIN_MS) : Promise.resolve();
  switched.catch(() => undefined); // awaited below
  const { shares, hidden } = opts;
  const sharing = startSharing(agent, { shares, hidden, mounted: manifest.mounts });
  sharing.catch(() => undefined); // awaited below
  const attached = manifest.kernels.map((facts) => ({ facts, ...Kernel.attach(agent, facts) }));
  const { clockSkewMs, bootId, generators } = await resync;
  await switched;
  const states: Record<string, KernelState> = {};
  // programs have it from the agent, interpreters that run already do not
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
    guest_rng: "reseeded",
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

/** @param filled what the agent reseeded by itself, as `context/generator` */
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
    // an eval that was under way may use generators which nobody knows of yet
    return { state: busy ? "pending" : "reseeded", generators };
  } catch (error) {
    if (error === late) return { state: "pending", generators: own };
    throw new ForkdError("FORK_FAILED", `The ${language} kernel could not be reseeded: ${messageOf(error)}`, { cause: error });
  }
}

async function failOnExit(child: RawChild): Promise<never> {
  const exit = await child.vm.exited;
  const ending = exit.signal ?? `exit code ${exit.code}`;
  throw new ForkdError("FORK_FAILED", `The child's VMM ended (${ending}) before it was ready.\n${exit.log}`);
}

/** It may have been removed between being looked up and being held */
export async function checkThere({ deviceState, manifest: { tag } }: Snapshot): Promise<void> {
  try {
    await access(deviceState);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    throw new ForkdError("NOT_FOUND", `There is no snapshot ${tag} any more.`);
  }
}

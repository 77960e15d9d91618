// Adoption of a VM that an earlier process started.

import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection } from "../agent/wire/connection.ts";
import { within } from "../util/within.ts";
import { Contexts } from "../agent/kernel/contexts.ts";
import { goOn } from "../agent/hold.ts";
import { Kernel } from "../agent/kernel/kernel.ts";
import { switchNetwork } from "../agent/network.ts";
import type { ControlGroups, HostLimits, VmGroup } from "../host/control-groups.ts";
import type { FlatCache, FlatImage } from "../snapshot/flat-images.ts";
import type { WardenSource } from "../warden/source.ts";
import { Egress } from "../egress/egress.ts";
import type { Network } from "../egress/network.ts";
import type { NetworkPolicy } from "../egress/policy.ts";
import type { Hidden } from "../share/hidden.ts";
import { startSharing, type Share } from "../share/server.ts";
import type { Snapshot, SnapshotStore } from "../snapshot/store.ts";
import type { ProcessId } from "../util/process-id.ts";
import type { Engine, Vm } from "../vmm/driver.ts";
import type { ForkCertificate } from "./certificate.ts";
import { SandboxDisk } from "./disk.ts";
import { recordedImage } from "./memory-image.ts";
import { Sandbox } from "./sandbox.ts";

/** time limit for the guest's first answer; a live guest needs less, even on a busy host */
const ANSWER_WITHIN_MS = 30_000;
/** time limit for all answers of the VMM and the guest */
const ADOPT_WITHIN_MS = 45_000;

export type AdoptContext = {
  engine: Engine;
  warden: WardenSource;
  flats: FlatCache;
  snapshots: Pick<SnapshotStore, "byId">;
  runDir: string;
  vmsDir: string;
  network: Network;
  groups: ControlGroups;
  hidden: Hidden;
  onWarning: (message: string) => void;
  onGone: (sandbox: Sandbox) => void;
  /** aborted when the VMs are left to the next process */
  signal: AbortSignal;
};

/** Persistent data from which a sandbox is adopted */
export type SandboxRecord = {
  id: string;
  process: ProcessId;
  snapshot: Snapshot;
  paused: boolean;
  env: Record<string, string>;
  policy: NetworkPolicy;
  /** bytes already sent to the network */
  spentBytes: number;
  shares: readonly Share[];
  certificate: ForkCertificate;
  forkMs: number;
  createdAt: Date;
  limits: HostLimits;
  /** id of its latest branch */
  lastBranch?: string | undefined;
};

/** Returns the sandbox, or the reason why it has ended; in that case only its folder remains */
export async function adoptSandbox(context: AdoptContext, record: SandboxRecord): Promise<Sandbox | string> {
  const warden = await context.warden();
  const child = (await warden.list()).find(({ pid, startTime }) => pid === record.process.pid && startTime === record.process.startTime);
  if (!child?.running) return "its VMM ended while no daemon was running";
  const dir = join(context.runDir, record.id);
  const vm = await context.engine.adopt(record.process, dir, record.snapshot.memory);
  const agent = new AgentConnection(vm.agentSocket);
  let memory: FlatImage | undefined;
  try {
    const image = await recordedImage(dir);
    const imageOf = image === undefined ? record.snapshot : await context.snapshots.byId(image);
    memory = await context.flats.reacquire(imageOf);
    if (!memory) throw new ForkdError("SNAPSHOT_INVALID", "its memory image is gone");
    return await within(takeOver(context, record, { vm, memory, imageOf, agent, dir }), ADOPT_WITHIN_MS, context.signal, () => {
      return new ForkdError("VMM_FAILED", `its VMM did not answer within ${ADOPT_WITHIN_MS} ms`);
    });
  } catch (error) {
    agent.close();
    memory?.release();
    if (context.signal.aborted) {
      vm.detach();
      throw error;
    }
    await vm.kill();
    if (error instanceof ForkdError) return error.message;
    throw error;
  }
}

type Found = { vm: Vm; memory: FlatImage; imageOf: Snapshot; agent: AgentConnection; dir: string };

async function takeOver(context: AdoptContext, record: SandboxRecord, found: Found): Promise<Sandbox> {
  const { vm, memory, imageOf, agent, dir } = found;
  // If the daemon ended during a branch, the source is paused and would stay so.
  if (!record.paused && !(await vm.isRunning())) await vm.resume();
  const { disk: wanted } = record.snapshot.manifest;
  const vmsDir = join(context.vmsDir, record.id);
  const disk = wanted && (await SandboxDisk.found(vmsDir, wanted.sizeMiB, record.snapshot, vm.disk));
  agent.attach(Buffer.from(record.snapshot.manifest.agentKey, "hex"));
  const { policy, spentBytes: spent, snapshot: from } = record;
  const owner = { sandbox: record.id, snapshot: from.manifest.tag };
  const network = new Egress(agent, { network: context.network, owner, policy, spent });
  // a branch may have left the guest's processes held
  void goOn(agent, 0);
  // The guest may have missed the last change. If it fails to apply it the sandbox stays usable: the host enforces the
  // policy.
  switchNetwork(agent, policy.mode !== "none", 0).catch(() => undefined);
  // an eval of the earlier process may still be running
  const kernels = record.snapshot.manifest.kernels.map((facts) => Kernel.attach(agent, { ...facts, busy: true }).kernel);
  const contexts = new Contexts(agent, kernels, { isComplete: false });
  // A paused guest mounts its shares when it is resumed. The sandbox is usable without them.
  startSharing(agent, { shares: record.shares, hidden: context.hidden, mounted: [], withinMs: 0 }).catch((error: unknown) => {
    if (error instanceof ForkdError && error.code === "SHARE_FAILED") context.onWarning(`Sandbox ${record.id}: ${error.message}`);
  });
  if (!record.paused) await agent.hello(ANSWER_WITHIN_MS);
  const { id, snapshot, env, shares, certificate, forkMs, createdAt, lastBranch } = record;
  const group = await groupOf(context, record);
  const { onGone } = context;
  const facts = { id, snapshot, env, shares, certificate, forkMs, createdAt, lastBranch, isPaused: record.paused };
  return new Sandbox({ ...facts, vm, agent, network, contexts, memory, imageOf, disk, dir, group, onGone });
}

/** If the limits cannot be set again, the sandbox continues: the old ones may still be in force */
async function groupOf({ groups, onWarning }: AdoptContext, { id, process, limits }: SandboxRecord): Promise<VmGroup | undefined> {
  try {
    return await groups.found(id, process.pid, limits);
  } catch (error) {
    onWarning(`The limits of sandbox ${id} could not be set again: ${messageOf(error)}`);
    return undefined;
  }
}

// Takes over the VM of a sandbox that an earlier process had.

import { join } from "node:path";
import { ForkdError, messageOf } from "../errors.ts";
import { AgentConnection } from "../guest/connection.ts";
import { Contexts } from "../guest/contexts.ts";
import { Kernel } from "../guest/kernel.ts";
import { switchNetwork } from "../guest/network.ts";
import type { ControlGroups, HostLimits, VmGroup } from "../host/control-groups.ts";
import type { FlatCache } from "../memory/flat.ts";
import type { WardenSource } from "../memory/warden-source.ts";
import { Egress } from "../net/egress.ts";
import type { Network } from "../net/network.ts";
import type { NetworkPolicy } from "../net/policy.ts";
import type { Hidden } from "../share/hidden.ts";
import { startSharing, type Share } from "../share/server.ts";
import type { Snapshot } from "../snapshot/store.ts";
import type { ProcessId } from "../util/process-id.ts";
import type { Engine } from "../vmm/driver.ts";
import type { ForkCertificate } from "./certificate.ts";
import { SandboxDisk } from "./disk.ts";
import { Sandbox } from "./sandbox.ts";

/** a guest that is alive answers sooner, even on a busy host */
const ANSWER_WITHIN_MS = 30_000;

export type AdoptContext = {
  engine: Engine;
  warden: WardenSource;
  flats: FlatCache;
  runDir: string;
  vmsDir: string;
  network: Network;
  groups: ControlGroups;
  hidden: Hidden;
  onWarning: (message: string) => void;
  onGone: (sandbox: Sandbox) => void;
};

/** What has to be remembered of a sandbox to find it again */
export type SandboxRecord = {
  id: string;
  process: ProcessId;
  snapshot: Snapshot;
  paused: boolean;
  env: Record<string, string>;
  policy: NetworkPolicy;
  /** what had left it */
  spentBytes: number;
  shares: readonly Share[];
  certificate: ForkCertificate;
  forkMs: number;
  createdAt: Date;
  limits: HostLimits;
};

/** The sandbox, or why it is no more; then nothing of its VM remains but its folder */
export async function adoptSandbox(context: AdoptContext, record: SandboxRecord): Promise<Sandbox | string> {
  const warden = await context.warden();
  const child = (await warden.list()).find(({ pid, startTime }) => pid === record.process.pid && startTime === record.process.startTime);
  if (!child?.running) return "its VMM ended while no daemon was running";
  const dir = join(context.runDir, record.id);
  const vm = await context.engine.adopt(record.process, dir);
  const memory = await context.flats.reacquire(record.snapshot);
  const agent = new AgentConnection(vm.agentSocket);
  try {
    if (!memory) throw new ForkdError("SNAPSHOT_INVALID", "its memory image is gone");
    // a branch may have been under way: the source must not stand still for ever
    if (!record.paused && !(await vm.isRunning())) await vm.resume();
    const { disk: wanted } = record.snapshot.manifest;
    const vmsDir = join(context.vmsDir, record.id);
    const disk = wanted && (await SandboxDisk.found(vmsDir, wanted.sizeMiB, record.snapshot, vm.disk));
    agent.attach(Buffer.from(record.snapshot.manifest.agentKey, "hex"));
    const { policy, spentBytes: spent, snapshot: from } = record;
    const owner = { sandbox: record.id, snapshot: from.manifest.tag };
    const network = new Egress(agent, { network: context.network, owner, policy, spent });
    // its guest may have missed the last change, and is heard of no more than that if it cannot follow: the policy is in force here
    switchNetwork(agent, policy.mode !== "none", 0).catch(() => undefined);
    // an eval of the earlier process may still be under way
    const kernels = record.snapshot.manifest.kernels.map((facts) => Kernel.attach(agent, { ...facts, busy: true }).kernel);
    const contexts = new Contexts(agent, kernels, { isComplete: false });
    // one that is paused takes them when it goes on; without them it is still a sandbox
    startSharing(agent, { shares: record.shares, hidden: context.hidden, mounted: [], withinMs: 0 }).catch((error: unknown) => {
      if (error instanceof ForkdError && error.code === "SHARE_FAILED") context.onWarning(`Sandbox ${record.id}: ${error.message}`);
    });
    if (!record.paused) await agent.hello(ANSWER_WITHIN_MS);
    const { id, snapshot, env, shares, certificate, forkMs, createdAt } = record;
    const group = await groupOf(context, record);
    const { onGone } = context;
    const facts = { id, snapshot, env, shares, certificate, forkMs, createdAt };
    return new Sandbox({ ...facts, vm, agent, network, contexts, memory, disk, dir, group, onGone });
  } catch (error) {
    agent.close();
    await vm.kill();
    memory?.release();
    if (error instanceof ForkdError) return error.message;
    throw error;
  }
}

/** A sandbox whose limits cannot be set again goes on: they may still be in force, and it is nobody's fault inside it */
async function groupOf({ groups, onWarning }: AdoptContext, { id, process, limits }: SandboxRecord): Promise<VmGroup | undefined> {
  try {
    return await groups.found(id, process.pid, limits);
  } catch (error) {
    onWarning(`The limits of sandbox ${id} could not be set again: ${messageOf(error)}`);
    return undefined;
  }
}

// Facts for placement, from the reports and lists of the nodes.

import { storedName } from "@forkd/daemon/store/project-names";
import type { SnapshotInfo } from "@forkd/daemon/api/snapshot";
import type { Status } from "@forkd/daemon/api/daemon";
import type { NodeFacts, SnapshotFacts } from "../placement/facts.ts";
import type { Node } from "./node.ts";

const MIB = 1024 * 1024;

/** Nodes that answer */
export function factsOf(nodes: readonly Node[]): NodeFacts[] {
  return nodes.flatMap((node) => (node.status && node.code !== null ? [nodeFacts(node, node.code, node.status)] : []));
}

/** A snapshot as its holder describes it */
export function snapshotFacts(info: SnapshotInfo, holder: Node): SnapshotFacts {
  const { id, project, memory_mib: memoryMiB, parent_tag: parent, delta_bytes: deltaBytes } = info;
  return {
    id,
    base: (parent === null ? undefined : holder.tags.get(storedName(parent, project))) ?? null,
    memoryMiB,
    diskMiB: memoryMiB,
    deltaMiB: deltaBytes === null ? memoryMiB : Math.ceil(deltaBytes / MIB),
    inRegistry: false,
    engine: { ...engineOf(holder.status), exactVersion: false, accelerator: holder.status?.accelerator ?? "tcg", cpu: null },
  };
}

/** The state of a sandbox, of which the nodes that have its base need only the rest */
export function stateFacts({ id, base, memoryMiB }: { id: string; base: string; memoryMiB: number }, holder: Node): SnapshotFacts {
  const engine = { ...engineOf(holder.status), exactVersion: false, accelerator: holder.status?.accelerator ?? "tcg", cpu: null };
  return { id, base, memoryMiB, diskMiB: memoryMiB, deltaMiB: memoryMiB, inRegistry: false, engine };
}

function nodeFacts(node: Node, code: string, status: Status): NodeFacts {
  const { limits, memory, disk, sandboxes } = status;
  const { sent } = node;
  const committed = memory.committed_mib + sent.memoryMiB;
  const ofHost = memory.available_mib - limits.min_free_mib - sent.memoryMiB;
  const freeMiB = limits.max_memory_mib === null ? ofHost : Math.min(limits.max_memory_mib - committed, ofHost);
  return {
    code,
    memory: { freeMiB, totalMiB: Math.max(1, freeMiB + committed) },
    places: { used: sandboxes + sent.count, max: limits.max_sandboxes },
    disk: { freeMiB: disk.free_mib },
    accelerator: status.accelerator,
    allowsEmulation: status.isolation_policy === "any" || (status.isolation_policy === "auto" && status.accelerator === "tcg"),
    engine: engineOf(status),
    cpu: null,
    cordoned: status.cordoned,
    holds: new Map([...node.snapshots.values()].filter(isUsable).map(({ id, pool }) => [id, pool > 0 ? "warm" : "disk"])),
    fetching: node.fetching,
    load: status.load,
  };
}

function isUsable({ status, bootable }: SnapshotInfo): boolean {
  return status === "ready" && bootable;
}

/** From a description that has a name and a version: the name, and the first number */
function engineOf(status: Status | null): { name: string; version: string } {
  const [, name = "", version = "0"] = /^(\D*?)[\sv]*(\d[\d.]*)/.exec(status?.engine ?? "") ?? [];
  return { name, version };
}
